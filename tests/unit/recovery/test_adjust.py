"""The adjusted state, on the examples of Segment Backup and on what its figures leave out."""

from __future__ import annotations

import pytest

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError, LogCorrupt
from tidelock.recovery import Adjusted, Held, Link, Remains, Shape, Step, Unrecoverable, adjust, violations


def held(head: int, *ends: int) -> Held:
    return Held(Epoch(head), tuple(map(Epoch, ends)))


def found(safe: int | tuple[int, ...], window: Held | None = None) -> Remains:
    return Remains(tuple(map(Epoch, safe if isinstance(safe, tuple) else (safe,))), window)


def versions(shape: Shape, state: dict[str, Remains]) -> dict[str, int]:
    adjusted = adjust(shape, state)
    assert violations(shape, state, adjusted) == []
    return {segment: adjusted.version(segment) for segment in shape}


# Figure 3.3: S -> B -> {E -> F, I -> K}. Every log may hold an entry that its segment had not committed yet.
FIGURE_SHAPE: Shape = {
    "S": (),
    "B": (Link("S"),),
    "E": (Link("B"),),
    "I": (Link("B"),),
    "F": (Link("E"),),
    "K": (Link("I"),),
}
FIGURE_FOUND = {
    "S": found((450, 500), held(400, 450, 500, 550)),
    "B": found((350, 400), held(300, 350, 400, 450)),
    "E": found((300, 350), held(300, 350)),
    "I": found((250, 300), held(300)),
    "F": found((250, 300), held(-1, 50, 100, 150, 200, 250, 300, 350)),
    "K": found((250, 300)),
}


class TestFigures33And34:
    def test_every_segment_restarts_from_its_best_safe_version(self) -> None:
        expected = {"S": 500, "B": 400, "E": 350, "I": 300, "F": 300, "K": 300}
        assert versions(FIGURE_SHAPE, FIGURE_FOUND) == expected

    def test_only_uncommitted_tails_are_rewound(self) -> None:
        steps = adjust(FIGURE_SHAPE, FIGURE_FOUND).steps
        assert {name for name, step in steps.items() if step.rewind} == {"S", "B", "F"}
        assert not any(step.roll_back or step.restart_log for step in steps.values())

    def test_the_windows_of_the_adjusted_state_are_those_of_the_text(self) -> None:
        steps = adjust(FIGURE_SHAPE, FIGURE_FOUND).steps
        windows = {name: FIGURE_FOUND[name].after(step).window for name, step in steps.items()}
        reach = {name: (window.tail, window.head) for name, window in windows.items() if window}
        assert reach == {"S": (500, 400), "B": (400, 300), "E": (350, 300), "I": (300, 300), "F": (300, -1)}

    def test_a_slower_peer_replays_more(self) -> None:
        adjusted = adjust(FIGURE_SHAPE, FIGURE_FOUND)
        replays = {name: adjusted.replay(FIGURE_SHAPE, name) for name in FIGURE_SHAPE}
        assert replays["B"] == (("S", 401, 500),)
        assert replays["I"] == (("B", 301, 400),)
        assert replays["E"] == (("B", 351, 400),), "what E has taken in already is ignored"
        assert replays["K"] == (), "I's output is consumed: nothing to replay"


def test_figure_3_5_two_sources_with_different_paces() -> None:
    shape: Shape = {"S1": (), "S2": (), "C": (Link("S1"), Link("S2"))}
    state = {
        "S1": found(500, held(400, 450, 500)),
        "S2": found(450, held(400, 450)),
        "C": found(400, held(350, 400)),
    }
    assert versions(shape, state) == {"S1": 500, "S2": 450, "C": 400}
    assert adjust(shape, state).replay(shape, "C") == (("S1", 401, 500), ("S2", 401, 450))


def test_figure_3_6_a_slow_branch_lengthens_one_window_only() -> None:
    shape: Shape = {"S1": (), "S2": (), "C": (Link("S1"), Link("S2")), "D": (Link("S2"),)}
    state = {
        "S1": found(500, held(400, 450, 500)),
        "S2": found(450, held(300, 350, 400, 450)),
        "C": found(400, held(400)),
        "D": found(300, held(250, 300)),
    }
    assert versions(shape, state) == {"S1": 500, "S2": 450, "C": 400, "D": 300}
    adjusted = adjust(shape, state)
    assert adjusted.replay(shape, "C") == (("S1", 401, 500), ("S2", 401, 450))
    assert adjusted.replay(shape, "D") == (("S2", 301, 450),)


PAIR: Shape = {"u": (), "s": (Link("u"),)}


class TestCopiesOfDifferentMoments:
    def test_a_consumer_newer_than_its_upstream_is_rolled_back(self) -> None:
        state = {"u": found((1, 2, 3), held(0, 1, 2, 3)), "s": found((1, 2, 3, 4, 5))}
        assert versions(PAIR, state) == {"u": 3, "s": 3}
        assert adjust(PAIR, state).steps["s"] == Step("s", Epoch(3), True, False, False)

    def test_a_version_inside_an_upstream_entry_does_not_do(self) -> None:
        state = {"u": found((3, 6), held(0, 3, 6)), "s": found((2, 3, 4, 5))}
        assert versions(PAIR, state) == {"u": 6, "s": 3}

    def test_a_log_cut_beyond_its_reader_is_made_again(self) -> None:
        """The consumer's checkpoint is an old copy; the log was truncated since, but its producer can go back."""
        state = {"u": found((2, 3, 4, 5, 6), held(5, 6)), "s": found((2, 3))}
        assert versions(PAIR, state) == {"u": 3, "s": 3}
        assert adjust(PAIR, state).steps["u"] == Step("u", Epoch(3), True, False, True)
        assert adjust(PAIR, state).replay(PAIR, "s") == ()

    def test_a_restarted_log_takes_its_other_readers_back_too(self) -> None:
        shape: Shape = {"u": (), "slow": (Link("u"),), "fast": (Link("u"),), "after": (Link("fast"),)}
        state = {
            "u": found((2, 4, 6), held(5, 6)),
            "slow": found((1, 2, 3)),
            "fast": found((2, 5, 6), held(1, 2, 5, 6)),
            "after": found((2, 5)),
        }
        assert versions(shape, state) == {"u": 2, "slow": 2, "fast": 2, "after": 2}

    def test_going_back_reaches_upstream_as_far_as_logs_are_cut(self) -> None:
        shape: Shape = {"a": (), "b": (Link("a"),), "c": (Link("b"),)}
        state = {"a": found((1, 3, 8), held(7, 8)), "b": found((1, 3, 7), held(6, 7)), "c": found((1, 3, 4))}
        assert versions(shape, state) == {"a": 3, "b": 3, "c": 3}

    def test_going_back_stops_at_a_log_that_holds_enough(self) -> None:
        shape: Shape = {"a": (), "b": (Link("a"),), "c": (Link("b"),)}
        state = {"a": found((8,), held(2, 3, 7, 8)), "b": found((1, 3, 7), held(6, 7)), "c": found((1, 3, 4))}
        assert versions(shape, state) == {"a": 8, "b": 3, "c": 3}

    def test_a_log_older_than_its_checkpoint_takes_the_segment_back(self) -> None:
        state = {"u": found((2, 3, 4, 5), held(1, 2, 3)), "s": found((2, 4))}
        assert versions(PAIR, state) == {"u": 3, "s": 2}

    def test_a_reader_of_uncommitted_output_goes_back_with_it(self) -> None:
        """An entry is readable before its producer commits; when the producer loses it, so does the reader."""
        state = {"u": found((1, 2), held(1, 2, 3)), "s": found((1, 2, 3))}
        assert versions(PAIR, state) == {"u": 2, "s": 2}

    def test_nothing_copied_yet_means_from_nothing(self) -> None:
        state = {"u": found((-1, 0, 1), held(-1)), "s": found((-1,), held(-1))}
        assert versions(PAIR, state) == {"u": BEFORE_FIRST, "s": BEFORE_FIRST}


LOOP: Shape = {"join": (Link("rank", lag=1),), "rank": (Link("join"),)}


class TestFeedback:
    def test_the_head_of_a_loop_is_one_epoch_ahead_of_what_returns(self) -> None:
        state = {"join": found((6, 7), held(6, 7)), "rank": found((5, 6), held(5, 6))}
        assert versions(LOOP, state) == {"join": 7, "rank": 6}
        assert adjust(LOOP, state).replay(LOOP, "join") == ()

    def test_the_first_epoch_has_nothing_returned_to_it(self) -> None:
        state = {"join": found((-1, 0), held(-1, 0)), "rank": found((-1,), held(-1))}
        assert versions(LOOP, state) == {"join": 0, "rank": BEFORE_FIRST}

    def test_a_loop_goes_back_together(self) -> None:
        state = {
            "join": found((3, 4, 5, 6, 7), held(2, 3, 4, 5, 6, 7)),
            "rank": found((2, 3, 4), held(1, 2, 3, 4)),
        }
        assert versions(LOOP, state) == {"join": 5, "rank": 4}

    def test_returned_records_that_are_gone_are_made_again(self) -> None:
        """The loop's log was cut up to 6, its reader needs epoch 4: its producer goes back to 3."""
        state = {"join": found((4,), held(3, 4)), "rank": found((3, 6, 7), held(6, 7))}
        assert versions(LOOP, state) == {"join": 4, "rank": 3}
        assert adjust(LOOP, state).steps["rank"].restart_log

    def test_a_loop_inside_one_segment(self) -> None:
        shape: Shape = {"rank": (Link("rank", lag=1),)}
        assert versions(shape, {"rank": found((4, 5, 6), held(4, 5, 6, 7))}) == {"rank": 6}
        assert versions(shape, {"rank": found((-1, 5), held(5, 6))}) == {"rank": BEFORE_FIRST}
        with pytest.raises(Unrecoverable, match="'rank'"):
            adjust(shape, {"rank": found((5,), held(5, 6))})


class TestUnrecoverable:
    @pytest.mark.parametrize(
        ("state", "segment", "missing"),
        [
            (
                {"u": found((5, 6), held(5, 6)), "s": found((2, 3))},
                "s",
                "truncated up to epoch 5.*no snapshot of epoch 2",
            ),
            ({"u": found(3, held(2, 3)), "s": found((4, 5))}, "s", "up to epoch 4 of 'u'.*brought to epoch 3"),
            ({"u": found(6, held(0, 3, 6)), "s": found((4, 5))}, "s", "inside an entry of the log of 'u'"),
            ({"u": found((5, 6), held(2, 3)), "s": found(3)}, "u", "log ends at epoch 3, so the epochs up to 5"),
            ({"u": found((4,), held(2, 3, 5)), "s": found(3)}, "u", "boundary at none"),
            ({"u": found((), held(2, 3)), "s": found(3)}, "u", "no snapshot"),
            ({"u": found(3), "s": found(3)}, "s", "log of 'u', and there is none"),
        ],
    )
    def test_it_names_the_segment_and_what_is_missing(
        self, state: dict[str, Remains], segment: str, missing: str
    ) -> None:
        with pytest.raises(Unrecoverable, match=f"^segment '{segment}'.*{missing}") as caught:
            adjust(PAIR, state)
        assert isinstance(caught.value, LogCorrupt)


class TestViolations:
    @pytest.mark.parametrize(
        ("u", "s", "fault"),
        [
            (Step("u", Epoch(3), True, False, False), 3, "u restarts from epoch 3, but its log ends at epoch 6"),
            (Step("u", Epoch(6), False, False, False), 4, "inside an entry of u"),
            (Step("u", Epoch(6), False, False, False), 1, "from 2 to 6"),
            (Step("u", Epoch(3), True, True, False), 6, "from 2 to 3"),
            (Step("u", Epoch(3), True, False, True), 1, "from 3 to 3"),
            (Step("u", Epoch(6), False, False, False), 2, "s has no snapshot of epoch 2"),
        ],
    )
    def test_each_theorem_is_checked(self, u: Step, s: int, fault: str) -> None:
        adjusted = Adjusted({"u": u, "s": Step("s", Epoch(s), True, False, False)})
        state = {"u": found((3, 6), held(2, 3, 6)), "s": found((1, 3, 4, 6, 7))}
        (told,) = violations(PAIR, state, adjusted)
        assert fault in told

    def test_a_missing_log_is_told(self) -> None:
        adjusted = Adjusted({name: Step(name, Epoch(3), False, False, False) for name in PAIR})
        assert violations(PAIR, {"u": found(3), "s": found(3)}, adjusted) == [
            "s reads the log of u, and there is none"
        ]


def test_boundaries_and_versions_have_to_ascend() -> None:
    with pytest.raises(InternalError, match="ascend"):
        held(3, 2)
    with pytest.raises(InternalError, match="ascend"):
        found((3, 3))
