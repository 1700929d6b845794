"""The report of a sweep: its settings, and the lines that make the best one the suite's own."""

from __future__ import annotations

from ddp_perf.duel.sweep.halving import sweep_result
from ddp_perf.duel.sweep.report import build_sweep
from ddp_perf.render.terminal import report_text
from tests.builders import RUNTIME
from tests.unit.duel.sweep.sweeps import PlayedMachine, run_sweep


def test_the_text(monkeypatch, file_regression):
    machine = PlayedMachine(
        lambda case: {5: 0.9, 10: 0.97, 25: 1.0}[case.training.ddp.bucket_cap_mb],
        broken=lambda case: case.env.get("OMP_NUM_THREADS") == "2",
    )
    monkeypatch.setattr("time.monotonic", machine.clock)
    knobs = ["bucket_cap_mb=5,10", "OMP_NUM_THREADS=1,2", "NCCL_ALGO=Ring,Tree"]

    run, _ = run_sweep(machine, *knobs, budget_s=60.0, seed=1)

    result = sweep_result(run, began="", wall_s=60.0, runtime=RUNTIME)
    text = report_text(build_sweep(result), 80)
    file_regression.check(text, extension=".txt", encoding="utf-8")
