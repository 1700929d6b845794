"""The texts of one case."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import Numerics, Unit, WarmUp
from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.terminal.text import (
    WHOLE_TRACEBACK,
    describe_finding,
    describe_launch_failure,
    placement_lines,
    summary_block,
)
from ddp_perf.session.figures import case_figures
from ddp_perf.stats.summary import summaries_of, summarise_all
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


def test_describe_finding_shows_figures_and_the_baselines_date():
    finding = make_finding(
        make_case(),
        Outcome.REGRESSION,
        reason="slower than any session",
        ratio=1.2345,
        interval=(1.2, 1.27),
        minimum_detectable=0.034,
        baseline_date="2026-01-02T03:04:05+00:00",
    )

    assert describe_finding(finding).splitlines() == [
        "REGRESSION: step time of mlp-ddp-fp32-ws2-b64: 1.234 × the baseline of 2026-01-02"
        " (minimum detectable: 3.4%)",
        "slower than any session",
    ]


def test_describe_finding_shows_changes_since_the_baseline():
    changed = ("torch 2.12.0 → 2.13.0", "driver 560.1 → 570.1")
    finding = make_finding(make_case(), Outcome.PASS, reason="as fast", changed=changed)

    assert describe_finding(finding).splitlines()[-1] == (
        "changed since the baseline: torch 2.12.0 → 2.13.0, driver 560.1 → 570.1"
    )


def test_describe_finding_without_figures_shows_the_reason():
    finding = make_finding(make_case(), Outcome.NO_BASELINE, metric="structure", reason="none yet")

    assert describe_finding(finding) == ("NO_BASELINE: structure of mlp-ddp-fp32-ws2-b64\nnone yet")


def test_placement_lines_look_like_those_of_ddp_scripts():
    placements = [
        make_placement(
            rank,
            device=f"cuda:{rank}",
            device_id=f"GPU-{rank}abc",
            device_name="NVIDIA A100-SXM4-40GB",
            cuda_visible_devices="0,1",
        )
        for rank in (0, 1)
    ]

    assert placement_lines(placements) == [
        "[Rank 0] CUDA_VISIBLE_DEVICES=0,1, LOCAL_RANK=0, current_device=cuda:0,"
        " name=NVIDIA A100-SXM4-40GB, GPU-0abc",
        "[Rank 1] CUDA_VISIBLE_DEVICES=0,1, LOCAL_RANK=1, current_device=cuda:1,"
        " name=NVIDIA A100-SXM4-40GB, GPU-1abc",
    ]


def test_placement_lines_of_several_nodes_have_the_node_and_the_rank_on_it():
    places = [make_placement(rank, node=rank // 2, host="ab"[rank // 2]) for rank in range(4)]

    lines = placement_lines(places)

    assert ["LOCAL_RANK=0" in line for line in lines] == [True, False, True, False]
    assert [line[-10:] for line in lines] == ["node 0 (a)"] * 2 + ["node 1 (b)"] * 2


def test_placement_lines_show_an_unset_mask():
    (line,) = placement_lines([make_placement()])

    assert line.startswith("[Rank 0] CUDA_VISIBLE_DEVICES=unset, LOCAL_RANK=0, ")
    assert line.endswith(", cores 0")


def figures_of(measurement):
    figures = case_figures(make_result([measurement]), measurement.case.id)
    assert figures is not None
    return figures


def test_summary_block_has_consistent_throughput_and_samples():
    """Step time, throughput and sample count of the published sample contradict one another."""
    case = make_case()
    measurement = make_measurement(case, [0.008, 0.010, 0.012])
    rows = summarise_all(measurement.launches, samples_per_step=128, singles=())

    title, *lines = summary_block(measurement, rows, figures_of(measurement)).splitlines()

    block = {name.strip(): value for name, _, value in (line.partition(": ") for line in lines)}
    config = block.pop("Config")
    assert title == "=== DDP Scaling Benchmark ==="
    assert block == {
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


def test_summary_block_counts_the_steps_that_a_busy_machine_added():
    case = make_case()
    measurement = make_measurement(case, [(0.010,) * steps for steps in (10, 30, 20)])
    rows = summarise_all(measurement.launches, samples_per_step=128, singles=())

    block = summary_block(measurement, rows, figures_of(measurement)).splitlines()

    assert (
        "Measured steps   : 10 to 30 in each of 3 launches, until enough were undisturbed" in block
    )
    assert "Measured samples : 7,680" in block  # 2 × 64 × 60
    assert "Throughput       : 12,800 samples/s" in block


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


def test_summary_block_counts_throughput_in_the_workloads_unit():
    case, unit = make_case(), Unit(name="images")
    measurement = make_measurement(case, [0.010], unit=unit)
    rows = summarise_all(measurement.launches, samples_per_step=128, singles=())

    block = summary_block(measurement, rows, figures_of(measurement))
    assert "Throughput       : 12,800 images/s" in block


def test_summary_block_of_a_collective_shows_call_time_and_bandwidth():
    case = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])[0]
    measurement = make_measurement(case, [0.004])  # of four calls
    rows = summaries_of({case.id: measurement})[case.id]

    block = summary_block(measurement, rows, figures_of(measurement))

    assert block.startswith("=== Collective Benchmark ===")
    assert "Typical call     : 1000.0 µs" in block
    assert "Algorithm bandw. : 1.049 GB/s" in block  # 2^20 bytes in 1 ms
    assert "Bus bandwidth    : 1.573 GB/s" in block  # × 2·3/4
    assert "amples" not in block


def block_of(**rank):
    """Return the summary block of a GPU case whose ranks have these results."""
    measurement = make_measurement(make_case(tier="gpu"), [0.010, 0.010], **rank)
    rows = summarise_all(measurement.launches, samples_per_step=128, singles=())
    return summary_block(measurement, rows, figures_of(measurement)).splitlines()


@pytest.mark.parametrize(
    ("steady", "expected"),
    [
        (True, "2, after up to 40 until the GPUs were steady"),
        (False, "2, after up to 40, and a GPU was not steady then"),
    ],
)
def test_summary_block_shows_extra_warm_up_steps_of_gpus(steady, expected):
    block = block_of(extra_warmup=WarmUp(steps=40, steady=steady, step_s=0.01))

    assert f"Warmup steps     : {expected}" in block


def test_summary_block_shows_the_numerics_of_torch():
    numerics = Numerics(
        matmul_precision="highest",
        convolution_tf32=True,
        cudnn_benchmark=False,
        allocator="native",
    )

    assert (
        "Numerics         : TF32 off in products, on in convolutions; cudnn.benchmark off;"
        " allocator native" in block_of(numerics=numerics)
    )


def test_summary_block_shows_energy_per_sample_if_it_was_read():
    assert "Energy           : 0.013 J per sample, all GPUs" in block_of(energy_j=10.0)


def test_summary_block_shows_the_gpu_clock_if_it_was_read():
    assert "SM clock         : 1410 MHz under load" in block_of(load=GpuLoad(sm_clock_mhz=1410))
    assert not any("SM clock" in line for line in block_of())


def test_summary_block_shows_different_gpu_clocks_as_a_range():
    slow, fast = (
        make_measurement(make_case(), [0.01], load=GpuLoad(sm_clock_mhz=mhz)) for mhz in (900, 1980)
    )
    launches = (*slow.launches, *fast.launches)
    measurement = msgspec.structs.replace(slow, launches=launches)
    rows = summarise_all(launches, samples_per_step=128, singles=())

    block = summary_block(measurement, rows, figures_of(measurement))

    assert "SM clock         : 900 to 1980 MHz under load" in block
    assert not any(line.startswith("Energy") for line in block_of())


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("expected", '"new kernel, see #12"; expected until 2026-12-31'),
        ("expired", '"new kernel, see #12"; the acknowledgement ended on 2026-12-31'),
        (
            "over",
            "until 2026-12-31; the regression is over: ddp-perf baseline ack with a past date ends"
            " the acknowledgement",
        ),
    ],
)
def test_describe_finding_shows_the_acknowledgement_with_its_reason(state, expected):
    known = Known(acknowledgement=make_acknowledgement(make_case()), state=state)
    finding = make_finding(make_case(), Outcome.REGRESSION, known=known)

    last = describe_finding(finding).splitlines()[-1]
    assert last.startswith("acknowledged on 2026-01-01: ")
    assert expected in last


def test_placement_lines_of_several_nodes_show_the_rank_within_the_node_and_the_host():
    placements = [
        make_placement(rank, node=rank // 2, host=f"host{rank // 2}") for rank in range(4)
    ]

    lines = placement_lines(placements)

    assert ["LOCAL_RANK=0" in line for line in lines] == [True, False, True, False]
    assert [line.partition("cores ")[2] for line in lines] == [
        "0, node 0 (host0)",
        "1, node 0 (host0)",
        "2, node 1 (host1)",
        "3, node 1 (host1)",
    ]


def test_summary_block_of_one_launch_counts_its_steps_as_a_script_does():
    case = make_case()
    usual = make_measurement(case, [0.01])
    (launch,) = make_measurement(case, [0.01]).launches
    more = msgspec.structs.replace(
        launch,
        ranks=tuple(msgspec.structs.replace(r, step_s=r.step_s * 3) for r in launch.ranks),
    )
    busy = msgspec.structs.replace(usual, launches=(more,))

    shown = [
        summary_block(m, summaries_of({case.id: m})[case.id], figures_of(m)) for m in (usual, busy)
    ]

    assert "Measured steps   : 10 / 12\n" in shown[0]
    assert "Measured steps   : 30, until enough were undisturbed\n" in shown[1]
