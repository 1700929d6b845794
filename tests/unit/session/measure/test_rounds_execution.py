"""A plan runs to its end even if cases fail."""

from __future__ import annotations

import contextlib
import datetime
import types
from pathlib import Path

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.session.measure import rounds
from ddp_perf.session.measure.rounds import interleave, logged_session, run_plan
from ddp_perf.system.ledger import Ledger
from tests.builders import (
    FakeLauncher,
    NotedProgress,
    make_case,
    make_environment,
    make_failure,
    make_launch,
    make_measurement,
    make_result,
)
from tests.suites import make_bench

ROOT = Path("checkout")
A, B, C = (make_case(id=name) for name in "abc")  # three launches each


class Run:
    """Run a plan and record everything that it reports."""

    def __init__(self, cases, answer=None):
        self.launcher, self.progress = FakeLauncher(answer), NotedProgress()
        self.bench = make_bench(ROOT, self.launcher, progress=self.progress)
        self.plan = interleave([(case, case.schedule.launches) for case in cases], self.bench)
        self.before = make_result([make_measurement(case, []) for case in cases]).measurements
        self.rounds = []

    def __call__(self):
        return run_plan(
            self.plan,
            self.bench,
            measured=self.before,
            on_round=self._note_round,
        )

    def _note_round(self, measured):
        self.rounds.append({name: len(m.launches) for name, m in measured.items()})


def failing(case_id, round_):
    def answer(request):
        if (request.case.id, request.round) == (case_id, round_):
            return make_failure(request.case, request.round)
        return make_launch(request.case, request.round)

    return answer


def test_launches_are_collected_by_case_in_order():
    measured = Run([A, B])()

    assert list(measured) == ["a", "b"]
    assert [launch.round for launch in measured["a"].launches] == [0, 1, 2]
    assert measured["a"].failures == measured["b"].failures == ()


def test_a_failed_case_is_not_launched_again_and_the_others_go_on():
    run = Run([A, B, C], failing("b", 1))

    measured = run()

    assert [case_id for case_id, _ in run.launcher.asked] == list("abcabcac")
    assert len(measured["b"].launches) == len(measured["b"].failures) == 1
    assert len(measured["c"].launches) == 3


def test_a_case_that_always_fails_does_not_stop_the_others():
    measured = Run([A, B], failing("a", 0))()

    assert measured["a"].launches == ()
    assert len(measured["b"].launches) == 3


def test_measurements_are_handed_over_after_every_round():
    run = Run([A, B], failing("b", 1))

    run()

    assert run.rounds == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=lambda error: error.__name__)
def test_an_interrupted_run_hands_over_its_measurements(error):
    def answer(request):
        if (request.case.id, request.round) == ("b", 1):
            raise error
        return make_launch(request.case, request.round)

    run = Run([A, B], answer)

    with pytest.raises(error):
        run()

    assert run.rounds[-1] == {"a": 2, "b": 1}


def test_progress_gets_every_outcome():
    run = Run([A, B], failing("b", 1))

    run()

    assert run.progress.finished == run.launcher.asked


def test_further_rounds_are_added_to_the_measurements():
    run = Run([A, B])
    run.before = run()
    run.plan = interleave([(B, 2)], run.bench, start=3)

    measured = run()

    assert [launch.round for launch in measured["b"].launches] == [0, 1, 2, 3, 4]
    assert measured["a"] == run.before["a"]


@pytest.fixture
def session(tmp_path, monkeypatch):
    """``session(end_at=3)`` launches A and B three times, or is ended at its third launch.

    ``later_s`` is how long after its launches it begins. It returns the launches that were asked.
    """
    began = datetime.datetime.now(datetime.timezone.utc)

    def run(*, end_at=None, later_s=0.0, tree="0123"):
        def answer(request):
            if len(one.launcher.asked) == end_at:
                raise KeyboardInterrupt
            return make_launch(request.case, request.round)

        one = Run([A, B], answer)
        bench = msgspec.structs.replace(one.bench, root=tmp_path)
        now = began + datetime.timedelta(seconds=later_s)
        clock = types.SimpleNamespace(now=lambda zone: now, fromisoformat=began.fromisoformat)
        named = types.SimpleNamespace(datetime=clock, timezone=datetime.timezone)
        monkeypatch.setattr(rounds, "datetime", named)
        with (
            contextlib.suppress(KeyboardInterrupt),
            logged_session((A, B), bench, make_environment(tree=tree), "2026-01-01") as log,
        ):
            run_plan(one.plan, bench, measured=one.before, on_round=one._note_round, log=log)
        return one

    return run


def test_a_session_goes_on_after_one_that_was_ended(session):
    first = session(end_at=4)

    second = session(later_s=1800.0)

    planned = [(name, number) for number in range(3) for name in "ab"]
    assert first.launcher.asked[:3] + second.launcher.asked == planned
    assert second.progress.finished == planned
    assert second.rounds[-1] == {"a": 3, "b": 3}
    assert "goes on after 3 launches of a session that was ended" in second.progress.said[0]


@pytest.mark.parametrize("changes", [{"later_s": 4000.0}, {"later_s": -99.0}, {"tree": "4567"}])
def test_a_session_of_another_time_or_other_code_begins_anew(session, changes):
    session(end_at=4)

    second = session(**changes)

    assert len(second.launcher.asked) == 6
    assert second.progress.said == []


def test_a_session_that_ends_leaves_no_log(session, tmp_path):
    session()

    assert list((tmp_path / "artifacts" / "launches").iterdir()) == []
    assert len(session().launcher.asked) == 6


def test_the_launches_of_unknown_code_are_in_no_log(session, tmp_path):
    session(tree=None)

    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("fails_at", ["opening", "writing"])
def test_a_log_that_cannot_be_written_ends_no_session(session, tmp_path, monkeypatch, fails_at):
    if fails_at == "opening":
        (tmp_path / "artifacts").write_text("")
    else:

        def full(log, entry):
            raise ResultsError("no space left")

        monkeypatch.setattr(Ledger, "append", full)

    one = session()

    assert one.rounds[-1] == {"a": 3, "b": 3}
    assert len(one.progress.said) == (fails_at == "opening")
