"""GPUs as CUDA would show them, and the name of their baseline file."""

from __future__ import annotations

import pynvml
import pytest

from ddp_perf.system.gpus import NO_GPUS, accelerator_slug, find_gpus, visible_gpus
from tests.builders import make_gpu_machine, make_gpus


@pytest.mark.parametrize(
    ("mask", "indices"),
    [
        pytest.param(None, [0, 1, 2, 3], id="unset shows all"),
        pytest.param("", [], id="empty hides all"),
        pytest.param("2", [2], id="one"),
        pytest.param("3,0", [3, 0], id="order is kept"),
        pytest.param(" 1 , 2", [1, 2], id="blanks"),
        pytest.param("0,9,1", [0], id="an invalid index ends the list"),
        pytest.param("-1,0", [], id="-1 hides all"),
        pytest.param("0,none,1", [0], id="a word ends the list"),
        pytest.param("GPU-2abc-0000", [2], id="UUID"),
        pytest.param("GPU-3,GPU-1", [3, 1], id="UUID prefixes"),
        pytest.param("GPU-,0", [], id="an ambiguous prefix ends the list"),
        pytest.param("GPU-7,0", [], id="an unknown UUID ends the list"),
    ],
)
def test_the_mask_is_read_as_cuda_reads_it(mask, indices):
    assert [gpu.index for gpu in visible_gpus(make_gpus(4), mask)] == indices


@pytest.mark.parametrize(
    ("name", "interconnect", "slug"),
    [
        ("Tesla V100-PCIE-16GB", "pcie", "v100-pcie-16gb"),
        ("Tesla T4", "pcie", "t4"),
        ("NVIDIA A100-SXM4-40GB", "nvlink", "a100-sxm4-40gb"),
        ("NVIDIA A100-PCIE-40GB", "pcie", "a100-pcie-40gb"),
        ("NVIDIA A100-PCIE-40GB", "nvlink", "a100-pcie-40gb-nvlink"),
        ("NVIDIA GeForce RTX 4090", "pcie", "geforce-rtx-4090"),
    ],
)
def test_a_baseline_file_is_named_by_model_and_link(name, interconnect, slug):
    assert accelerator_slug(make_gpu_machine(name, name, interconnect=interconnect)) == slug


def test_a_single_gpu_is_named_by_its_model():
    assert accelerator_slug(make_gpu_machine("NVIDIA H200")) == "h200"


def test_a_mixed_machine_names_every_model_in_any_order():
    one = make_gpu_machine("Tesla T4", "NVIDIA H200", interconnect="pcie")
    other = make_gpu_machine("NVIDIA H200", "Tesla T4", interconnect="pcie")

    assert accelerator_slug(one) == accelerator_slug(other) == "h200+t4"
    assert one.name == "NVIDIA H200 + Tesla T4"


def test_without_a_driver_there_are_no_gpus(monkeypatch):
    def fail():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)

    assert find_gpus({}) == NO_GPUS


def test_a_gpu_that_fell_off_is_no_traceback_but_a_reason(monkeypatch):
    def fail():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)

    assert find_gpus({}).gpus == ()
    assert "GPU is lost" in find_gpus({}).problem


@pytest.fixture
def nvml(monkeypatch):
    """Three GPUs, handles 0 to 2; only 0 and 1 are linked. Returns the calls made."""
    calls = []

    def p2p_status(a, b, capability):
        assert capability == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        if {a, b} == {1, 2}:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        linked = {a, b} == {0, 1}
        return pynvml.NVML_P2P_STATUS_OK if linked else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED

    fakes = {
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: [9, 0],
        "nvmlDeviceGetP2PStatus": p2p_status,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(pynvml, name, fake)
    return calls


@pytest.mark.parametrize(
    ("mask", "interconnect"),
    [
        pytest.param("0,1", "nvlink", id="linked pair"),
        pytest.param("0,2", "pcie", id="unlinked pair"),
        pytest.param("1,2", "pcie", id="pair that cannot say"),
        pytest.param(None, "pcie", id="the slowest link decides"),
        pytest.param("1", None, id="one has no link"),
    ],
)
def test_the_link_is_that_of_the_visible_gpus(nvml, mask, interconnect):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}

    machine = find_gpus(environ)

    assert machine.interconnect == interconnect
    assert (machine.name, machine.driver) == ("NVIDIA H200", "570.1")
    assert nvml == ["init", "shutdown"]
