"""Jobs that follow subjects, at their own pace and epoch by epoch, alone and together with others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.following")

from tests.following import Clock, FollowingJob, Subjects  # noqa: E402

from tidelock.following import agreed_positions  # noqa: E402
from tidelock.following.follower import Follower, Instruction, InstructionFile  # noqa: E402
from tidelock.following.merging import BEHIND  # noqa: E402
from tidelock.testing.logs import covers, publish  # noqa: E402


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def subjects(tmp_path: Path) -> Subjects:
    return Subjects(tmp_path, "ab")


@pytest.fixture
def job(subjects: Subjects, clock: Clock) -> FollowingJob:
    """Follows both subjects at an interval of 5 seconds, and waits for 10."""
    return FollowingJob(list(subjects.logs.values()), clock, interval=5.0, patience=10.0)


class TestUnaligned:
    def test_it_takes_everything_whenever_the_interval_is_over(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        subjects.publish("aab")
        assert job.run() == [(1, 0)], "the first one at once"
        subjects.publish("abb")
        clock.now = 4.9
        assert job.run() == []
        clock.now = 5
        assert job.run() == [(2, 2)]

    def test_nothing_to_take_is_no_step_and_delays_none(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        assert job.run() == []
        subjects.publish("a")
        assert job.run() == [(0, -1)]
        clock.now = 5
        assert job.run() == []
        subjects.publish("a")
        assert job.run() == [(1, -1)]

    def test_the_start_of_a_log_that_begins_late(self, subjects: Subjects, job: FollowingJob) -> None:
        publish(subjects.writers["a"], covers(7), [7])
        subjects.publish("b")
        assert job.ask(job.sources[0]) == ({"a": 6, "b": -1}, {"a": 7, "b": 0})

    def test_earliest_and_latest(self, subjects: Subjects, job: FollowingJob) -> None:
        publish(subjects.writers["a"], covers(7), [7])
        assert job.sources[0].first("earliest") == {"a": 6, "b": -1}
        assert job.sources[0].first("latest") == {"a": 7, "b": -1}
        assert (job.sources[0].newest("a"), job.sources[0].newest("b")) == (7, -1)

    def test_a_job_with_one_subject_stops_where_it_is_told(self, subjects: Subjects, clock: Clock) -> None:
        job = FollowingJob([subjects.logs["a"]], clock, last=1)
        subjects.publish("aaa")
        assert job.run() == [(1,)]

    def test_a_job_with_other_sources_counts_otherwise(self, subjects: Subjects, clock: Clock) -> None:
        job = FollowingJob([subjects.logs["a"]], clock, last=1, mixed=True)
        subjects.publish("aaa")
        assert job.ask(job.sources[0]) == ({"a": -1}, {"a": 2})


class TestAligned:
    def test_one_epoch_of_each_per_step_as_soon_as_all_have_one(
        self, subjects: Subjects, job: FollowingJob
    ) -> None:
        job.align()
        subjects.publish("abab")
        assert job.run() == [(0, 0), (1, 1)]
        subjects.publish("a")
        assert job.run() == []
        subjects.publish("b")
        assert job.run() == [(2, 2)], "no interval, no patience"

    def test_one_subject_alone(self, subjects: Subjects, clock: Clock) -> None:
        job = FollowingJob([subjects.logs["a"]], clock, interval=5.0)
        job.align()
        subjects.publish("aaa")
        assert job.run() == [(0,), (1,), (2,)]

    def test_up_to_its_start_it_goes_at_its_own_pace(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        subjects.publish("ab", times=8)
        job.align(start=4)
        assert job.round() == {"a": 4, "b": 4}
        assert job.run() == [(5, 5), (6, 6), (7, 7)]

    def test_a_start_that_is_not_published_yet_is_no_reason_to_wait(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align(start=4)
        subjects.publish("aab")
        assert job.run() == [(1, 0)]
        clock.now = 5
        subjects.publish("aaaa")
        assert job.run() == [(4, 0), (5, 0)], "a changes over at 4, whatever b does"
        subjects.publish("b", times=6)
        subjects.publish("aa")
        assert job.run() == [(6, 4), (7, 6)], "b comes up to its own start, and changes over there"

    def test_it_changes_while_the_query_runs_and_every_epoch_is_taken_once(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        subjects.publish("aaabb")
        assert job.run() == [(2, 1)]
        job.align(start=3)
        subjects.publish("aabbb")
        clock.now = 5
        assert job.run() == [(3, 3), (4, 4)]
        job.tell(aligned={})
        subjects.publish("aab")
        clock.now = 10
        assert job.run() == [(6, 5)]

    @pytest.mark.parametrize("late", [False, True])
    def test_different_rates_meet_when_they_published(
        self, subjects: Subjects, job: FollowingJob, late: bool
    ) -> None:
        """Whoever comes late makes the steps that it would have made in time."""
        job.align()
        steps = []
        for published in ("aaab", "aab", "aaaa", "b", "b", "a"):
            subjects.publish(published)
            if not late:
                steps += job.run()
        assert steps + job.run() == [(2, 0), (4, 1), (8, 2), (9, 3)]

    def test_the_backlog_of_a_fast_subject_is_gone_with_every_step(
        self, subjects: Subjects, job: FollowingJob
    ) -> None:
        job.align()
        for _ in range(5):
            subjects.publish("aaab")
            job.run()
        assert job.position == {"a": 14, "b": 4}
        assert len(job.steps) == 5

    def test_who_has_fallen_behind_and_may_merge_takes_many_at_once(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align()
        job.tell(merges=True)
        subjects.publish("ab", times=BEHIND + 3)
        assert job.run() == [(BEHIND + 2, BEHIND + 2)]
        subjects.publish("ab")
        assert job.run() == [(BEHIND + 3, BEHIND + 3)]
        other = FollowingJob(job.logs, clock, "other")
        other.align()
        assert other.run() == [(n, n) for n in range(BEHIND + 4)], "who may not merge meets it, and skips nothing"

    def test_who_may_not_merge_goes_one_by_one_however_far_behind(self, subjects: Subjects, clock: Clock) -> None:
        """What comes out must not depend on how slow a job was."""
        subjects.publish("ab", times=3 * BEHIND)
        for names in ("a", "ab"):
            job = FollowingJob([subjects.logs[name] for name in names], clock, f"job-{names}")
            job.align()
            assert job.run() == [(n,) * len(names) for n in range(3 * BEHIND)]

    def test_another_subject_that_is_not_aligned_comes_along(self, subjects: Subjects, job: FollowingJob) -> None:
        job.align("a")
        subjects.publish("aabbb")
        assert job.run() == [(0, 2), (1, 2)]

    def test_subjects_that_this_query_does_not_read_are_not_waited_for(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.tell(aligned={"x": 0})
        subjects.publish("a")
        assert job.run() == [(0, -1)]


class TestASilentSubject:
    def test_a_local_step_after_patience_and_aligned_again_afterwards(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align()
        subjects.publish("ab")
        job.run()
        subjects.publish("aa")
        assert job.run() == []
        clock.now = 9.9
        assert job.run() == []
        clock.now = 10
        assert job.run() == [(1, 0), (2, 0)], "one by one"
        subjects.publish("bba")
        assert job.run() == [(3, 2)], "all have something"
        subjects.publish("ab")
        assert job.run() == [(4, 3)]

    def test_it_is_not_waited_for_again_until_it_is_back(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align()
        subjects.publish("a")
        job.run()
        clock.now = 10
        assert job.run() == [(0, -1)]
        subjects.publish("a")
        assert job.run() == [(1, -1)], "at once"
        subjects.publish("b")
        assert job.run() == [], "b is back, and waits for a"
        subjects.publish("a")
        assert job.run() == [(2, 0)]
        subjects.publish("a")
        assert job.run() == [], "b is waited for as ever"

    def test_both_may_be_still_for_long_and_meet_all_the_same(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align()
        for _ in range(4):
            assert job.run() == []
            clock.now += 60
            subjects.publish("a")
            assert job.run() == [], "b has had no time to come"
            subjects.publish("b")
            assert len(job.run()) == 1
        assert job.position == {"a": 3, "b": 3}

    def test_a_job_whose_agreed_position_does_not_come_goes_on_alone(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        """It is ahead in one subject, where others have agreed on less."""
        subjects.publish("ab")
        job.align()
        assert job.run() == [(0, 0)]
        other = FollowingJob(job.logs, clock, "other", patience=10.0)
        subjects.publish("aa")
        assert other.run() == [(2, 0)]
        subjects.publish("b")
        assert job.run() == [(2, 1)]
        subjects.publish("b")
        other.align()
        assert other.run() == []
        clock.now += 10
        assert other.run() == [(2, 1), (2, 2)], "one by one, so it comes to where the others are"


class TestTheSourcesOfOneQuery:
    def test_they_agree_although_more_is_published_in_between(self, subjects: Subjects, job: FollowingJob) -> None:
        subjects.publish("a")
        assert job.round(between=lambda: subjects.publish("ab")) == {"a": 0, "b": -1}

    def test_they_agree_that_there_is_nothing_yet(self, subjects: Subjects, job: FollowingJob) -> None:
        job.align()
        assert job.round(between=lambda: subjects.publish("ab")) is None
        assert job.round() == {"a": 0, "b": 0}

    def test_they_agree_although_the_instruction_changes_in_between(
        self, subjects: Subjects, job: FollowingJob
    ) -> None:
        subjects.publish("aabb")
        assert job.round(between=job.align) == {"a": 1, "b": 1}

    def test_a_run_that_died_between_the_two_does_no_harm(self, subjects: Subjects, job: FollowingJob) -> None:
        subjects.publish("ab")
        job.ask(job.sources[0])
        job.restart()
        subjects.publish("ab")
        assert job.round() == {"a": 0, "b": 0}, "what the dead run has decided, for all sources alike"
        job.restart()
        assert job.round() == {"a": 1, "b": 1}

    def test_a_decision_about_epochs_that_are_made_again_is_not_followed(
        self, subjects: Subjects, job: FollowingJob
    ) -> None:
        subjects.publish("aab")
        job.ask(job.sources[0])  # decides on epoch 1 of a, and dies
        subjects.put_back("a", 0)
        job.restart()
        assert job.round() == {"a": 0, "b": 0}

    def test_a_decision_inside_an_entry_that_was_cut_otherwise_is_not_followed(
        self, subjects: Subjects, job: FollowingJob
    ) -> None:
        subjects.publish("aab")
        job.ask(job.sources[0])  # decides on epoch 1 of a, and dies
        subjects.put_back("a", -1)
        publish(subjects.writers["a"], covers(0, 5), [0], query="made again")
        job.restart()
        assert job.round() == {"a": 5, "b": 0}, "epoch 1 is in the middle of an entry now"

    def test_whoever_follows_a_decision_counts_its_interval_from_there(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        subjects.publish("ab")
        job.round()
        job.sources.reverse()  # now the other one decides
        subjects.publish("ab")
        assert job.round() is None
        clock.now = 5
        assert job.round() == {"a": 1, "b": 1}


class TestJobsThatMeet:
    @pytest.fixture
    def jobs(self, subjects: Subjects, clock: Clock) -> list[FollowingJob]:
        made = [FollowingJob(list(subjects.logs.values()), clock, name, patience=10.0) for name in ("one", "two")]
        for job in made:
            job.align()
        return made

    def test_they_go_through_the_same_positions_whoever_is_first(
        self, subjects: Subjects, jobs: list[FollowingJob]
    ) -> None:
        one, two = jobs
        subjects.publish("aaab")
        one.run()
        subjects.publish("abb")
        two.run()
        subjects.publish("aab")
        two.run()
        one.run()
        assert one.steps == two.steps
        assert one.position == subjects.tails()

    def test_the_logs_may_be_named_in_another_order(self, subjects: Subjects, clock: Clock) -> None:
        logs = list(subjects.logs.values())
        one, two = FollowingJob(logs, clock, "one"), FollowingJob(logs[::-1], clock, "two")
        one.align()
        two.align()
        subjects.publish("abaab")
        assert one.run() == two.run() == [(0, 0), (2, 1)]

    def test_who_is_far_behind_skips_some_and_meets_again(
        self, subjects: Subjects, jobs: list[FollowingJob]
    ) -> None:
        one, two = jobs
        two.tell(merges=True)
        for _ in range(BEHIND + 5):
            subjects.publish("aab")
            one.run()
        two.run()
        assert len(two.steps) == 1
        subjects.publish("aab")
        assert one.run() == two.run()
        assert [step for step in two.steps if step not in one.steps] == []

    def test_who_is_behind_or_starts_again_finds_what_was_agreed(
        self, subjects: Subjects, jobs: list[FollowingJob]
    ) -> None:
        one, two = jobs
        for _ in range(5):
            subjects.publish("aab")
            one.run()
        two.round()
        two.ask(two.sources[0])
        two.restart()
        subjects.publish("aab")
        two.run()
        one.run()
        assert one.steps == two.steps

    def test_who_is_behind_by_more_than_is_kept_makes_the_same_steps(
        self, subjects: Subjects, clock: Clock, jobs: list[FollowingJob], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was agreed on in between is forgotten; it must not be taken in one."""
        monkeypatch.setattr(agreed_positions, "KEPT", 3)
        one, two = jobs
        for published in ("aaab", "aab", "ab", "aaaa", "b", "ab") * 3:
            subjects.publish(published)
            one.run()
        subjects.publish("b")
        one.run()
        two.run()
        assert len(one.steps) > 10
        assert two.steps == one.steps

    def test_who_made_a_local_step_comes_back(
        self, subjects: Subjects, clock: Clock, jobs: list[FollowingJob]
    ) -> None:
        one, two = jobs
        subjects.publish("a")
        one.run()
        clock.now = 10
        assert one.run() == [(0, -1)]
        subjects.publish("b")
        assert two.run() == [(0, 0)]
        assert one.run() == []
        subjects.publish("ab")
        assert one.run() == two.run() == [(1, 1)]

    def test_who_is_aligned_later_joins(self, subjects: Subjects, clock: Clock, jobs: list[FollowingJob]) -> None:
        one, two = jobs
        two.tell(aligned={})
        for _ in range(3):
            subjects.publish("aab")
            one.run()
            two.run()
        two.align(start=5)
        for _ in range(6):
            subjects.publish("aab")
            one.run()
            two.run()
        assert one.steps[-3:] == two.steps[-3:]

    def test_one_subject_fewer_is_another_meeting(self, subjects: Subjects, jobs: list[FollowingJob]) -> None:
        one, two = jobs
        two.align("a")
        subjects.publish("abab")
        assert one.run() == [(0, 0), (1, 1)]
        assert two.run() == [(0, 1), (1, 1)]

    def test_a_position_inside_an_entry_that_was_cut_otherwise_is_passed_over(
        self, subjects: Subjects, jobs: list[FollowingJob]
    ) -> None:
        one, two = jobs
        subjects.publish("abab")
        one.run()
        subjects.put_back("a", -1)
        publish(subjects.writers["a"], covers(0, 1), [0], query="made again")
        assert two.run() == [(1, 1)], "(0, 0) will never be there again"


class TestMixedWithOtherSources:
    """Spark would begin a batch without these sources, so they take their time."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock(tick=0.25)

    @pytest.fixture
    def job(self, subjects: Subjects, clock: Clock) -> FollowingJob:
        return FollowingJob([subjects.logs["a"]], clock, mixed=True, interval=1.0, patience=3.0)

    def test_they_wait_for_an_interval(self, clock: Clock, job: FollowingJob) -> None:
        assert job.round() is None
        assert 1.0 <= clock.now <= 2.5

    def test_they_wait_for_patience_when_aligned_but_only_once(self, clock: Clock, job: FollowingJob) -> None:
        job.align()
        assert job.round() is None
        assert 3.0 <= clock.now <= 6.0
        before = clock.now
        assert job.round() is None
        assert clock.now - before <= 2.5, "a subject that is still is not waited for in every batch"

    def test_they_wait_again_once_there_was_something(
        self, subjects: Subjects, clock: Clock, job: FollowingJob
    ) -> None:
        job.align()
        job.round()
        subjects.publish("a")
        assert job.round() == {"a": 0}
        before = clock.now
        job.round()
        assert clock.now - before >= 3.0

    def test_what_comes_meanwhile_is_taken(self, subjects: Subjects, clock: Clock, job: FollowingJob) -> None:
        job.align()
        instruction, looks = job.instruction, []

        def look() -> Instruction:
            looks.append(clock.now)
            if len(looks) == 2:
                subjects.publish("a")
            return instruction

        source = Follower(job.logs, "job", look, mixed=True, clock=clock)
        assert job.ask(source) == ({"a": -1}, {"a": 0})
        assert len(looks) == 2

    def test_closing_ends_it_at_once(self, clock: Clock, job: FollowingJob) -> None:
        job.align()
        job.tell(patience=1e9, closing=True)
        assert job.round() is None
        assert clock.now < 5


class TestTheInstructionFile:
    def test_it_says_nothing_special_until_it_is_there(self, tmp_path: Path) -> None:
        assert InstructionFile(str(tmp_path / "instruction.json")).now() == Instruction()

    def test_one_that_is_replaced_is_seen(self, tmp_path: Path) -> None:
        path = tmp_path / "instruction.json"
        file = InstructionFile(str(path))
        for given in (
            Instruction({"a": 3}, 0.5, 2.0, last=7),
            Instruction({"a": 3}, 0.5, 2.0, closing=True),
            Instruction(),
        ):
            given.write(path)
            assert file.now() == given
        assert [p.name for p in tmp_path.iterdir()] == ["instruction.json"]

    def test_one_with_the_inode_and_the_time_of_an_older_one_is_seen(self, tmp_path: Path) -> None:
        """Two replacements in quick succession may look like none."""
        path = tmp_path / "instruction.json"
        file = InstructionFile(str(path))
        Instruction({"a": 3}).write(path)
        file.now()
        state = path.stat()
        path.write_text(path.read_text().replace("3", "4"))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert file.now().aligned == {"a": 4}

    def test_one_that_is_gone_leaves_things_as_they_are(self, tmp_path: Path) -> None:
        path = tmp_path / "instruction.json"
        file = InstructionFile(str(path))
        Instruction({"a": 3}).write(path)
        file.now()
        path.unlink()
        assert file.now().aligned == {"a": 3}
