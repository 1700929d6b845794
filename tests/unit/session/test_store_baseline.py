"""The cases of a session are stored or refused by their launches and verdicts."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.save import Refused
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.store_baseline import save
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_finding,
    make_measurement,
    make_result,
    make_session,
)

ONE, TWO = make_cases()
STEPS = (0.01, 0.0101, 0.0099)


@pytest.fixture
def store(tmp_path):
    return BaselineStore(tmp_path)


def saved(store, result, *, mode="append", stored=0, cases=(ONE, TWO)):
    """Return the result and the cases stored after it; ``stored`` sessions were stored before."""
    sessions = [make_session(list(STEPS), day=day) for day in range(1, stored + 1)]
    before = make_baseline({c.id: make_case_baseline(c, *sessions) for c in cases if sessions})
    if stored:
        store.update(before.accelerator, lambda _: before)
    ids = [case.id for case in cases]
    result = save(result, ids, before, store, mode=mode, reason="meant")
    return result, store.load(before.accelerator).cases


def measured(*findings):
    return make_result(
        [make_measurement(case, STEPS, flops=10**6) for case in (ONE, TWO)], findings=findings
    )


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_a_result_notes_how_it_was_to_be_stored(store, mode):
    assert saved(store, measured(), mode=mode)[0].save_mode == mode


def test_the_operations_of_a_step_are_stored_with_its_times(store):
    _, stored = saved(store, measured())

    assert [stored[case.id].flops for case in (ONE, TWO)] == [10**6, 10**6]


def test_a_case_that_was_not_launched_is_not_stored(store):
    nothing = Measurement(case=ONE, launches=(), failures=())

    result, stored = saved(store, make_result([nothing, make_measurement(TWO, STEPS)]))

    assert stored.keys() == {TWO.id}
    assert result.saved.keys() == {TWO.id}


def test_cases_that_were_not_requested_are_neither_stored_nor_refused(store):
    result, stored = saved(store, measured(), cases=(TWO,))

    assert stored.keys() == {TWO.id}
    assert result.not_saved == {}


def test_an_invalid_case_does_not_prevent_storing_others(store):
    result, stored = saved(store, measured(make_finding(ONE, Outcome.INVALID)))

    assert stored.keys() == {TWO.id}
    assert result.not_saved == {ONE.id: Refused(reason="the measurement is INVALID")}


def test_no_file_is_written_if_every_case_is_refused(store):
    invalid = [make_finding(case, Outcome.INVALID) for case in (ONE, TWO)]

    result, _ = saved(store, measured(*invalid))

    assert result.saved == {}
    assert store.accelerators() == []


@pytest.mark.parametrize(
    ("sessions", "mode", "appended"),
    [(0, "append", True), (4, "append", False), (5, "append", True), (4, "accept", True)],
    ids=["the first", "while the level is set", "once the level is set", "accepted"],
)
def test_a_regression_is_not_appended_while_it_would_move_the_level(
    store, sessions, mode, appended
):
    slower = make_finding(ONE, Outcome.REGRESSION)

    result, _ = saved(store, measured(slower), stored=sessions, mode=mode)

    assert (ONE.id in result.saved) is appended
    assert TWO.id in result.saved
    if not appended:
        assert "the first 5 sessions set the level" in result.not_saved[ONE.id].reason


@pytest.mark.parametrize("outcome", [Outcome.SUSPECT, Outcome.INCONCLUSIVE, Outcome.IMPROVEMENT])
def test_every_other_verdict_is_appended(store, outcome):
    result, stored = saved(store, measured(make_finding(ONE, outcome)), stored=3)

    assert ONE.id in result.saved
    assert len(stored[ONE.id].sessions) == 4


@pytest.mark.parametrize(("sessions", "appended"), [(4, False), (5, True)])
def test_a_regression_of_a_metric_is_not_appended_while_its_own_level_is_set(
    store, sessions, appended
):
    """Eight sessions are stored, and the metric was added later than the first of them."""
    slower = make_finding(ONE, Outcome.REGRESSION, metric="energy")
    without = [make_session(STEPS, day=day) for day in range(1, 9 - sessions)]
    later = [make_session(STEPS, day=day, energy=1.0) for day in range(9 - sessions, 9)]
    stored = make_case_baseline(ONE, *without, *later)
    before = make_baseline({ONE.id: stored})

    result = save(measured(slower), [ONE.id], before, store, mode="append", reason=None)

    assert (ONE.id in result.saved) is appended
