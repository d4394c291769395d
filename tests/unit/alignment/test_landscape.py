"""Jobs that follow each other: chains and diamonds are good, cycles are shown."""

from __future__ import annotations

from tidelock.alignment.landscape import JobRecord, drawn, find_cycle


def jobs(**flows: str) -> dict[str, JobRecord]:
    """`a="st>u"` is a job `a` that follows `s` and `t` and publishes `u`."""
    split = {name: flow.split(">") for name, flow in flows.items()}
    return {name: JobRecord(name, tuple(follows), tuple(out)) for name, (follows, out) in split.items()}


def test_a_chain_and_a_diamond_have_no_cycle() -> None:
    diamond = jobs(a=">st", b="s>u", c="t>v", d="uv>w")
    assert [find_cycle(diamond, name) for name in diamond] == [()] * 4


def test_a_job_that_follows_itself() -> None:
    assert find_cycle(jobs(a="s>s"), "a") == ("a", "s", "a")


def test_the_shortest_way_around_is_shown() -> None:
    landscape = jobs(a="v>s", b="s>tu", c="t>u", d="u>v")
    assert drawn(find_cycle(landscape, "a")) == "a ─s─▶ b ─u─▶ d ─v─▶ a"


def test_a_cycle_of_others_is_not_this_jobs() -> None:
    landscape = jobs(a=">s", b="st>u", c="u>t")
    assert find_cycle(landscape, "a") == ()
    assert find_cycle(landscape, "b") == ("b", "u", "c", "t", "b")


def test_a_subject_with_several_producers_and_a_job_that_nobody_knows() -> None:
    landscape = jobs(a="r>s", b=">s", c="s>r")
    assert find_cycle(landscape, "b") == ()
    assert find_cycle(landscape, "a") == ("a", "s", "c", "r", "a")
    assert find_cycle(landscape, "nobody") == ()
