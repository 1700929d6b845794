"""The operations of a step, compared with torch's own counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from ddp_perf.torch_compat import set_tf32
from ddp_perf.worker.counting.structure import FlopCounter

MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)), (8, 64)),
    "convolution": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), (2, 3, 8, 8)),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_those_of_torchs_own_counter(name):
    model, shape = MODELS[name]()
    data = torch.randn(shape)

    with FlopCounter() as ours:
        model(data).square().mean().backward()
    with FlopCounterMode(display=False) as theirs:
        model(data).square().mean().backward()

    assert ours.flops == theirs.get_total_flops() > 0


def test_a_matrix_product_counts_two_flops_for_each_multiply_add():
    with FlopCounter() as counter:
        torch.ones(3, 5) @ torch.ones(5, 7)
        torch.ones(9) + 1

    assert counter.flops == 2 * 3 * 5 * 7


@pytest.fixture
def _switches_as_before():
    products = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    yield
    set_tf32(False)  # through the older switches, after a test of the newer ones
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = convolutions


def formats_on_a_gpu(dtype):
    """The formats of a product and of a convolution, which no GPU computes here."""
    with FakeTensorMode(), FlopCounter() as counter:
        one, two = (torch.empty(4, 4, 4, device="cuda", dtype=dtype) for _ in range(2))
        torch.bmm(one, two)
        nn.functional.conv1d(one, two)
    return counter.by_format


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_parameters_in_half_precision_are_counted_in_their_own_format(dtype, name):
    assert set(formats_on_a_gpu(dtype)) == {name}


@pytest.mark.usefixtures("_switches_as_before")
def test_fp32_on_a_gpu_is_counted_by_the_switches_that_a_workload_set_last():
    set_tf32(False)
    assert set(formats_on_a_gpu(torch.float32)) == {"fp32"}
    torch.set_float32_matmul_precision("high")
    assert set(formats_on_a_gpu(torch.float32)) == {"tf32", "fp32"}
    set_tf32(True)
    assert set(formats_on_a_gpu(torch.float32)) == {"tf32"}


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="torch before 2.9 has only the older switches",
)
@pytest.mark.usefixtures("_switches_as_before")
def test_the_newer_switches_of_a_workload_count_too():
    set_tf32(False)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert set(formats_on_a_gpu(torch.float32)) == {"tf32", "fp32"}
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    convolutions.fp32_precision = "tf32"
    assert set(formats_on_a_gpu(torch.float32)) == {"tf32"}
