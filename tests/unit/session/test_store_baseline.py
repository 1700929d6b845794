"""The cases of a session are stored or refused by their launches and verdicts."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Refused, Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.measurement import Known, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.store_baseline import save
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
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
    result = save(result, ids, before, store, Saving(mode=mode, reason="meant"))
    return result, store.load(before.accelerator).cases


def measured(*findings):
    return make_result(
        [make_measurement(case, STEPS, flops=10**6) for case in (ONE, TWO)],
        findings=findings,
        date="2026-01-20T03:04:05+00:00",
    )


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_a_result_notes_how_it_was_to_be_stored(store, mode):
    assert saved(store, measured(), mode=mode)[0].save_mode == mode


def test_the_operations_of_a_step_are_stored_with_its_times(store):
    _, stored = saved(store, measured())

    assert [stored[case.id].flops for case in (ONE, TWO)] == [10**6, 10**6]


@pytest.mark.parametrize("mode", ["append", "accept"])
def test_a_session_is_not_stored_after_a_newer_one(store, mode):
    """The clock of one of them was wrong."""
    result, after = saved(store, measured(), mode=mode, stored=21)

    assert result.saved == {}
    for case in (ONE, TWO):
        why = result.not_saved[case.id].reason
        assert why.startswith("the session of 2026-01-20T03:04:05+00:00 is older than the newest")
        assert "the clock was wrong" in why
        assert len(after[case.id].sessions) == 21


def test_a_case_that_was_not_launched_is_not_stored(store):
    nothing = Measurement(case=ONE, launches=(), failures=())

    result, stored = saved(store, make_result([nothing, make_measurement(TWO, STEPS)]))

    assert stored.keys() == {TWO.id}
    assert result.saved.keys() == {TWO.id}


def test_cases_that_were_not_requested_are_neither_stored_nor_refused(store):
    result, stored = saved(store, measured(), cases=(TWO,))

    assert stored.keys() == {TWO.id}
    assert result.not_saved == {}


def all_invalid(case):
    return [make_finding(case, Outcome.INVALID, metric=name) for name in gated_metrics(case)]


def test_an_invalid_metric_does_not_prevent_storing_others(store):
    result, stored = saved(store, measured(make_finding(ONE, Outcome.INVALID)))

    assert result.saved[ONE.id].without == {"step_time": "the measurement is INVALID: because"}
    assert stored[ONE.id].level("step_time") is None
    assert stored[ONE.id].level("peak_memory") is not None


def test_an_invalid_case_does_not_prevent_storing_others(store):
    result, stored = saved(store, measured(*all_invalid(ONE)))

    assert stored.keys() == {TWO.id}
    assert result.saved[TWO.id].without == {}
    why = Refused(reason="the measurement is INVALID: because", cause="machine")
    assert result.not_saved == {ONE.id: why}


def test_no_file_is_written_if_every_case_is_refused(store):
    invalid = [*all_invalid(ONE), *all_invalid(TWO)]

    result, _ = saved(store, measured(*invalid))

    assert result.saved == {}
    assert store.accelerators() == []


@pytest.mark.parametrize("stored", [1, 4, 5, 8])
def test_a_regression_is_stored_at_any_time_and_sets_no_level(store, stored):
    _, after = saved(store, measured(make_finding(ONE, Outcome.REGRESSION)), stored=stored)

    newest = after[ONE.id].sessions[-1]
    assert newest.verdicts == {"step_time": Outcome.REGRESSION}
    assert len(after[ONE.id].sessions) == stored + 1
    step_time, tail = (after[ONE.id].history(metric) for metric in ("step_time", "tail"))
    assert newest not in step_time.at_level
    assert (newest in step_time.informing) is (stored < 5)  # then around a level of its own
    assert newest in tail.at_level


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (Outcome.REGRESSION, True),
        (Outcome.SUSPECT, True),
        (Outcome.IMPROVEMENT, True),
        (Outcome.PASS, False),
        (Outcome.UNDECIDED, False),
        (Outcome.NO_BASELINE, False),
    ],
)
def test_a_stored_session_has_its_verdicts_where_it_was_off_the_level(store, outcome, kept):
    findings = [make_finding(ONE, outcome), make_finding(TWO, Outcome.SUSPECT, metric="tail")]

    _, after = saved(store, measured(*findings), stored=3)

    assert after[ONE.id].sessions[-1].verdicts == ({"step_time": outcome} if kept else {})
    assert after[TWO.id].sessions[-1].verdicts == {"tail": Outcome.SUSPECT}


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
@pytest.mark.parametrize("stored", [0, 3])
def test_code_with_another_structure_is_stored_only_if_it_is_accepted(store, mode, stored):
    odd = make_finding(ONE, Outcome.REGRESSION, metric="structure")

    result, after = saved(store, measured(odd), mode=mode, stored=stored)

    assert (ONE.id in result.saved) is (mode == "accept")
    if mode == "append" or (mode == "missing" and not stored):
        assert result.not_saved[ONE.id].reason == "the structure is another one: because"
        assert (ONE.id in after) is bool(stored)


def test_a_change_of_structure_is_no_verdict_on_a_level(store):
    given = make_acknowledgement(ONE, metric="structure")
    known = Known(acknowledgement=given, state="expected")
    odd = make_finding(ONE, Outcome.REGRESSION, metric="structure", known=known)

    _, after = saved(store, measured(odd), stored=3)

    assert len(after[ONE.id].sessions) == 4
    assert after[ONE.id].sessions[-1].verdicts == {}


def test_figures_with_other_losses_are_not_appended_and_can_be_accepted(store):
    """They would set the level of the times, which nobody would see."""
    red = make_finding(ONE, Outcome.REGRESSION, metric="loss", tolerance=1e-4)

    refused, stored = saved(store, measured(red), stored=5)
    accepted, _ = saved(store, measured(red), mode="accept", stored=5)

    assert "is another one: because" in refused.not_saved[ONE.id].reason
    assert len(stored[ONE.id].sessions) == 5
    assert ONE.id in accepted.saved


def test_an_accepted_session_has_no_verdict_and_begins_a_level(store):
    slower = make_finding(ONE, Outcome.REGRESSION)

    _, after = saved(store, measured(slower), stored=4, mode="accept")

    assert [session.verdicts for session in after[ONE.id].sessions] == [{}] * 5
    assert len(after[ONE.id].history("step_time").at_level) == 1


def test_an_accepted_session_of_another_machine_replaces_what_is_stored(store):
    environment = make_environment(accelerator="Another Processor", accelerator_key="other")
    before = make_baseline({ONE.id: make_case_baseline(ONE, make_session(list(STEPS)))})
    other = msgspec.structs.replace(measured(), environment=environment)

    save(other, [ONE.id], before, store, Saving(mode="accept", reason="moved"))
    store.update(before.accelerator, lambda _: before)
    save(other, [ONE.id], before, store, Saving(mode="accept", reason="moved"))

    (stored,) = [store.load(before.accelerator).cases[ONE.id]]
    assert [session.environment for session in stored.sessions] == [environment]


def test_a_red_metric_that_was_invalid_by_itself_is_not_appended(store):
    red = make_finding(ONE, Outcome.REGRESSION, ratio=1.1, by_itself=Outcome.INVALID)

    _, stored = saved(store, measured(red), stored=5)

    for metric, sessions in (("step_time", 5), ("peak_memory", 6)):
        assert len(stored[ONE.id].sessions_with(metric)) == sessions
    assert stored[ONE.id].sessions[-1].verdicts == {}


def test_a_red_session_that_was_undecided_by_itself_is_appended_as_red(store):
    red = make_finding(ONE, Outcome.REGRESSION, ratio=1.1, by_itself=Outcome.UNDECIDED)

    _, stored = saved(store, measured(red), stored=5)

    assert stored[ONE.id].sessions[-1].verdicts == {"step_time": Outcome.REGRESSION}


@pytest.mark.parametrize(("ratio", "sessions"), [(1.1, 6), (None, 5)])
def test_an_invalid_session_is_accepted_only_if_it_was_compared(store, ratio, sessions):
    """The machine changed for good: its figures are measured, and begin a new level."""
    invalid = make_finding(ONE, Outcome.INVALID, ratio=ratio)

    _, stored = saved(store, measured(invalid), mode="accept", stored=5)

    assert len(stored[ONE.id].sessions) == sessions
