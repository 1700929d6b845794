"""Sequential halving on a simulated machine: what is dropped, what is kept, and how it ends."""

from __future__ import annotations

import collections

import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.sweep.halving import sweep_result
from ddp_perf.system.ledger import Entries
from tests.builders import RUNTIME, make_suite
from tests.unit.duel.sweep.sweeps import LAUNCH_S, STEP_S, PlayedMachine, make_run, run_sweep

BUCKETS = "bucket_cap_mb=1,2,5,10"
THREADS = "OMP_NUM_THREADS=1,2"


def by_bucket(case):
    """5 MiB is 10 % faster than the suite's own 25, and the further away, the slower."""
    return {1: 1.3, 2: 1.1, 5: 0.9, 10: 0.97, 25: 1.0}[case.training.ddp.bucket_cap_mb]


@pytest.fixture
def clock(monkeypatch):
    def use(machine):
        monkeypatch.setattr("time.monotonic", machine.clock)
        return machine

    return use


def result_of(run):
    return sweep_result(run, began="2026-01-02T03:04:05", wall_s=9.0, runtime=RUNTIME)


def rows_of(result):
    return {row.name: row for row in result.settings}


def test_the_best_setting_is_found_and_judged_by_the_last_rung_alone(clock):
    run, failure = run_sweep(clock(PlayedMachine(by_bucket)), BUCKETS)

    result = result_of(run)
    rows = rows_of(result)
    assert failure is None
    assert result.complete
    assert result.best == "bucket_cap_mb=5"
    assert result.verdict.outcome is DuelOutcome.FASTER
    assert result.verdict.pairs == len(run.state.of(3))
    assert rows["bucket_cap_mb=5"].ratio.ratio == pytest.approx(0.9, abs=0.01)
    assert rows["bucket_cap_mb=5"].chance > 0.99
    assert (rows["bucket_cap_mb=1"].dropped, rows["bucket_cap_mb=10"].dropped) == (1, 2)
    assert [row.name for row in result.settings][:2] == ["bucket_cap_mb=5", "bucket_cap_mb=10"]
    assert result.base_step_s == pytest.approx(STEP_S, rel=0.02)


def test_the_worse_half_is_dropped_after_each_rung_and_never_the_suites_own(clock):
    machine = clock(
        PlayedMachine(lambda case: 1.0 if case.training.ddp.bucket_cap_mb == 25 else 1.5)
    )
    run, _ = run_sweep(machine, BUCKETS)

    counts = {
        rung: {len(b.step_s) for b in run.state.blocks if b.rung == rung} for rung in (1, 2, 3)
    }
    assert counts == {1: {4}, 2: {2}, 3: {1}}
    assert all(block.base_s > 0 for block in run.state.blocks)
    assert result_of(run).best is None
    assert run.verdict.outcome is DuelOutcome.SLOWER


def test_rungs_share_the_budget(clock):
    machine = clock(PlayedMachine(noise=0.3))
    run_sweep(machine, BUCKETS, budget_s=900.0)

    launches = collections.Counter(r.round for r in machine.requests)
    of_rung = [sum(n for n in launches.values() if n == size) for size in (5, 3, 2)]
    assert machine.now <= 900.0
    assert [count * LAUNCH_S for count in of_rung[:2]] == pytest.approx([300.0, 300.0], abs=15)


def test_a_drift_of_the_machine_is_shared_by_a_block(clock):
    run, _ = run_sweep(clock(PlayedMachine(by_bucket, drift=0.5)), BUCKETS)

    assert result_of(run).best == "bucket_cap_mb=5"


def test_the_order_within_a_block_changes(clock):
    machine = clock(PlayedMachine())
    run_sweep(machine, BUCKETS)

    first = {next(r.case.id for r in machine.requests if r.round == n) for n in range(20)}
    assert len(first) > 1


def test_a_server_ends_with_the_last_setting_that_needs_it(clock):
    machine = clock(PlayedMachine(lambda case: float(case.env.get("OMP_NUM_THREADS", "3"))))
    seen = []
    run, _ = run_sweep(machine, THREADS, on_launch=lambda _: seen.append(len(machine.open)))

    assert (seen[2], seen[-1]) == (3, 2)  # the suite's own environment is kept
    assert result_of(run).best == "OMP_NUM_THREADS=1"


def test_steps_of_more_samples_are_compared_by_sample(clock):
    machine = clock(PlayedMachine(lambda case: 0.8 * case.training.gradient_accumulation))
    suite = make_suite(gradient_accumulation=1)
    run, _ = run_sweep(machine, "gradient_accumulation=2,4", suite=suite)

    row = rows_of(result_of(run))["gradient_accumulation=4"]
    assert row.ratio.ratio == pytest.approx(1, abs=0.02)


def test_a_setting_that_fails_is_not_launched_again(clock):
    machine = clock(
        PlayedMachine(by_bucket, broken=lambda case: case.training.ddp.bucket_cap_mb == 5)
    )
    run, failure = run_sweep(machine, BUCKETS)

    result = result_of(run)
    assert failure is None
    assert result.best == "bucket_cap_mb=10"
    assert rows_of(result)["bucket_cap_mb=5"].failure == "exited with code 3"
    assert sum(r.case.training.ddp.bucket_cap_mb == 5 for r in machine.requests) == 1


def test_a_sweep_of_which_everything_fails_has_no_best(clock):
    machine = clock(PlayedMachine(broken=lambda case: case.training.ddp.bucket_cap_mb != 25))
    run, _ = run_sweep(machine, BUCKETS)

    result = result_of(run)
    assert (result.best, result.verdict, result.complete) == (None, None, True)


def test_the_suites_own_setting_must_not_fail(clock):
    machine = clock(PlayedMachine(broken=lambda case: case.training.ddp.bucket_cap_mb == 25))
    run, failure = run_sweep(machine, BUCKETS)

    assert failure.detail == "exited with code 3"
    assert not result_of(run).complete


def test_a_budget_that_is_too_short_judges_nothing(clock):
    run, _ = run_sweep(clock(PlayedMachine(by_bucket)), BUCKETS, budget_s=5.0)

    result = result_of(run)
    assert (result.best, result.complete, len(run.state.blocks)) == (None, False, 1)


def test_an_interrupt_keeps_what_was_measured(clock):
    machine = clock(PlayedMachine(by_bucket))

    def interrupt(launches):
        if launches > 30:
            raise KeyboardInterrupt

    run = make_run(machine, BUCKETS)
    with pytest.raises(KeyboardInterrupt):
        run.run(on_launch=interrupt)

    result = result_of(run)
    assert not result.complete
    assert 6 <= result.base_launches <= 7
    assert len(run.log.entries) == 31


def test_a_single_setting_is_a_duel_with_the_suites_own(clock):
    run, _ = run_sweep(clock(PlayedMachine(by_bucket)), "bucket_cap_mb=10")

    assert run.state.rungs == 1
    assert result_of(run).best == "bucket_cap_mb=10"


def test_a_block_that_a_kill_ended_does_not_count(clock):
    """In the last rung its only launch may be one of the suite's own setting."""
    whole, _ = run_sweep(clock(PlayedMachine(by_bucket)), BUCKETS, seed=1)
    entries = whole.log.entries
    last = next(n for n, one in enumerate(entries) if one.phase == 3 and one.arm == "")
    for end in (last + 1, 1, len(entries) - 1):
        log = Entries()
        log.entries = entries[:end]
        machine = clock(PlayedMachine(by_bucket))

        run, _ = run_sweep(machine, BUCKETS, log=log, seed=1)

        assert result_of(run).best == "bucket_cap_mb=5"


def fails_after(launches, size):
    """Fail each launch of a bucket size once it had so many."""
    seen = collections.Counter()

    def broken(case):
        seen[case.training.ddp.bucket_cap_mb] += 1
        return case.training.ddp.bucket_cap_mb == size and seen[size] > launches

    return broken


@pytest.mark.parametrize("end", [20, 40, 60])
def test_a_sweep_goes_on_after_a_setting_failed(clock, end):
    log = Entries()

    def interrupt(launches):
        if launches == end:
            raise KeyboardInterrupt

    machine = clock(PlayedMachine(by_bucket, broken=fails_after(1, 2)))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(machine, BUCKETS, log=log, seed=1, budget_s=200.0, on_launch=interrupt)
    log.earlier = len(log.entries)

    run, _ = run_sweep(clock(machine), BUCKETS, log=log, seed=1, budget_s=200.0)

    rows = rows_of(result_of(run))
    assert result_of(run).best == "bucket_cap_mb=5"
    assert rows["bucket_cap_mb=2"].failure is not None
    assert sum(r.case.training.ddp.bucket_cap_mb == 2 for r in machine.requests) == 2


def test_a_setting_that_fails_later_brings_none_back_that_was_dropped(clock):
    first, _ = run_sweep(clock(PlayedMachine(by_bucket)), BUCKETS, seed=1)
    of_rungs = [len([one for one in first.log.entries if one.arm == "bucket_cap_mb=5"])]
    machine = clock(PlayedMachine(by_bucket, broken=fails_after(of_rungs[0] - 1, 5)))

    run, failure = run_sweep(machine, BUCKETS, seed=1)

    result = result_of(run)
    assert (result.complete, result.verdict, failure) == (True, None, None)
    assert rows_of(result)["bucket_cap_mb=10"].dropped == 2
