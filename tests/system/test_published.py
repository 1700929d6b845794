"""Published baselines in the real items, on replayed machines, with rows of the tables."""

from __future__ import annotations

import datetime
import re
import shutil
import textwrap

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from tests.builders import FakeLauncher, make_capacity, make_gpu_machine, make_launch
from tests.projects import REPOSITORY, make_bare_project

# "DDP Scaling Benchmark Experiments", Results Summary: milliseconds by GPUs and batch per GPU.
STEPS_MS = {(1, 256): 7.60, (2, 256): 41.40, (1, 4096): 99.77, (2, 4096): 114.24}
# superbench-results, 2x V100-PCIE-32GB: bytes a second on the bus, by bytes of an all-reduce. Of
# two ranks the bus carries each byte once.
BUS = {16 * 2**20: 11.59e9, 128 * 2**20: 11.68e9, 2**30: 11.68e9}
# "DDP 2-GPU Benchmark Results", Speedup Analysis: samples a second by GPUs.
SAMPLES = {1: 250, 2: 444}
# NVIDIA DeepLearningExamples, ResNet-50 v1.5, Training performance: images a second of 1 and of 8
# GPUs by GPU and precision.
IMAGES = {
    ("NVIDIA A100-SXM4-80GB", "tf32"): {1: 938, 8: 7248},
    ("NVIDIA A100-SXM4-80GB", "fp16"): {1: 2470, 8: 16621},
    ("Tesla V100-SXM2-16GB", "fp32"): {1: 367, 8: 2855},
    ("Tesla V100-SXM2-16GB", "fp16"): {1: 1200, 8: 8322},
    ("Tesla V100-SXM2-32GB", "fp32"): {1: 356, 8: 2766},
    ("Tesla V100-SXM2-32GB", "fp16"): {1: 1156, 8: 8056},
}
SUITE_OF = {"tf32": "resnet50_tf32", "fp32": "resnet50_fp32", "fp16": "resnet50_amp"}
V100_16GB, V100_32GB = "Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"
A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"


def published_step_s(case, gpu):
    if case.collective is not None:
        return case.collective.calls * case.collective.payload / BUS[case.collective.payload]
    if case.workload == "mlp":
        return STEPS_MS[case.world_size, case.batch_size] / 1e3
    rates = SAMPLES if case.workload == "distilbert" else IMAGES[gpu, case.precision]
    return case.samples_per_step / rates[case.world_size]


@pytest.fixture
def machine(pytester, monkeypatch):
    """``machine(gpu, suite, wanted, …)`` measures a suite on such GPUs, its rows as published."""
    make_bare_project(pytester, monkeypatch)
    # The answers have another structure than the shipped suites.
    figures = shutil.ignore_patterns("structure", "work")
    shutil.copytree(REPOSITORY / "baselines", pytester.path / "baselines", ignore=figures)

    def run(gpu, suite, wanted, *arguments, slower=None, by=1.3, ranks="2"):
        def answer(request):
            case = request.case
            factor = by if case.id == slower else 1.0
            return make_launch(case, request.round, step_s=published_step_s(case, gpu) * factor)

        config = REPOSITORY / "bench_configs" / f"{suite}.yaml"
        monkeypatch.setenv("COLUMNS", "400")  # no line is wrapped at a path of this machine
        capacity = make_capacity(make_gpu_machine(*[gpu] * int(ranks.rpartition(",")[2])))
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: capacity)
        monkeypatch.setattr(
            "ddp_perf.session.measure.machine.ServerLauncher", lambda: FakeLauncher(answer)
        )
        return pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", wanted, f"--ddp-config={config}"),
            *("--ddp-world-sizes", ranks, *arguments),
        )

    return run


LARGE = "all_reduce and (16MiB or 128MiB or 1GiB)"
TARGETS = f"test_target and {LARGE}"


def test_the_documents_own_figures_are_green_on_its_machine(machine):
    done = machine(V100_16GB, "mlp_scaling", "test_target", "-v", ranks="1,2")

    done.assert_outcomes(passed=6, deselected=22)
    assert "6 targets: 6 met (throughput target, efficiency target)" in done.stdout.str()


def test_a_machine_30_percent_slower_than_its_document_is_red_and_names_the_row(machine):
    done = machine(
        V100_16GB, "mlp_scaling", "test_target", slower="mlp-ddp-fp32-ws2-b4096", ranks="1,2"
    )

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (4, 2)
    shown = " ".join(done.stdout.str().split())
    assert "MISSES TARGET: throughput target of mlp-ddp-fp32-ws2-b4096" in shown
    assert (
        "at least 71,710 samples/s was published for this GPU (DDP Scaling Benchmark Experiments"
        " (EXPERIMENTS.md of the project ddp_scaling_benchmark), Results Summary, which does not"
        " state model.num_layers, optimizer, loss; 15% less is allowed); measured 55,161 samples/s"
    ) in shown
    assert "MISSES TARGET: efficiency target of mlp-ddp-fp32-ws2-b4096" in shown


def test_a_first_session_that_is_announced_is_green_by_its_targets(machine):
    done = machine(
        V100_16GB, "mlp_scaling", "test_target or test_step_time", "--save-baseline", ranks="1,2"
    )

    assert done.ret == 0
    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["skipped"]) == (6, 4)


def test_a_machine_whose_one_rank_is_faster_than_its_document_passes_a_strict_session(machine):
    """Its efficiency is lower for that alone, on each night."""
    fast = {"slower": "mlp-none-fp32-ws1-b4096", "by": 0.7}
    strict = ("--ddp-strict", "--ddp-expect-devices=2", "--save-baseline")

    done = machine(V100_16GB, "mlp_scaling", "test_target", *strict, ranks="1,2", **fast)

    assert (done.ret, done.parseoutcomes()["passed"]) == (0, 6)


def test_a_stored_session_excuses_no_missed_figure(machine):
    wanted, slow = "test_target or test_step_time", "mlp-none-fp32-ws1-b4096"
    machine(V100_16GB, "mlp_scaling", wanted, "--save-baseline", slower=slow, ranks="1,2")

    done = machine(V100_16GB, "mlp_scaling", wanted, slower=slow, ranks="1,2")

    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*MISSES TARGET: throughput target of mlp-none-fp32-ws1-b4096*"])


def test_bandwidths_that_others_measured_without_a_framework_are_met(machine):
    done = machine(V100_32GB, "collectives", TARGETS)

    assert done.parseoutcomes()["passed"] == 3


def test_an_all_reduce_of_less_than_half_the_bandwidth_misses_it(machine):
    """Pairs that cross sockets carry about half of what a pair on one switch does."""
    done = machine(V100_32GB, "collectives", TARGETS, slower="all_reduce-ws2-128MiB", by=2.2)

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (2, 1)
    done.stdout.fnmatch_lines(["*MISSES TARGET: bus bandwidth target of all_reduce-ws2-128MiB*"])
    assert "results-summary-v100.json" in done.stdout.str()


@pytest.mark.parametrize("gpu", ["Tesla V100-SXM2-32GB", "NVIDIA L4"])
def test_another_gpu_has_neither_the_targets_nor_a_baseline(machine, gpu):
    done = machine(gpu, "collectives", f"(test_target or test_step_time) and {LARGE}")

    done.assert_outcomes(failed=3, deselected=done.parseoutcomes()["deselected"])
    assert "NO_BASELINE: step time" in done.stdout.str()
    assert "published" not in done.stdout.str()


@pytest.mark.parametrize(("gpu", "precision"), IMAGES)
def test_the_rows_of_nvidias_resnet50_are_green_on_their_machines(machine, gpu, precision):
    done = machine(gpu, SUITE_OF[precision], "test_target", "-v", ranks="1,8")

    assert done.parseoutcomes()["passed"] == 3
    assert "3 targets: 3 met (throughput target, efficiency target)" in done.stdout.str()


def test_an_a100_30_percent_slower_than_nvidias_is_red_and_names_the_row(machine):
    slow = "resnet50-ddp-tf32-ws8-b256-cudnn_benchmark-nvidia"
    done = machine(A100, "resnet50_tf32", "test_target", ranks="1,8", slower=slow)

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (1, 2)
    shown = " ".join(done.stdout.str().split())
    assert f"MISSES TARGET: throughput target of {slow}" in shown
    assert (
        "at least 7,248 samples/s was published for this GPU (NVIDIA DeepLearningExamples,"
        " PyTorch/Classification/ConvNets/resnet50v1.5 README, Training performance: NVIDIA DGX"
        " A100 (8x A100 80GB), which does not state batch_size, model.channels_last,"
        " gradient_accumulation, data; 15% less is allowed); measured 5,575 samples/s"
    ) in shown


def test_two_t4_as_fast_as_their_document_are_green(machine):
    done = machine(T4, "distilbert_agnews", "test_target", ranks="1,2")

    assert "failed" not in done.parseoutcomes()
    assert done.parseoutcomes()["passed"] == 4  # the suite's own efficiency: also of new batches


def test_a_t4_30_percent_slower_than_its_document_is_red_and_names_the_row(machine):
    slow = "distilbert-ddp-fp16-ws2-b32"
    done = machine(T4, "distilbert_agnews", "test_target", ranks="1,2", slower=slow)

    assert done.parseoutcomes()["failed"] == 2
    shown = " ".join(done.stdout.str().split())
    assert f"MISSES TARGET: throughput target of {slow}" in shown
    assert "at least 444 samples/s was published for this GPU (DDP 2-GPU Benchmark" in shown


DAYS = {  # what the nightly job adds on two such GPUs, or on eight
    "V100-PCIE-16GB": (V100_16GB, "mlp_scaling", "1,2", "v100-pcie-16gb"),
    "T4": (T4, "distilbert_agnews", "1,2", "t4"),
    "A100-SXM4-80GB": (A100, "resnet50_tf32", "1,8", "a100-sxm4-80gb"),
}


@pytest.mark.parametrize("name", DAYS)
def test_the_first_two_days_of_a_known_gpu(machine, pytester, file_regression, name):
    gpu, suite, ranks, key = DAYS[name]
    strict = ("--ddp-strict", f"--ddp-expect-devices={ranks[-1]}")

    first = machine(gpu, suite, "", "--save-baseline", *strict, ranks=ranks)
    _a_day_later(pytester.path / "baselines", key)
    second = machine(gpu, suite, "", "--save-baseline=append", *strict, ranks=ranks)

    assert (first.ret, second.ret) == (0, 0)
    shown = "\n".join(_summary(done, pytester.path) for done in (first, second))
    file_regression.check(shown, encoding="utf-8")


def _a_day_later(directory, key):
    """Move the stored sessions a day into the past."""

    def earlier(baseline):
        text = msgspec.json.encode(baseline).decode()
        for date in {session.date for case in baseline.cases.values() for session in case.sessions}:
            before = datetime.datetime.fromisoformat(date) - datetime.timedelta(days=1)
            text = text.replace(date, before.isoformat())
        return msgspec.json.decode(text, type=type(baseline))

    BaselineStore(directory).update(key, earlier)


def _summary(done, path):
    """Return what a session ends with, without the table of pytest-benchmark, paths and dates."""
    text = done.stdout.str()
    text = text[re.search(r"^=+ \S+ on ", text, re.MULTILINE).start() :]
    text = text.replace(f"{path}/", "").replace(f"{REPOSITORY}/", "").replace(" -k ''", "")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-11-24 02:10 UTC", text)
    text = re.sub(r" in \d+\.\d\ds", "", text)
    text = re.sub(r"(?m)^=+( .* )=+$", lambda title: title[1].center(80, "="), text)
    # The page is of a project in git, whose code can be run again.
    text = re.sub(r"(?m)^ *the code of this session cannot be run again .*\n", "", text)
    return "\n".join(map(_wrapped, text.splitlines())) + "\n"


def _wrapped(line):
    """Return the line in 80 columns, as a terminal has it; a row of a table stays as it is."""
    begin = re.match(" *", line)[0]
    if "   " in line.strip() or line.startswith("─"):
        return line.rstrip()
    return textwrap.fill(line, 80, subsequent_indent=f"{begin}  ", break_on_hyphens=False)
