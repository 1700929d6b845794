"""The first sessions after an upgrade, on a baseline whose sessions have medians and no level."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.judge_results import RecordedSession, judge_results
from tests.builders import (
    FakeLauncher,
    make_acknowledgement,
    make_cases,
    make_launch,
)
from tests.older_sessions import of_medians, with_medians
from tests.suites import make_bench, measure_suite, one_session_a_day

ONE, TWO = CASES = tuple(make_cases(launches=3, tolerances={"step_time": 0.04}))
WITHOUT_LEVEL = {"step_time", "tail", "efficiency", "cpu_time"}
JITTER = (1.0, 1.004, 0.997)


class Machine:
    """A machine that measures one session a day; an upgrade replaces its levels by medians."""

    def __init__(self, directory):
        self._directory = directory
        self.store = BaselineStore(directory / "baselines")
        self.results = []

    def measure(self, mode, factor=1.0, **rank):
        def answer(request):
            step_s = 0.01 * factor * JITTER[(request.round + len(self.results)) % 3]
            return make_launch(request.case, request.round, step_s=step_s, **rank)

        bench = make_bench(self._directory, FakeLauncher(answer))
        result = measure_suite(bench, cases=CASES, save_mode=mode, reason="meant")
        self.results.append(result)
        return result

    @property
    def key(self):
        return self.results[0].environment.accelerator_key

    def stored(self, case=TWO):
        return self.store.load(self.key).cases[case.id]

    def upgrade(self, **changes):
        """Turn the stored levels into medians, as reading a file of version 2 does."""

        def older(baseline):
            cases = {
                case_id: msgspec.structs.replace(
                    case,
                    sessions=tuple(with_medians(*case.sessions)),
                    first=of_medians(case.first),
                )
                for case_id, case in baseline.cases.items()
            }
            return msgspec.structs.replace(baseline, cases=cases, **changes)

        self.store.update(self.key, older)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch)
    return Machine(tmp_path)


def outcomes(result, case=TWO):
    return {f.metric: f.verdict.outcome for f in result.findings if f.case_id == case.id}


def replayed(machine):
    """Judge and append all results, as ``ddp-perf judge --append`` does."""
    sessions = [
        RecordedSession(file=f"{number}.json", complete=True, result=result)
        for number, result in enumerate(machine.results)
    ]
    return judge_results(sessions, machine.store, append_each=True)


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_the_first_session_is_stored_and_the_second_one_is_judged_by_it(machine, mode):
    for _ in range(3):
        machine.measure("append")
    machine.upgrade()

    first = machine.measure(mode)
    second = machine.measure(mode)

    assert first.saved.keys() == {ONE.id, TWO.id}
    found = outcomes(first)
    assert {metric for metric, one in found.items() if one is Outcome.NO_BASELINE} == WITHOUT_LEVEL
    assert found["peak_memory"] is Outcome.PASS
    assert first.finding(TWO.id, "peak_memory").sessions == 3
    assert all(first.is_resolved(f) for f in first.findings if f.metric in WITHOUT_LEVEL)
    assert Outcome.NO_BASELINE not in outcomes(second).values()
    assert second.finding(TWO.id, "step_time").sessions == 1
    assert bool(second.saved) is (mode == "append")
    assert [bool(one.values("step_time")) for one in machine.stored().sessions][:4] == [
        *[False] * 3,
        True,
    ]


def test_the_reason_states_until_when_there_are_medians_and_what_to_do(machine):
    for _ in range(3):
        machine.measure("append")
    machine.upgrade()

    result = machine.measure(None)

    assert result.finding(TWO.id, "step_time").verdict.reason == (
        "the sessions until 2026-01-03 have medians of the step, and no steps to"
        " compute the step_time from; --save-baseline=append adds a session that has it, and"
        " ddp-perf judge --append the older ones whose results files were kept"
    )


def test_a_session_of_more_memory_is_not_stored_as_one_at_the_level(machine):
    for _ in range(5):
        machine.measure("append")
    machine.upgrade()

    machine.measure("missing", peak_memory=1500)

    assert machine.stored().sessions[-1].verdicts == {"peak_memory": Outcome.REGRESSION}
    assert machine.stored().level("peak_memory") == 1000.0


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_a_case_that_was_red_by_its_medians_stays_red_until_somebody_accepts_it(machine, mode):
    for _ in range(5):
        machine.measure("append")
    assert outcomes(machine.measure("append", 1.3))["step_time"] is Outcome.REGRESSION
    machine.upgrade()

    for _ in range(3):
        result = machine.measure(mode, 1.3)
        finding = result.finding(TWO.id, "step_time")
        assert finding.verdict.outcome is Outcome.REGRESSION
        assert "by its medians, and no level shows that it was mended" in finding.verdict.reason
        assert finding.by_itself is Outcome.NO_BASELINE
        assert not result.is_resolved(finding)
        assert outcomes(result)["peak_memory"] is Outcome.PASS
    assert machine.stored().level("step_time") is None

    machine.measure("accept", 1.3)

    assert outcomes(machine.measure(mode, 1.3))["step_time"] is not Outcome.REGRESSION


def test_an_acknowledged_regression_stays_expected(machine):
    for _ in range(5):
        machine.measure("append")
    machine.measure("append", 1.3)
    machine.upgrade(acknowledged=(make_acknowledgement(TWO, ratio=1.3),))

    result = machine.measure("append", 1.3)

    assert result.finding(TWO.id, "step_time").is_expected
    assert not result.finding(ONE.id, "step_time").is_expected


def test_a_level_that_is_accepted_after_medians_has_no_size(machine):
    machine.measure("append")
    machine.upgrade()

    machine.measure("accept")

    (entry,) = machine.stored().log
    assert entry.ratio is None
    assert machine.stored().first["step_time"] == pytest.approx(0.01, rel=0.01)


def test_the_first_level_is_the_first_figure_that_drift_is_relative_to(machine):
    machine.measure("append")
    machine.upgrade()
    machine.measure("append")
    machine.measure("accept", 1.5)

    result = machine.measure(None, 1.5)

    assert result.finding(TWO.id, "step_time").drift == pytest.approx(1.5, rel=0.02)


def test_older_results_bring_the_levels_of_the_stored_sessions(machine):
    for _ in range(4):
        machine.measure("append")
    machine.measure("append", 1.3)
    before = machine.store.load(machine.key)
    machine.upgrade()

    replayed(machine)

    after = machine.store.load(machine.key)
    for case_id, case in before.cases.items():
        assert after.cases[case_id].sessions == case.sessions
        assert case.first.items() <= after.cases[case_id].first.items()


def test_older_results_are_brought_over_after_the_first_session_too(machine):
    for _ in range(4):
        machine.measure("append")
    machine.upgrade()
    machine.measure("append", 1.1)
    assert machine.stored().first["step_time"] == pytest.approx(0.011)

    replayed(machine)

    stored = machine.stored()
    assert [bool(one.values("step_time")) for one in stored.sessions] == [True] * 5
    assert stored.first["step_time"] == pytest.approx(0.01)
    assert outcomes(machine.measure("append"))["step_time"] is not Outcome.NO_BASELINE


def test_results_are_brought_over_once(machine):
    for _ in range(4):
        machine.measure("append")
    machine.upgrade()
    replayed(machine)
    before = machine.store.load(machine.key)

    again = replayed(machine)

    assert machine.store.load(machine.key) == before
    for session in again.sessions:
        reason = session.result.not_saved[TWO.id].reason
        assert reason == "this session is already stored"


def of_an_older_version(result):
    """Return the result as reading one of version 2 does: without the CPU time of the ranks."""

    def older(launch):
        ranks = tuple(msgspec.structs.replace(rank, cpu_s=()) for rank in launch.ranks)
        return msgspec.structs.replace(launch, ranks=ranks)

    measurements = {
        case_id: msgspec.structs.replace(one, launches=tuple(map(older, one.launches)))
        for case_id, one in result.measurements.items()
    }
    return msgspec.structs.replace(result, measurements=measurements)


def test_medians_of_several_ranks_stay_where_the_older_results_give_no_level(machine):
    for _ in range(4):
        machine.measure("append")
    machine.upgrade()
    before = machine.stored()
    machine.results = [of_an_older_version(result) for result in machine.results]

    again = replayed(machine)

    assert machine.stored() == before
    for session in again.sessions:
        reason = session.result.not_saved[TWO.id].reason
        assert reason.startswith("it is stored with medians, and gives no level: 3 of 3 launches")
        assert TWO.id not in session.result.saved
    assert len(machine.stored(ONE).sessions_with("step_time")) == 4  # one rank needs no witness
