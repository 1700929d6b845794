"""The memory of a rank by formula, against figures that were computed by hand."""

from __future__ import annotations

import pytest

from ddp_perf.stats.hardware import layers_of, rank_memory

PSI = 7e9
GB = 1e9


def test_ddp_with_adam_keeps_sixteen_bytes_for_each_parameter():
    memory = rank_memory(PSI, 8, "ddp")

    assert memory.states == 112 * GB
    assert (memory.copies, memory.update, memory.host) == (0, 28 * GB, 0)
    assert memory.peak == 140 * GB  # the lists of the optimizer's step, beside all states


def test_ddp_with_sgd_keeps_eight():
    memory = rank_memory(PSI, 8, "ddp", optimizer="sgd")

    assert (memory.states, memory.peak) == (56 * GB, 56 * GB)


def test_half_precision_keeps_half_copies_of_the_weights_and_all_states():
    memory = rank_memory(PSI, 8, "ddp", half=True)

    assert (memory.states, memory.copies) == (112 * GB, 14 * GB)


@pytest.mark.parametrize(
    ("sharding", "half", "states", "copies", "host"),
    [
        pytest.param("zero2", False, 14, 28 + 0.875, 0, id="ZeRO-2"),
        pytest.param("zero2", True, 14, 14 + 0.875, 0, id="ZeRO-2, half"),
        pytest.param("zero3", False, 14, 2.625, 0, id="ZeRO-3"),  # 3 × 28 GB ÷ 32 layers
        pytest.param("zero3", True, 14, 1.75, 0, id="ZeRO-3, half"),  # gradients in FP32
        pytest.param("offload", True, 0, 1.75, 14, id="offload"),
    ],
)
def test_fsdp_keeps_a_part_of_the_states_on_each_of_8_ranks(sharding, half, states, copies, host):
    memory = rank_memory(PSI, 8, sharding, half=half)

    assert memory.states == states * GB
    assert memory.copies == pytest.approx(copies * GB)
    assert memory.host == host * GB


def test_activations_are_beside_gathered_parameters_and_not_beside_the_optimizers_step():
    small = rank_memory(PSI, 8, "zero3", activations=0.1 * GB)
    large = rank_memory(PSI, 8, "zero3", activations=50 * GB)

    assert small.peak == pytest.approx((14 + 3.5) * GB)  # the update's lists are larger
    assert small.at_peak == {"states": 14 * GB, "lists of the optimizer's step": 3.5 * GB}
    assert large.peak == pytest.approx((14 + 2.625 + 50) * GB)
    assert large.at_peak == {
        "states": 14 * GB,
        "copies of parameters": pytest.approx(2.625 * GB),
        "activations": 50 * GB,
    }


@pytest.mark.parametrize(("parameters", "layers"), [(1e3, 12), (124e6, 12), (7e9, 32), (1e12, 96)])
def test_layers_are_those_of_the_nearest_gpt_3(parameters, layers):
    assert layers_of(parameters) == layers
