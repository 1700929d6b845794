"""The texts of one case."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import Numerics, Unit, WarmUp
from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.case_text import (
    WHOLE_TRACEBACK,
    case_summary,
    describe_finding,
    describe_launch_failure,
    placement_lines,
    summary_block,
)
from ddp_perf.session.figures import case_figures
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_acknowledgement,
    make_case,
    make_collectives,
    make_failure,
    make_finding,
    make_measurement,
    make_placement,
    make_result,
)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"traceback": "Traceback …\n"}, ["Traceback …"], id="traceback"),
        pytest.param(
            {"traceback": "Traceback …\n", "user_frames": "  File …\n    loss()\n"},
            ["  File …", "    loss()", WHOLE_TRACEBACK],
            id="frames of the user",
        ),
        pytest.param(
            {"stacks": {"rank 0": "in forward\n", "rank 1": "no stack: stopped (T)"}},
            ["rank 0:", "in forward", "rank 1:", "no stack: stopped (T)"],
            id="stacks",
        ),
        pytest.param({"output": "a\nb"}, ["last output:", "a", "b"], id="output"),
    ],
)
def test_describe_launch_failure_shows_all_evidence(evidence, expected):
    failure = make_failure(make_case(), **evidence)

    assert describe_launch_failure(failure).splitlines() == [str(failure), *expected]


@pytest.mark.parametrize(
    ("outcome", "changes", "lines"),
    [
        pytest.param(
            Outcome.REGRESSION,
            {
                "ratio": 1.2345,
                "minimum_detectable": 0.034,
                "baseline_date": "2026-01-02T03:04:05+00:00",
                "changed": ("torch 2.12.0 → 2.13.0", "driver 560.1 → 570.1"),
            },
            [
                "REGRESSION: step time of mlp-ddp-fp32-ws2-b64: 1.234 × the baseline of 2026-01-02"
                " (minimum detectable: 3.4%)",
                "because",
                "changed since the baseline: torch 2.12.0 → 2.13.0, driver 560.1 → 570.1",
            ],
            id="compared",
        ),
        pytest.param(
            Outcome.NO_BASELINE,
            {"metric": "structure"},
            ["NO_BASELINE: structure of mlp-ddp-fp32-ws2-b64", "because"],
            id="without figures",
        ),
    ],
)
def test_a_finding_has_its_figures_its_reason_and_what_changed(outcome, changes, lines):
    assert describe_finding(make_finding(make_case(), outcome, **changes)).splitlines() == lines


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("expected", '"new kernel, see #12"; expected until 2026-12-31'),
        ("expired", '"new kernel, see #12"; the acknowledgement ended on 2026-12-31'),
        ("grown", "; it is another one: fix it, or acknowledge it again with ddp-perf"),
        ("over", "until 2026-12-31; the regression is over: ddp-perf baseline ack with a past"),
    ],
)
def test_a_finding_has_its_acknowledgement_with_the_reason(state, expected):
    known = Known(acknowledgement=make_acknowledgement(make_case()), state=state)
    finding = make_finding(make_case(), Outcome.REGRESSION, known=known)

    last = describe_finding(finding).splitlines()[-1]
    assert last.startswith("acknowledged on 2026-01-01: ")
    assert expected in last


def test_placement_lines_look_like_those_of_ddp_scripts():
    gpu = {"device": "cuda:1", "device_id": "GPU-1abc", "device_name": "NVIDIA A100-SXM4-40GB"}
    on_node = make_placement(3, node=1, host="b")

    of_gpu, of_cores = placement_lines([make_placement(1, **gpu, cuda_visible_devices="0,1")] * 2)
    assert of_gpu == (
        "[Rank 1] CUDA_VISIBLE_DEVICES=0,1, LOCAL_RANK=0, current_device=cuda:1,"
        " name=NVIDIA A100-SXM4-40GB, GPU-1abc"
    )
    assert "LOCAL_RANK=1" in of_cores
    first, *_, last = placement_lines([make_placement(2, node=1, host="b"), on_node])
    assert first.startswith("[Rank 2] CUDA_VISIBLE_DEVICES=unset, LOCAL_RANK=0, ")
    assert last.startswith("[Rank 3] CUDA_VISIBLE_DEVICES=unset, LOCAL_RANK=1, ")
    assert last.endswith(", cores 3, node 1 (b)")


def block_of(*launches, case=None, **rank):
    """Return the summary block of a case with these steps, by the name of each line."""
    case = case or make_case()
    measurement = make_measurement(case, list(launches) or [0.01, 0.01], **rank)
    rows = summaries_of({case.id: measurement})[case.id]
    figures = case_figures(make_result([measurement]), case.id)
    assert figures is not None
    lines = summary_block(measurement, rows, figures).splitlines()
    return {name.strip(): text for name, _, text in (line.partition(": ") for line in lines)}


def test_the_block_has_consistent_throughput_and_samples():
    """Step time, throughput and sample count of the published sample contradict one another."""
    block = block_of(0.008, 0.010, 0.012)

    config = block.pop("Config")
    assert block == {
        "=== DDP Scaling Benchmark ===": "",
        "World size": "2",
        "Device": "cpu",
        "Warmup steps": "2",
        "Measured steps": "10 / 12 in each of 3 launches",
        "Avg step time": "10.00 ms (the mean; a table has the median)",
        "Gated step": "10.00 ms (the level, without disturbances)",
        "Throughput": "12,800 samples/s",  # 2 × 64 ÷ 10 ms
        "Measured samples": "3,840",  # 2 × 64 × 10 × 3
    }
    assert "model.hidden_dim=32" in config
    assert "ddp.bucket_cap_mb=25" in config


GPU = make_case(tier="gpu")
COLLECTIVE = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])[0]
NUMERICS = Numerics(
    matmul_precision="highest", convolution_tf32=True, cudnn_benchmark=False, allocator="native"
)


@pytest.mark.parametrize(
    ("launches", "rank", "lines"),
    [
        pytest.param([0.01], {}, {"Measured steps": "10 / 12"}, id="one launch"),
        pytest.param(
            [(0.01,) * 30],
            {},
            {"Measured steps": "30, until enough were undisturbed"},
            id="a busy machine",
        ),
        pytest.param(
            [(0.01,) * steps for steps in (10, 30, 20)],
            {},
            {
                "Measured steps": "10 to 30 in each of 3 launches, until enough were undisturbed",
                "Measured samples": "7,680",  # 2 × 64 × 60
                "Throughput": "12,800 samples/s",
            },
            id="several launches",
        ),
        pytest.param(
            [0.01], {"unit": Unit(name="images")}, {"Throughput": "12,800 images/s"}, id="unit"
        ),
        pytest.param(
            [0.004],  # of four calls
            {"case": COLLECTIVE},
            {
                "=== Collective Benchmark ===": "",
                "Typical call": "1000.0 µs",
                "Algorithm bandw.": "1.049 GB/s",  # 2^20 bytes in 1 ms
                "Bus bandwidth": "1.573 GB/s",  # × 2·3/4
                "Throughput": None,
            },
            id="collective",
        ),
        pytest.param(
            [0.01],
            {"case": GPU, "extra_warmup": WarmUp(steps=40, steady=True, step_s=0.01)},
            {"Warmup steps": "2, after up to 40 until the GPUs were steady"},
            id="steady GPUs",
        ),
        pytest.param(
            [0.01],
            {"case": GPU, "extra_warmup": WarmUp(steps=40, steady=False, step_s=0.01)},
            {"Warmup steps": "2, after up to 40, and a GPU was not steady then"},
            id="unsteady GPUs",
        ),
        pytest.param(
            [0.01],
            {"numerics": NUMERICS, "energy_j": 10.0, "load": GpuLoad(sm_clock_mhz=1410)},
            {
                "Numerics": "TF32 off in products, on in convolutions; cudnn.benchmark off;"
                " allocator native",
                "Energy": "0.013 J per sample, all GPUs",
                "SM clock": "1410 MHz under load",
            },
            id="readings",
        ),
        pytest.param([0.01], {}, {"Energy": None, "SM clock": None}, id="no readings"),
    ],
)
def test_the_block_has_what_was_measured(launches, rank, lines):
    block = block_of(*launches, **rank)

    assert {name: block.get(name) for name in lines} == lines


def test_different_gpu_clocks_are_a_range():
    slow, fast = (
        make_measurement(GPU, [0.01], load=GpuLoad(sm_clock_mhz=mhz)) for mhz in (900, 1980)
    )
    launches = (*slow.launches, *fast.launches)
    measurement = msgspec.structs.replace(slow, launches=launches)
    rows = summaries_of({GPU.id: measurement})[GPU.id]

    assert "SM clock         : 900 to 1980 MHz under load" in case_summary(measurement, rows, "k")
