"""How torch's versions and builds differ, and what it computes by."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.torch_version import TorchVersion

from ddp_perf.torch_compat import (
    cudnn_version,
    flight_recorder_variable,
    numerics,
    set_tf32,
)


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


@pytest.mark.parametrize(
    ("version", "variable"),
    [
        ("2.6.0+cu118", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.7.1", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.8.0", "TORCH_FR_BUFFER_SIZE"),
        ("2.13.0+cu130", "TORCH_FR_BUFFER_SIZE"),
    ],
)
def test_the_flight_recorder_is_sized_by_the_name_that_the_version_reads(
    monkeypatch, version, variable
):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))

    assert flight_recorder_variable() == variable


def test_cudnn_is_asked_for_its_version_without_a_device(monkeypatch):
    def refuse():
        raise AssertionError("asks the GPUs")

    monkeypatch.setattr(torch.backends.cudnn, "version", refuse)
    monkeypatch.setattr(
        torch._C, "_cudnn", SimpleNamespace(getVersionInt=lambda: 91900), raising=False
    )

    assert cudnn_version() == "91900"


def test_a_torch_without_cudnn_has_no_version_of_it(monkeypatch):
    monkeypatch.delattr(torch._C, "_cudnn", raising=False)

    assert cudnn_version() is None
