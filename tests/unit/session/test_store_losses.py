"""Losses and FLOPs are stored with the first session, and then changed by accept alone."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.judge_results import sessions_before
from ddp_perf.session.store_baseline import save
from tests.builders import (
    LOSSES,
    make_baseline,
    make_cases,
    make_environment,
    make_measurement,
    make_result,
)

ONE, _ = make_cases()
STEPS = (0.01, 0.0101, 0.0099)
OTHER = {step: loss / 2 for step, loss in LOSSES.items()}


class Machine:
    """Judges sessions of one case, and stores them."""

    def __init__(self, directory):
        self._store = BaselineStore(directory)
        self._day = 0

    @property
    def baseline(self):
        return self._store.load(make_baseline().accelerator)

    @property
    def stored(self):
        return self.baseline.cases[ONE.id]

    def session(self, mode, *, losses=LOSSES, flops=10**6, torch="2.13.0"):
        self._day += 1
        measured = make_measurement(ONE, STEPS, losses=losses, flops=flops)
        date = f"2026-01-{self._day:02}T03:04:05+00:00"
        environment = make_environment(torch=torch)
        return self._stored(make_result([measured], date=date, environment=environment), mode)

    def unrepeatable(self, mode):
        """Store a session whose launches have other losses each."""
        self._day += 1
        measured = make_measurement(ONE, STEPS)
        launches = tuple(
            msgspec.structs.replace(
                launch,
                ranks=tuple(
                    msgspec.structs.replace(rank, losses={"1": 1.0 + launch.round})
                    for rank in launch.ranks
                ),
            )
            for launch in measured.launches
        )
        measured = msgspec.structs.replace(measured, launches=launches)
        result = make_result([measured], date=f"2026-01-{self._day:02}T03:04:05+00:00")
        return self._stored(result, mode)

    def _stored(self, result, mode):
        before = self.baseline
        result = judge_again(result, before, baseline_path="baselines/some.json")
        return save(result, [ONE.id], before, self._store, Saving(mode=mode, reason="meant"))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_first_session_stores_the_losses(machine):
    result = machine.session("missing")

    assert machine.stored.losses == LOSSES
    assert result.is_resolved(result.finding(ONE.id, "loss"))


def test_losses_are_added_to_an_older_baseline_without_touching_its_level(machine):
    machine.session("missing", losses={}, flops=None)
    before = machine.stored

    result = machine.session("missing")

    added = machine.stored
    assert (added.losses, added.flops) == (LOSSES, 10**6)
    assert (added.sessions, added.first) == (before.sessions, before.first)
    assert result.is_resolved(result.finding(ONE.id, "loss"))
    assert "a baseline is stored already" in machine.session("missing").not_saved[ONE.id].reason


def test_other_losses_are_red_and_append_does_not_change_the_stored_ones(machine):
    machine.session("missing")

    result = machine.session("append", losses=OTHER)

    found = result.finding(ONE.id, "loss")
    assert found.verdict.outcome is Outcome.REGRESSION
    assert "loss of step 1: 0.8 → 0.4" in found.reason
    assert '--save-baseline=accept --ddp-reason "…" takes it over' in found.reason
    assert not result.is_resolved(found)
    assert machine.stored.losses == LOSSES


def test_accept_takes_other_losses_over_and_logs_the_reason(machine):
    machine.session("missing")

    result = machine.session("accept", losses=OTHER)

    assert result.is_resolved(result.finding(ONE.id, "loss"))
    assert machine.stored.losses == OTHER
    assert [entry.reason for entry in machine.stored.log] == ["meant"]


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_flops_are_counted_anew_by_another_torch_in_any_mode(machine, mode):
    machine.session("missing")
    sessions = len(machine.stored.sessions)

    upgraded = machine.session(mode, flops=7, torch="2.14.1")
    fewer = machine.session(mode, flops=6, torch="2.14.2")

    assert "torch 2.13.0 counted" in upgraded.finding(ONE.id, "structure").reason
    assert "FLOPs of a step: 7 → 6" in fewer.finding(ONE.id, "structure").reason
    assert (machine.stored.flops, machine.stored.flops_torch) == (7, "2.14.1")
    if mode == "missing":
        assert len(machine.stored.sessions) == sessions
        assert "is stored already" in fewer.not_saved[ONE.id].reason


def test_fewer_flops_are_red_until_they_are_accepted(machine):
    machine.session("missing")

    red = machine.session("append", flops=5 * 10**5)
    accepted = machine.session("accept", flops=5 * 10**5)

    found = red.finding(ONE.id, "structure")
    assert found.verdict.outcome is Outcome.REGRESSION
    assert "FLOPs of a step: 1,000,000 → 500,000" in found.reason
    assert not red.is_resolved(found)
    assert accepted.is_resolved(accepted.finding(ONE.id, "structure"))
    assert machine.stored.flops == 5 * 10**5


def test_losses_that_do_not_repeat_are_left_out_with_the_remedy(machine):
    result = machine.unrepeatable("missing")

    assert result.finding(ONE.id, "loss").verdict.outcome is Outcome.INVALID
    assert "seed what is random" in result.saved[ONE.id].without["loss"]
    assert machine.stored.losses == {}
    assert machine.stored.has_level


@pytest.mark.parametrize("stored", [LOSSES, {}], ids=["stored", "nothing stored"])
def test_a_loss_that_is_not_finite_stays_red_if_it_is_accepted(machine, stored):
    machine.session("missing", losses=stored)

    result = machine.session("accept", losses={**LOSSES, "2": None})

    found = result.finding(ONE.id, "loss")
    assert found.verdict.outcome is Outcome.REGRESSION
    assert "fix it, or set tolerances: {loss: null} in the suite file" in found.reason
    assert "takes it over" not in found.reason
    assert not result.is_resolved(found)
    assert "is NaN or infinite" in result.saved[ONE.id].without["loss"]
    assert machine.stored.losses == stored


def test_other_losses_that_do_not_repeat_stay_red_if_they_are_accepted(machine):
    machine.session("missing")

    result = machine.unrepeatable("accept")

    assert not result.is_resolved(result.finding(ONE.id, "loss"))
    assert machine.stored.losses == LOSSES


def test_losses_that_were_accepted_later_judge_no_older_session(machine):
    machine.session("missing")
    machine.session("accept", losses=OTHER)

    older = sessions_before(machine.baseline, "2026-01-02T00:00:00+00:00").cases[ONE.id]

    assert (older.losses, older.flops, len(older.sessions)) == ({}, None, 1)
