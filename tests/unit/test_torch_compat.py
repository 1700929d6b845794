"""torch computes by what it was asked to, whichever of its switches a workload uses.

Each state of the switches is made in a process of its own: there is no way back to where torch
began.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ddp_perf.torch_compat import ieee_products, numerics, set_tf32

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
HAS_NEW_SWITCHES = hasattr(torch.backends.cuda.matmul, "fp32_precision")  # from 2.9 on
needs_new_switches = pytest.mark.skipif(
    not HAS_NEW_SWITCHES, reason="torch before 2.9 has the older switches alone"
)


# What a workload may say → what products on a GPU are then set to, and what is reported of them.
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
torch.cuda.get_allocator_backend = lambda: "native"  # a torch without CUDA has none to ask
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
    """What each of LINES prints, by its name; what torch raised, where it did."""
    done = subprocess.run(
        [sys.executable, "-c", _EACH_IN_A_FORK],
        input=json.dumps(LINES),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("\t") for line in done.stdout.splitlines())


@pytest.mark.parametrize(("allowed", "products"), [(False, "highest"), (True, "high")])
def test_tf32_is_read_back_as_it_was_set_and_torch_rejects_nothing(printed, allowed, products):
    """transformers enters ``cudnn.flags()``, and Inductor reads ``cudnn.allow_tf32``."""
    assert printed[f"tf32 {allowed}"] == f"{products} {allowed} {allowed} {allowed}"


@needs_new_switches
@pytest.mark.parametrize("allowed", [False, True])
def test_recurrent_layers_compute_by_what_convolutions_do(printed, allowed):
    assert printed[f"recurrent {allowed}"] == f"{allowed} {allowed}"


@needs_new_switches
@pytest.mark.parametrize("choice", CHOICES)
def test_the_control_keeps_whatever_a_workload_chose_and_it_is_read_back(printed, choice):
    """A workload that uses the newer switches must not fail its launch after the last step."""
    assert printed[choice] == " ".join(CHOICES[choice])


def test_what_a_workload_changed_is_read_back_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)

    assert numerics().cudnn_benchmark


@pytest.fixture
def older_torch(monkeypatch):
    """A torch before 2.9: its switches are those of the whole process."""
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
def test_an_older_torch_is_set_and_read_by_the_switches_that_it_has(older_torch, allowed, products):
    set_tf32(allowed)

    assert (numerics().matmul_precision, numerics().convolution_tf32) == (products, allowed)


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_the_control_keeps_an_older_torchs_choice(older_torch, device):
    older_torch.products = "medium"

    with ieee_products(device):
        assert older_torch.products == "highest"
    assert older_torch.products == "medium"
