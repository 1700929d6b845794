"""The structures of a session are stored for any machine, whether or not its times are."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.judge_results import promote
from ddp_perf.session.store_baseline import save
from tests.builders import (
    make_baseline,
    make_cases,
    make_environment,
    make_failure,
    make_finding,
    make_launch,
    make_measurement,
    make_result,
    make_structure,
)

ONE, TWO = make_cases()
ENOUGH = (0.01, 0.0101, 0.0099)
LAUNCH = make_launch(TWO)
CHANGED = make_structure(parameters=809)


@pytest.fixture
def store(tmp_path):
    return BaselineStore(tmp_path / "baselines")


def measured(*steps_s, case=TWO, **changes):
    return make_result([make_measurement(case, steps_s, **changes)], date="2026-01-20T03:04:05")


def stored(store, result, *, mode="missing", case_ids=(ONE.id, TWO.id)):
    baseline = store.load(make_baseline().accelerator)
    return save(result, case_ids, baseline, store, Saving(mode=mode, reason="meant"))


def structures(store):
    return {case_id: one.step.structure for case_id, one in store.work.structures("quick").items()}


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_one_launch_stores_the_structure_and_no_times(store, mode):
    result = stored(store, measured(0.01), mode=mode)

    assert structures(store) == {TWO.id: make_structure()}
    assert result.saved_structures == {TWO.id: str(store.work.path("quick", None))}
    assert result.saved == {}
    assert result.not_saved[TWO.id].reason.startswith("one launch has no spread")
    assert store.accelerators() == []


def test_an_accepted_structure_is_replaced_for_any_machine_and_for_this_one(store):
    stored(store, measured(*ENOUGH))
    result = stored(store, measured(*ENOUGH, structure=CHANGED), mode="accept")

    assert structures(store) == {TWO.id: CHANGED}
    assert store.load("cpu-some-2c-host").cases[TWO.id].structure == CHANGED
    assert result.saved_structures.keys() == result.saved.keys() == {TWO.id}


def test_a_structure_is_accepted_with_one_launch_and_the_machines_sessions_keep_theirs(store):
    """They did that work, and a slow-down is explained by the change since then."""
    stored(store, measured(*ENOUGH))
    result = stored(store, measured(0.01, structure=CHANGED), mode="accept")

    assert structures(store) == {TWO.id: CHANGED}
    assert store.load("cpu-some-2c-host").cases[TWO.id].structure == make_structure()
    assert result.is_resolved(make_finding(TWO, Outcome.REGRESSION, metric="structure"))
    assert not result.is_resolved(make_finding(TWO, Outcome.REGRESSION))


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_a_changed_structure_is_not_taken_over_by_storing_a_session(store, mode):
    stored(store, measured(*ENOUGH))
    result = stored(store, measured(*ENOUGH, structure=CHANGED), mode=mode)

    assert structures(store) == {TWO.id: make_structure()}
    assert result.saved_structures == {}
    assert not result.is_resolved(make_finding(TWO, Outcome.REGRESSION, metric="structure"))


def test_a_case_with_a_level_gets_the_structure_that_it_lacks(store):
    stored(store, measured(*ENOUGH))
    store.work.path("quick", None).unlink()

    result = stored(store, measured(*ENOUGH), mode="missing")

    assert structures(store) == {TWO.id: make_structure()}
    assert "a baseline is stored already" in result.not_saved[TWO.id].reason


def test_nothing_is_written_if_the_file_states_every_structure(store):
    stored(store, measured(0.01))
    before = store.work.path("quick", None).stat()

    result = stored(store, measured(0.01), mode="append")

    assert store.work.path("quick", None).stat() == before
    assert result.saved_structures == {}


@pytest.mark.parametrize(
    "result",
    [
        make_result([Measurement(case=TWO, launches=(LAUNCH,), failures=(make_failure(TWO, 1),))]),
        make_result([Measurement(case=TWO, launches=(), failures=())]),
    ],
    ids=["a failed launch", "no launch"],
)
def test_a_case_that_was_not_measured_completely_stores_no_structure(store, result):
    assert stored(store, result).saved_structures == {}
    assert structures(store) == {}


def test_only_the_cases_of_the_request_are_stored(store):
    assert stored(store, measured(0.01), case_ids=[ONE.id]).saved_structures == {}
    assert structures(store) == {}


def test_what_another_machine_stores_is_settled_on_this_one(store):
    stored(store, measured(0.01))
    elsewhere = make_environment(accelerator_key="other")
    result = make_result([make_measurement(TWO, [0.01])], environment=elsewhere)

    judged = promote(result, store, Saving(mode="missing"))

    assert judged.finding(TWO.id, "structure").verdict.outcome is Outcome.PASS
    assert judged.finding(TWO.id, "step_time").verdict.outcome is Outcome.NO_BASELINE


def test_a_promoted_session_stores_its_structure(store):
    promoted = promote(measured(*ENOUGH), store, Saving(mode="append"))

    assert structures(store) == {TWO.id: make_structure()}
    assert promoted.is_resolved(promoted.finding(TWO.id, "structure"))
