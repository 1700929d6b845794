"""Published baselines through the real items, on replayed machines and the tables' own rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builders import FakeLauncher, make_capacity, make_gpu_machine, make_launch

REPOSITORY = Path(__file__).parents[2]
# "DDP Scaling Benchmark Experiments", Results Summary: milliseconds by GPUs and batch per GPU.
STEPS_MS = {(1, 256): 7.60, (2, 256): 41.40, (1, 4096): 99.77, (2, 4096): 114.24}
V100_PCIE = "Tesla V100-PCIE-16GB"


@pytest.fixture
def machine(pytester, monkeypatch):
    """``machine(gpu, slower)`` runs test_throughput on two such GPUs, its rows as published."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shutil.copytree(REPOSITORY / "tests" / "perf", pytester.path / "tests")
    shutil.copytree(REPOSITORY / "baselines", pytester.path / "baselines")
    config = REPOSITORY / "bench_configs" / "mlp_scaling.yaml"
    pytester.makeini(
        """
        [pytest]
        addopts = -p ddp_perf.plugin --import-mode=importlib
        filterwarnings =
            error
            ignore::pytest.PytestAssertRewriteWarning
        """
    )

    def run(gpu, slower=None, *arguments):
        def answer(request):
            case = request.case
            step_ms = STEPS_MS[case.world_size, case.batch_size]
            factor = 1.3 if case.id == slower else 1.0
            return make_launch(case, request.round, step_s=step_ms * factor / 1e3)

        capacity = make_capacity(make_gpu_machine(gpu, gpu))
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: capacity)
        monkeypatch.setattr(
            "ddp_perf.plugin.session.ForkserverLauncher", lambda: FakeLauncher(answer)
        )
        return pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", "test_throughput", f"--ddp-config={config}"),
            *("--ddp-world-sizes", "1,2", *arguments),
        )

    return run


def test_its_own_rows_meet_the_published_baseline(machine):
    done = machine(V100_PCIE)

    done.assert_outcomes(passed=4, deselected=16)
    assert done.stdout.str().count("MEETS PUBLISHED: step time") == 4


def test_a_row_that_is_30_percent_slower_is_below(machine):
    done = machine(V100_PCIE, "mlp-ddp-fp32-ws2-b4096")

    done.assert_outcomes(passed=3, failed=1, deselected=16)
    done.stdout.fnmatch_lines(["*BELOW PUBLISHED: step time of mlp-ddp-fp32-ws2-b4096*"])
    assert "EXPERIMENTS.md" in done.stdout.str()


def test_another_form_of_the_gpu_is_incomparable_and_names_the_nearest(machine):
    done = machine("Tesla V100-SXM2-16GB")

    done.assert_outcomes(failed=4, deselected=16)
    assert "the baseline is of v100-pcie-16gb, this is v100-sxm2-16gb" in done.stdout.str()


def test_another_gpu_has_no_baseline(machine):
    done = machine("NVIDIA L4")

    done.assert_outcomes(failed=4, deselected=16)
    assert "NO_BASELINE: step time" in done.stdout.str()


def test_saving_turns_a_missed_figure_into_this_machines_own(machine):
    machine(V100_PCIE, "mlp-ddp-fp32-ws2-b4096", "--save-baseline").assert_outcomes(
        passed=3, skipped=1, deselected=16
    )
