"""One suite from cases to findings and a stored baseline, with a simulated launcher."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Saved
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.injection import parse_injection
from ddp_perf.core.launch import RankConditions
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError, LaunchError
from tests.builders import (
    FakeLauncher,
    NotedProgress,
    make_capacity,
    make_cases,
    make_failure,
    make_launch,
)
from tests.suites import make_bench, measure_suite, one_session_a_day

CASES = tuple(make_cases(launches=3))
ONE, TWO = CASES
JITTER = (1.0, 1.004, 0.996)


def steps_of(one_s, two_s):
    """Return the answers of a launcher for one rank and two; the launches differ a little."""

    def answer(request):
        step_s = (one_s if request.case.world_size == 1 else two_s) * JITTER[request.round]
        return make_launch(request.case, request.round, step_s=step_s)

    return answer


class Session:
    """A machine that runs one session after the other."""

    def __init__(self, directory):
        self.directory = directory
        self.store = BaselineStore(directory / "baselines")
        self.key = make_capacity().accelerator_key("cpu")
        self.partial, self.judged = [], []
        self.progress = NotedProgress()
        self.launcher = None

    def __call__(self, answer, **request):
        self.launcher = FakeLauncher(answer)
        bench = make_bench(
            self.directory,
            self.launcher,
            progress=self.progress,
            injections=request.pop("injections", ()),
        )
        return measure_suite(
            bench,
            on_partial=self.partial.append,
            on_judged=self.judged.append,
            **{"cases": CASES, **request},
        )

    def stored(self, case):
        return self.store.load(self.key).cases.get(case.id)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A machine with one session a day."""
    one_session_a_day(monkeypatch)
    return Session(tmp_path)


def outcomes(result):
    return {finding.verdict.outcome for finding in result.findings}


def test_a_first_session_has_no_baseline_and_stores_none_by_default(session):
    result = session(steps_of(0.010, 0.012))

    assert outcomes(result) == {Outcome.NO_BASELINE}
    assert result.saved == {}
    assert not session.store.path(session.key).exists()


def test_a_session_states_where_and_when_it_was_measured(session):
    result = session(steps_of(0.010, 0.012))

    assert (result.suite, result.tier) == ("quick", "cpu")
    assert result.environment.accelerator_key == session.key
    assert result.environment.torch == "2.13.0"
    assert (result.environment.cuda, result.environment.nccl) == (None, None)  # not on this tier
    assert result.baseline_path == str(session.store.path(session.key))
    assert result.date.endswith("+00:00")


def test_an_injection_marks_the_result_and_is_judged_as_the_same_case(session):
    session(steps_of(0.010, 0.012), save_mode="missing")

    slowed = session(steps_of(0.030, 0.036), injections=(parse_injection("compute:200%"),))

    assert slowed.injections == ("compute:200%",)
    assert slowed.finding(ONE.id, "step_time").verdict.ratio == pytest.approx(3, rel=0.01)
    assert Outcome.NO_BASELINE not in outcomes(slowed)


def test_efficiency_is_paired_within_each_round(session):
    result = session(steps_of(0.010, 0.012))

    ratios = [row.values["efficiency"] for row in result.summaries[TWO.id]]
    assert ratios == pytest.approx([1.2, 1.2, 1.2])
    assert "efficiency" not in result.summaries[ONE.id][0].values


def test_missing_records_every_case_without_baseline_once(session):
    first = session(steps_of(0.010, 0.012), save_mode="missing")
    path = session.store.path(session.key)
    text = path.read_text()

    again = session(steps_of(0.020, 0.024), save_mode="missing")

    assert set(first.saved) == {ONE.id, TWO.id}
    assert list(first.saved.values()) == 2 * [Saved(path=str(path), mode="missing")]
    assert path.read_text() == text
    assert set(again.not_saved) == {ONE.id, TWO.id}
    assert outcomes(again) & {Outcome.REGRESSION, Outcome.SUSPECT, Outcome.UNDECIDED}


def test_append_adds_a_session_to_each_case(session):
    for _ in range(3):
        result = session(steps_of(0.010, 0.012), save_mode="append")

    assert [len(session.stored(case).sessions) for case in CASES] == [3, 3]
    assert len(session.stored(TWO).sessions[0].values("efficiency")) == 3
    assert Outcome.REGRESSION not in outcomes(result)


def test_append_refuses_other_work(session):
    session(steps_of(0.010, 0.012), save_mode="missing")
    wider = make_cases(model={"hidden_dim": 48})

    result = session(steps_of(0.010, 0.012), cases=tuple(wider), save_mode="append")

    assert outcomes(result) == {Outcome.INCOMPARABLE}
    assert "accept replaces them" in result.not_saved[ONE.id].reason
    assert len(session.stored(ONE).sessions) == 1


def test_accept_begins_a_level_with_the_reason_logged(session):
    session(steps_of(0.010, 0.012), save_mode="missing")

    session(steps_of(0.020, 0.024), save_mode="accept", reason="wider layers")

    for case in CASES:
        stored = session.stored(case)
        assert len(stored.sessions) == 2
        assert len(stored.history("step_time").at_level) == 1
        (entry,) = stored.log
        assert entry.reason == "wider layers"
        assert entry.ratio == pytest.approx(2.0)


def busy(case):
    """Return the answers of a launcher: two of three launches of ``case`` were disturbed."""
    usual = steps_of(0.010, 0.012)

    def answer(request):
        if (request.case.id, request.round > 0) == (case.id, True):
            conditions = RankConditions(foreign=0.5)
            return make_launch(request.case, request.round, conditions=conditions)
        return usual(request)

    return answer


DISTURBED = "2 of 3 launches were disturbed, because other processes took 50 %"


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_disturbed_steps_are_not_stored_and_what_nothing_disturbed_is(session, mode):
    result = session(busy(TWO), save_mode=mode)

    without = result.saved[TWO.id].without
    assert without.keys() == {"step_time", "tail", "efficiency", "cpu_time"}
    assert without["step_time"].startswith(DISTURBED)
    (stored,) = session.stored(TWO).sessions
    assert set(stored.launches[0]) == {"peak_memory"}
    assert stored.terms == ()


def test_a_session_is_added_to_a_case_without_a_level_and_sets_it(session):
    session(busy(TWO), save_mode="missing")

    result = session(steps_of(0.010, 0.012), save_mode="missing")

    assert result.saved.keys() == {TWO.id}
    assert len(session.stored(TWO).sessions) == 2
    assert session.stored(TWO).level("step_time") == 0.012


def test_no_level_begins_with_disturbed_steps(session):
    session(steps_of(0.010, 0.012), save_mode="missing")
    before = session.stored(TWO)

    result = session(busy(TWO), save_mode="accept", reason="r")

    assert result.not_saved[TWO.id].reason.startswith(DISTURBED)
    assert session.stored(TWO) == before


def test_scaling_with_a_disturbed_single_rank_case_is_not_stored(session):
    result = session(busy(ONE), save_mode="missing")

    assert result.saved[TWO.id].without["efficiency"].startswith(DISTURBED)
    (stored,) = session.stored(TWO).sessions
    assert "efficiency" not in stored.launches[0]
    assert "step_time" in stored.launches[0]


def test_a_disturbed_session_is_invalid_and_undecided(session):
    session(steps_of(0.010, 0.012), save_mode="missing")

    result = session(busy(TWO))

    assert result.finding(TWO.id, "step_time").verdict.outcome is Outcome.INVALID
    assert TWO.id in result.undecided()


def test_sessions_in_a_row_without_a_valid_figure_are_counted(session):
    """The other case has one in each of them, so that few cases are undecided."""
    session(steps_of(0.010, 0.012), save_mode="append")
    counts = []
    for _ in range(5):
        found = session(busy(ONE), save_mode="append").finding(ONE.id, "step_time")
        counts.append((found.verdict.outcome, found.unmeasured))

    valid = session(steps_of(0.010, 0.012), save_mode="append").finding(ONE.id, "step_time")
    again = session(busy(ONE), save_mode="append").finding(ONE.id, "step_time")

    assert counts == [(Outcome.INVALID, before) for before in range(5)]
    assert (valid.unmeasured, again.unmeasured) == (0, 0)


def test_noisy_steps_are_left_out_and_quiet_ones_are_stored(session):
    def answer(request):
        noisy = (1.0, 1.5, 0.7)[request.round] if request.case.id == TWO.id else 1.0
        return make_launch(request.case, request.round, step_s=0.01 * noisy)

    result = session(answer, save_mode="missing")

    assert "too noisy" in result.saved[TWO.id].without["step_time"]
    assert session.stored(ONE).level("step_time") == 0.01
    assert session.stored(TWO).level("step_time") is None
    assert session.stored(TWO).level("peak_memory") is not None


@pytest.mark.parametrize("round_", [0, 2], ids=["first launch", "last launch"])
def test_a_failed_case_is_neither_judged_nor_stored(session, round_):
    def answer(request):
        if (request.case.id, request.round) == (ONE.id, round_):
            return make_failure(request.case, request.round)
        return make_launch(request.case, request.round)

    result = session(answer, save_mode="missing")

    assert {finding.case_id for finding in result.findings} == {TWO.id}
    assert set(result.saved) == {TWO.id}
    assert session.stored(ONE) is None
    assert len(result.measurements[ONE.id].failures) == 1


def test_results_are_handed_over_after_each_round_and_after_judging(session):
    result = session(steps_of(0.010, 0.012))

    launches = [len(partial.measurements[TWO.id].launches) for partial in session.partial]
    assert launches == [1, 2, 3, 3]
    findings = [bool(partial.findings) for partial in session.partial]
    assert findings == [False, False, False, True]
    assert session.partial[-1].findings == result.findings


def test_an_interrupted_session_keeps_its_launches_and_stores_nothing(session):
    def answer(request):
        if request.round == 1:
            raise KeyboardInterrupt
        return make_launch(request.case, request.round)

    with pytest.raises(KeyboardInterrupt):
        session(answer, save_mode="missing")

    assert len(session.partial[-1].measurements[ONE.id].launches) == 1
    assert session.progress.ended
    assert not session.store.path(session.key).exists()


@pytest.mark.parametrize(("mode", "kept"), [("missing", True), ("append", False)])
def test_an_interrupted_first_session_stores_what_is_finished(session, mode, kept):
    """A judged session is planned for all of its launches, and is measured again."""
    answer = steps_of(0.010, 0.012)

    def interrupted(request):
        if request.round == 2:
            raise KeyboardInterrupt
        return answer(request)

    with pytest.raises(KeyboardInterrupt):
        session(interrupted, save_mode=mode)

    assert (session.stored(ONE) is not None) is kept
    assert session.partial[-1].saved.keys() == ({ONE.id, TWO.id} if kept else set())
    again = session(answer, save_mode="missing")
    stored = session.stored(ONE)
    assert [len(one.launches) for one in stored.sessions] == [2 if kept else 3]
    assert (again.saved == {}) is kept


def test_an_interrupt_ends_the_session_even_if_nothing_can_be_stored(session, monkeypatch):
    def interrupted(request):
        if request.round == 2:
            (session.directory / "baselines").write_text("a file in the place of the directory")
            raise KeyboardInterrupt
        return make_launch(request.case, request.round)

    with pytest.raises(KeyboardInterrupt):
        session(interrupted, save_mode="missing")


@pytest.mark.parametrize("full", [False, True])
def test_an_interrupted_second_stage_leaves_a_judged_and_stored_session(session, full):
    """The interrupt ends the session even if nothing can be stored."""

    def interrupted(result, baseline, note):
        note(msgspec.structs.replace(result, unkept="noted"))
        if full:
            (session.directory / "baselines").write_text("a file in the place of the directory")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session(steps_of(0.010, 0.012), save_mode="append", settle=interrupted)

    assert [result.unkept for result in session.judged] == ["noted"]
    assert session.partial[-1].saved.keys() == (set() if full else {ONE.id, TWO.id})


@pytest.mark.parametrize(
    ("mode", "kept"), [("missing", False), ("append", False), ("accept", True)]
)
def test_code_that_does_other_work_begins_no_level_unless_it_is_accepted(session, mode, kept):
    def other_work(case):
        return "the file has other counts: +839 operations" if case is TWO else None

    answer = steps_of(0.010, 0.012)
    result = session(answer, save_mode=mode, reason="meant", other_work=other_work)

    assert session.stored(ONE) is not None
    assert (session.stored(TWO) is not None) is kept
    if not kept:
        why = result.not_saved[TWO.id]
        assert why.reason.startswith("the file has other counts: +839 operations; fix it, or if")
        assert "pytest -m work --save-baseline=accept --ddp-reason" in why.reason
        assert not why.is_open
        assert TWO.id not in session.store.work.structures("quick")


def test_the_work_is_not_counted_again_for_a_case_that_has_a_level(session):
    asked = []
    session(steps_of(0.010, 0.012), save_mode="missing")

    session(steps_of(0.010, 0.012), save_mode="append", other_work=asked.append)
    session(steps_of(0.010, 0.012), other_work=asked.append)

    assert asked == []


def test_the_second_session_has_an_estimate(session):
    session(steps_of(0.010, 0.012), save_mode="missing")
    session(steps_of(0.010, 0.012))

    (suite, launches, before), (_, _, after) = session.progress.begun
    assert (suite, launches, before) == ("quick", 6, {})
    assert after[ONE.id] > 12 * 0.010  # its steps alone
    assert after[TWO.id] > 12 * 0.012


def test_a_broken_baseline_is_refused_before_anything_is_launched(session):
    path = session.store.path(session.key)
    path.parent.mkdir()
    path.write_text("{")

    with pytest.raises(BaselineError):
        session(steps_of(0.010, 0.012))

    assert session.launcher.asked == []


def test_ranks_that_cannot_be_started_end_the_progress_display(session):
    def answer(request):
        raise LaunchError("the forkserver did not start")

    with pytest.raises(LaunchError):
        session(answer)

    assert session.progress.ended


class TestMoreLaunches:
    """A machine whose sessions agree and whose launches differ, so that three are few."""

    (CASE, _) = make_cases(launches=3, tolerances={"step_time": 0.04})
    # Of twelve launches; the first three alone leave it open.
    RESTLESS = (0.97, 1.05, 1.0, 1.03, 0.96, 1.01, 0.98, 1.04, 0.99, 1.02, 0.97, 1.01)

    def answer(self, factor=1.0, failing_round=None):
        def answer(request):
            if request.round == failing_round:
                return make_failure(request.case, request.round)
            step_s = 0.010 * factor * self.RESTLESS[request.round % 12]
            return make_launch(request.case, request.round, step_s=step_s)

        return answer

    @pytest.fixture
    def settled(self, session):
        """A machine with eight sessions behind it."""
        for shift in (0, 3, 1, 2, 4, 2, 1, 3):
            restless = self.RESTLESS[shift:] + self.RESTLESS[:shift]

            def answer(request, restless=restless):
                step_s = 0.010 * restless[request.round]
                return make_launch(request.case, request.round, step_s=step_s)

            session(answer, save_mode="append", cases=(self.CASE,))
        return session

    def test_an_open_case_takes_more_until_it_is_decided(self, settled):
        few = settled(self.answer(), cases=(self.CASE,))
        more = settled(self.answer(), cases=(self.CASE,), budget_s=60)

        assert few.finding(self.CASE.id, "step_time").verdict.outcome is Outcome.UNDECIDED
        finding = more.finding(self.CASE.id, "step_time")
        assert finding.verdict.outcome is Outcome.PASS
        assert finding.launches == len(more.measurements[self.CASE.id].launches) > 3
        assert finding.earlier[0].launches == 3
        assert finding.earlier[0].verdict.outcome is Outcome.UNDECIDED

    def test_a_decided_case_stops_early(self, settled):
        result = settled(self.answer(1.5), cases=(self.CASE,), budget_s=60)

        assert result.finding(self.CASE.id, "step_time").verdict.outcome is Outcome.REGRESSION
        assert len(result.measurements[self.CASE.id].launches) == 3
        assert settled.progress.extended == []

    def test_progress_says_why_it_goes_on(self, settled):
        settled(self.answer(), cases=(self.CASE,), budget_s=60)

        assert settled.progress.extended[0] == (9, "1 of 1 case is undecided: 9 more launches")

    def test_a_failure_in_a_later_look_is_one_and_nothing_is_stored(self, settled):
        result = settled(
            self.answer(failing_round=4), cases=(self.CASE,), budget_s=60, save_mode="append"
        )

        assert len(result.measurements[self.CASE.id].failures) == 1
        assert len(result.measurements[self.CASE.id].launches) == 4
        assert result.finding(self.CASE.id, "step_time").launches == 3  # what was found is kept
        assert result.saved == {}

    def test_without_a_baseline_there_is_one_look(self, session):
        result = session(self.answer(), cases=(self.CASE,), budget_s=60)

        assert len(result.measurements[self.CASE.id].launches) == 3


def test_earlier_results_stay_and_their_single_rank_launches_are_used(session):
    """A test that requests one more case must not measure, judge or store the others again."""
    first = session(steps_of(0.01, 0.012), cases=(ONE,), save_mode="append")
    both = session(steps_of(0.02, 0.012), cases=(TWO,), earlier=first, save_mode="append")

    assert session.launcher.asked == [(TWO.id, round_) for round_ in range(3)]
    assert both.measurements[ONE.id] == first.measurements[ONE.id]
    assert [row.values["efficiency"] for row in both.summaries[TWO.id]] == [
        pytest.approx(1.2) for _ in JITTER
    ]
    assert both.findings[: len(first.findings)] == first.findings
    assert {finding.case_id for finding in both.findings[len(first.findings) :]} == {TWO.id}
    assert both.saved.keys() == {ONE.id, TWO.id}
    assert len(session.stored(ONE).sessions) == 1
    assert session.partial[-1].measurements.keys() == {ONE.id, TWO.id}


def test_the_judged_result_is_handed_over_before_it_is_stored(session, monkeypatch):
    """A baseline that cannot be written leaves the rest of the result."""

    def fail(*arguments):
        raise BaselineError("disk full")

    monkeypatch.setattr(BaselineStore, "update", fail)
    with pytest.raises(BaselineError, match="disk full"):
        session(steps_of(0.010, 0.012), save_mode="missing")
    assert [bool(result.findings) for result in session.judged] == [True]
