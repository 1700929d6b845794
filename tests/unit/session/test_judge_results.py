"""A series of sessions is judged again and appended as it was when it was measured."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.judge_results import RecordedSession, judge_results, sessions_before
from ddp_perf.session.result import read_results, write_results
from ddp_perf.session.store_baseline import append
from tests.builders import FakeLauncher, make_acknowledgement, make_cases, make_failure, make_launch
from tests.suites import make_bench, measure_suite, one_session_a_day

ONE, TWO = CASES = tuple(make_cases(launches=3, tolerances={"step_time": 0.04}))
# Of twelve launches; the first three alone leave it open.
RESTLESS = (0.97, 1.05, 1.0, 1.03, 0.96, 1.01, 0.98, 1.04, 0.99, 1.02, 0.97, 1.01)
USUAL = (0, 3, 1, 2, 4, 2, 1, 3)  # eight sessions, each beginning elsewhere among them


class Machine:
    """A machine that measures one session a day and appends it."""

    def __init__(self, directory):
        self.bench_of = lambda launcher: make_bench(directory, launcher)
        self.store = BaselineStore(directory / "baselines")
        self.key = None

    def __call__(self, shift, factor=1.0, *, failing_round=None):
        def answer(request):
            if request.round == failing_round:
                return make_failure(request.case, request.round)
            step_s = 0.01 * factor * RESTLESS[(shift + request.round) % 12]
            return make_launch(request.case, request.round, step_s=step_s)

        result = measure_suite(
            self.bench_of(FakeLauncher(answer)), cases=CASES, save_mode="append", budget_s=60
        )
        self.key = result.environment.accelerator_key
        return result

    def stored(self):
        return self.store.load(self.key)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch)
    return Machine(tmp_path)


def replayed(results, baseline):
    """Judge and append the results, one after the other."""
    judged = []
    for result in results:
        result = judge_again(result, baseline, baseline_path=result.baseline_path)
        baseline, result = append(result, baseline)
        judged.append(result)
    return baseline, judged


def test_a_replayed_series_has_the_findings_and_the_baseline_of_the_measured_one(machine):
    live = [machine(shift) for shift in USUAL]
    live += [machine(0), machine(3, failing_round=4), machine(1, 1.5), machine(2, 0.5), machine(4)]
    empty = msgspec.structs.replace(machine.stored(), cases={})

    baseline, again = replayed(live, empty)

    assert any(found.earlier for result in live for found in result.findings)
    assert baseline == machine.stored()
    for before, now in zip(live, again, strict=True):
        assert now.findings == before.findings
        assert (now.saved, now.not_saved) == (before.saved, before.not_saved)


def test_files_judged_into_an_empty_directory_give_the_same_stored_baseline(machine, tmp_path):
    live = [machine(shift) for shift in USUAL]
    live += [machine(0), machine(3, failing_round=4), machine(1, 1.5), machine(2, 0.5), machine(4)]
    sessions = []
    for number, result in enumerate(live):
        file = tmp_path / f"{number}.json"
        write_results(file, [result], complete=True)
        (suite_result,) = read_results(file).suites
        sessions.append(RecordedSession(file=str(file), complete=True, result=suite_result))
    other = BaselineStore(tmp_path / "other")

    series = judge_results(reversed(sessions), other, append_each=True)

    assert other.load(machine.key) == machine.stored()
    assert [judgements(one.result) for one in series.sessions] == [judgements(r) for r in live]


def judgements(result):
    """Return the verdicts at all looks, without sentences: some of them name the directory."""
    return [
        (found.case_id, found.metric, found.verdict.outcome, found.launches, len(found.earlier))
        for found in result.findings
    ]


def test_a_stored_session_has_the_verdicts_that_are_off_the_level(machine):
    for shift in USUAL:
        machine(shift)
    machine(1, 1.5)

    *before, newest = machine.stored().cases[ONE.id].sessions

    assert [session.verdicts for session in before] == [{}] * 8
    assert newest.verdicts == {"step_time": Outcome.REGRESSION}


def test_a_session_is_appended_once_whatever_its_verdict(machine):
    for shift in USUAL:
        machine(shift)
    slow = machine(1, 1.5)

    baseline, again = replayed([slow], machine.stored())

    assert baseline == machine.stored()
    assert again[0].saved == {}
    assert again[0].not_saved[ONE.id].reason == "this session is already stored"


def test_a_regression_that_is_acknowledged_today_is_expected_when_it_is_judged_again(machine):
    for shift in USUAL:
        machine(shift)
    before = machine.stored()
    slow = machine(1, 1.5)
    known = msgspec.structs.replace(before, acknowledged=(make_acknowledgement(ONE),))

    again = judge_again(slow, known, baseline_path="somewhere")

    assert slow.finding(ONE.id, "step_time").known is None
    assert again.finding(ONE.id, "step_time").known.state == "expected"


def test_an_acknowledgement_that_was_given_later_is_not_of_the_baseline_before(machine):
    earlier, later = (
        make_acknowledgement(ONE, date=f"2026-01-0{day}T12:00:00+00:00") for day in (1, 3)
    )
    known = msgspec.structs.replace(machine.stored(), acknowledged=(earlier, later))

    before = sessions_before(known, "2026-01-02T03:00:00+00:00")

    assert before.acknowledged == (earlier,)
