"""Published baselines in the real items, on replayed machines, with rows of the tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builders import FakeLauncher, make_capacity, make_gpu_machine, make_launch

REPOSITORY = Path(__file__).parents[2]
# "DDP Scaling Benchmark Experiments", Results Summary: milliseconds by GPUs and batch per GPU.
STEPS_MS = {(1, 256): 7.60, (2, 256): 41.40, (1, 4096): 99.77, (2, 4096): 114.24}
# superbench-results, 2x V100-PCIE-32GB: bytes a second on the bus, by bytes of an all-reduce. Of
# two ranks the bus carries each byte once.
BUS = {16 * 2**20: 11.59e9, 128 * 2**20: 11.68e9, 2**30: 11.68e9}
V100_16GB, V100_32GB = "Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"


def published_step_s(case):
    if case.collective is not None:
        return case.collective.calls * case.collective.payload / BUS[case.collective.payload]
    return STEPS_MS[case.world_size, case.batch_size] / 1e3


@pytest.fixture
def machine(pytester, monkeypatch):
    """``machine(gpu, suite, …)`` runs test_throughput on two such GPUs, its rows as published."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shutil.copytree(REPOSITORY / "tests" / "perf", pytester.path / "tests")
    # The answers have another structure than the shipped suites.
    figures = shutil.ignore_patterns("structure", "work")
    shutil.copytree(REPOSITORY / "baselines", pytester.path / "baselines", ignore=figures)
    pytester.makeini(
        """
        [pytest]
        addopts = -p ddp_perf.plugin --import-mode=importlib
        filterwarnings =
            error
            ignore::pytest.PytestAssertRewriteWarning
        """
    )

    def run(gpu, suite, wanted, *arguments, slower=None):
        def answer(request):
            case = request.case
            factor = 1.3 if case.id == slower else 1.0
            return make_launch(case, request.round, step_s=published_step_s(case) * factor)

        config = REPOSITORY / "bench_configs" / f"{suite}.yaml"
        capacity = make_capacity(make_gpu_machine(gpu, gpu))
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: capacity)
        monkeypatch.setattr(
            "ddp_perf.session.measure.launchers.ForkserverLauncher", lambda: FakeLauncher(answer)
        )
        return pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", wanted, f"--ddp-config={config}"),
            *("--ddp-world-sizes", "1,2" if suite == "mlp_scaling" else "2", *arguments),
        )

    return run


LARGE = "test_throughput and all_reduce and (16MiB or 128MiB or 1GiB)"


def test_published_figures_of_stated_work_are_met(machine):
    done = machine(V100_32GB, "collectives", LARGE)

    assert done.parseoutcomes()["passed"] == 3
    assert done.stdout.str().count("MEETS PUBLISHED: step time") == 3


def test_a_measurement_30_percent_slower_is_below_published(machine):
    done = machine(V100_32GB, "collectives", LARGE, slower="all_reduce-ws2-128MiB")

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (2, 1)
    done.stdout.fnmatch_lines(["*BELOW PUBLISHED: step time of all_reduce-ws2-128MiB*"])
    assert "results-summary-v100.json" in done.stdout.str()


def test_published_figures_of_inferred_work_are_shown_and_never_gate(machine):
    """The machine of document 000 is red at its first run, like one without a published figure."""
    done = machine(V100_16GB, "mlp_scaling", "test_throughput or test_scaling_efficiency")
    shown = done.stdout.str()

    assert done.parseoutcomes()["failed"] == 6
    assert "PUBLISHED:" not in shown
    assert "NO_BASELINE: step time of mlp-none-fp32-ws1-b4096" in shown
    assert "published: 99.77 ms a step" in shown
    assert "published: 87 % efficiency" in shown
    assert "the document does not state model.num_layers, optimizer, loss" in shown


def test_another_form_of_the_gpu_is_incomparable_with_the_nearest_file(machine):
    done = machine("Tesla V100-SXM2-32GB", "collectives", LARGE)

    assert done.parseoutcomes()["failed"] == 3
    assert "the baseline is of v100-pcie-32gb, this is v100-sxm2-32gb" in done.stdout.str()


def test_another_gpu_has_no_baseline(machine):
    done = machine("NVIDIA L4", "mlp_scaling", "test_throughput")

    done.assert_outcomes(failed=4, deselected=20)
    assert "NO_BASELINE: step time" in done.stdout.str()
    assert "published:" not in done.stdout.str()


def test_saving_turns_a_missed_figure_into_this_machines_own(machine):
    done = machine(
        *(V100_32GB, "collectives", LARGE, "--save-baseline"), slower="all_reduce-ws2-128MiB"
    )

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["skipped"]) == (2, 1)


def test_saving_at_the_first_run_leaves_no_red_item(machine):
    wanted = "test_throughput or test_scaling_efficiency"
    done = machine(V100_16GB, "mlp_scaling", wanted, "--save-baseline")

    assert "failed" not in done.parseoutcomes()
