"""What torch is told to compute by is what it says it computes by."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.torch_compat import numerics, set_tf32


@pytest.fixture(autouse=True)
def native_allocator(monkeypatch):
    """A torch without CUDA has none to ask. TF32 is off again afterwards."""
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    yield
    set_tf32(False)


@pytest.mark.parametrize(("allowed", "products"), [(False, "highest"), (True, "high")])
def test_tf32_is_read_back_as_it_was_set_in_products_and_convolutions(allowed, products):
    set_tf32(allowed)

    read = numerics()

    assert (read.matmul_precision, read.convolution_tf32) == (products, allowed)
    assert (read.cudnn_benchmark, read.allocator) == (False, "native")


def test_what_a_workload_changed_is_read_back_too(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)

    assert numerics().cudnn_benchmark
