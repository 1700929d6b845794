"""The memory formulas against real ranks: what a larger model adds to the peak of a rank.

The difference of two sizes is compared, since the peak on a CPU contains torch itself. The blocks
that a rank frees go back to the system at once (`MALLOC_MMAP_THRESHOLD_`): glibc would keep the
gathered parameters of FSDP, and the peak would be two to three times as large.
"""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.stats.hardware import rank_memory
from tests.builders import make_request

WIDTHS = (64, 160)  # of GPT with 12 layers, as the formula takes it: 0.6 and 3.7 million parameters


def peak_of(launcher, width, **suite):
    request = make_request(
        "gpt",
        model={
            "max_seq_len": 8,
            "vocab_size": 64,
            "d_model": width,
            "n_heads": 4,
            "num_layers": 12,
        },
        batch_sizes=[1],
        steps=4,
        warmup=2,
        start_deadline_s=60,
        step_deadline_s=60,
        env={"MALLOC_MMAP_THRESHOLD_": "65536"},
        **suite,
    )
    result = launcher.launch(msgspec.structs.replace(request, probe_steps=1))
    assert isinstance(result, LaunchResult), str(result)
    rank = max(result.ranks, key=lambda one: one.peak_memory)
    return rank.peak_memory, rank.structure.parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharding", "suite"),
    [
        pytest.param(
            "ddp", {"strategy": "ddp", "ddp": {"gradient_as_bucket_view": True}}, id="DDP"
        ),
        pytest.param(
            "zero2", {"strategy": "fsdp", "fsdp": {"reshard_after_forward": False}}, id="ZeRO-2"
        ),
        pytest.param("zero3", {"strategy": "fsdp"}, id="ZeRO-3"),
    ],
)
def test_a_larger_model_adds_what_the_formula_states(launcher, sharding, suite):
    (small, few), (large, many) = (peak_of(launcher, width, **suite) for width in WIDTHS)

    before, after = (rank_memory(count, 2, sharding) for count in (few, many))
    # On a CPU, Adam updates one parameter after the other, and needs no lists of them.
    expected = after.states + after.copies - before.states - before.copies
    print(f"{sharding}: {(large - small) / 1e6:.0f} MB measured, {expected / 1e6:.0f} by formula")
    assert large - small == pytest.approx(expected, rel=0.2)
