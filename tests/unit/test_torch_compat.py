"""torch uses the number formats that were set, whichever of its switches a workload uses.

Each state of the switches is set in a process of its own: torch cannot return to its initial state.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.torch_version import TorchVersion

from ddp_perf.torch_compat import (
    cudnn_version,
    flight_recorder_variable,
    ieee_products,
    numerics,
    recompile_reason,
    set_tf32,
)

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
HAS_NEW_SWITCHES = hasattr(torch.backends.cuda.matmul, "fp32_precision")  # from 2.9 on
needs_new_switches = pytest.mark.skipif(
    not HAS_NEW_SWITCHES, reason="torch before 2.9 has only the older switches"
)


# The line of a workload → the switch of products on a GPU afterwards, and the reported precision.
CHOICES = {
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": ("tf32", "high"),
    "set_tf32(False); torch.backends.cuda.matmul.fp32_precision = 'tf32'": ("tf32", "high"),
    "torch.backends.fp32_precision = 'tf32'": ("tf32", "high"),
    "torch.set_float32_matmul_precision('medium')": ("tf32", "high"),
    "torch.backends.cuda.matmul.allow_tf32 = True": ("tf32", "high"),
    "set_tf32(False)": ("ieee", "highest"),
    "pass": ("none", "highest"),
}
LINES = {
    **{
        f"tf32 {allowed}": f"""
set_tf32({allowed})
read = numerics()
cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
with cudnn.flags(enabled=True):
    pass
print(read.matmul_precision, read.convolution_tf32, cudnn.allow_tf32, cuda.matmul.allow_tf32)
"""
        for allowed in (False, True)
    },
    **{
        f"recurrent {allowed}": f"""
set_tf32({allowed})
cudnn = torch.backends.cudnn
print(*[layer.fp32_precision == "tf32" for layer in (cudnn.conv, cudnn.rnn)])
"""
        for allowed in (False, True)
    },
    **{
        choice: f"""
{choice}
for device, backend in (("cuda", torch.backends.cuda), ("cpu", torch.backends.mkldnn)):
    with ieee_products(torch.device(device)):
        assert backend.matmul.fp32_precision == "ieee"
print(torch.backends.cuda.matmul.fp32_precision, numerics().matmul_precision)
"""
        for choice in CHOICES
    },
}
_EACH_IN_A_FORK = """
import json, os, sys
import torch
from ddp_perf.torch_compat import ieee_products, numerics, set_tf32
torch.cuda.get_allocator_backend = lambda: "native"  # a torch without CUDA has none
for name, code in json.load(sys.stdin).items():
    if (child := os.fork()) == 0:
        print(name, end="\t")
        try:
            exec(code)
        except RuntimeError as error:
            print("raised:", str(error).splitlines()[0])
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def printed():
    """The output of each of LINES by its name, or the error that torch raised.

    Before 2.9 only those are run that use the older switches.
    """
    done = subprocess.run(
        [sys.executable, "-c", _EACH_IN_A_FORK],
        input=json.dumps(
            {
                name: code
                for name, code in LINES.items()
                if HAS_NEW_SWITCHES or name.startswith("tf32 ")
            }
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("\t") for line in done.stdout.splitlines())


@pytest.mark.parametrize(("allowed", "products"), [(False, "highest"), (True, "high")])
def test_numerics_reads_tf32_as_set_and_torch_rejects_no_switch(printed, allowed, products):
    """transformers enters ``cudnn.flags()``, and Inductor reads ``cudnn.allow_tf32``."""
    assert printed[f"tf32 {allowed}"] == f"{products} {allowed} {allowed} {allowed}"


@needs_new_switches
@pytest.mark.parametrize("allowed", [False, True])
def test_recurrent_layers_use_the_format_of_convolutions(printed, allowed):
    assert printed[f"recurrent {allowed}"] == f"{allowed} {allowed}"


@needs_new_switches
@pytest.mark.parametrize("choice", CHOICES)
def test_ieee_products_restores_the_switches_of_a_workload(printed, choice):
    """Otherwise a workload that uses the newer switches would fail its launch at the end."""
    assert printed[choice] == " ".join(CHOICES[choice])


def test_numerics_reads_what_a_workload_changed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)

    assert numerics().cudnn_benchmark


@pytest.fixture
def older_torch(monkeypatch):
    """A torch before 2.9, whose switches apply to the whole process."""
    chosen = SimpleNamespace(products="highest")
    cudnn = SimpleNamespace(allow_tf32=True, benchmark=False)
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
    monkeypatch.setattr(torch.backends, "cuda", SimpleNamespace(matmul=SimpleNamespace()))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: chosen.products)
    monkeypatch.setattr(
        torch, "set_float32_matmul_precision", lambda to: setattr(chosen, "products", to)
    )
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    return chosen


@pytest.mark.parametrize(("allowed", "products"), [(False, "highest"), (True, "high")])
def test_numerics_uses_the_switches_of_an_older_torch(older_torch, allowed, products):
    set_tf32(allowed)

    assert (numerics().matmul_precision, numerics().convolution_tf32) == (products, allowed)


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_ieee_products_restores_the_switch_of_an_older_torch(older_torch, device):
    older_torch.products = "medium"

    with ieee_products(device):
        assert older_torch.products == "highest"
    assert older_torch.products == "medium"


@pytest.mark.parametrize(
    ("version", "variable"),
    [
        ("2.6.0+cu118", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.7.1", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.8.0", "TORCH_FR_BUFFER_SIZE"),
        ("2.13.0+cu130", "TORCH_FR_BUFFER_SIZE"),
    ],
)
def test_flight_recorder_variable_is_the_name_that_the_version_reads(
    monkeypatch, version, variable
):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))

    assert flight_recorder_variable() == variable


def test_cudnn_version_uses_no_device(monkeypatch):
    def refuse():
        raise AssertionError("this would use the GPUs")

    monkeypatch.setattr(torch.backends.cudnn, "version", refuse)
    monkeypatch.setattr(
        torch._C, "_cudnn", SimpleNamespace(getVersionInt=lambda: 91900), raising=False
    )

    assert cudnn_version() == "91900"


def test_cudnn_version_is_none_without_cudnn(monkeypatch):
    monkeypatch.delattr(torch._C, "_cudnn", raising=False)

    assert cudnn_version() is None


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [(SimpleNamespace(recompile_reason="a size"), "a size"), (SimpleNamespace(), None)],
    ids=["recorded", "2.6"],
)
def test_the_reason_of_a_recompilation_is_none_where_torch_records_none(attempt, reason):
    assert recompile_reason(attempt) == reason
