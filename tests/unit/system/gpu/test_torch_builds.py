"""The build of torch that set-up installs and doctor recommends."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.system.gpu.torch_builds import mismatch, torch_build
from tests.builders import make_gpu, make_gpu_machine
from tests.recordings import RECORDED, RecordedReader

VOLTA, AMPERE, HOPPER, BLACKWELL = (7, 0), (8, 0), (9, 0), (12, 0)


def machine(driver, *capabilities):
    """Return a machine with a driver for that CUDA, and a GPU of each compute capability."""
    gpus = [make_gpu(i, compute_capability=each) for i, each in enumerate(capabilities)]
    return msgspec.structs.replace(make_gpu_machine(), gpus=tuple(gpus), cuda_driver=driver)


@pytest.mark.parametrize(
    ("driver", "capabilities", "version"),
    [
        pytest.param(None, [], "2.13.0+cpu", id="no GPU"),
        pytest.param("12.4", [], "2.13.0+cpu", id="a driver and no GPU"),
        pytest.param(None, [HOPPER], "2.13.0", id="a driver that does not say"),
        pytest.param("13.0", [HOPPER], "2.13.0", id="CUDA 13"),
        pytest.param("13.2", [BLACKWELL], "2.13.0", id="a newer minor version"),
        pytest.param("14.0", [HOPPER], "2.13.0", id="a newer major version"),
        pytest.param("12.8", [HOPPER], "2.13.0+cu126", id="CUDA 12"),
        pytest.param("12.0", [HOPPER], "2.13.0+cu126", id="an older minor version"),
        pytest.param("13.0", [VOLTA], "2.13.0+cu126", id="a GPU that CUDA 13 dropped"),
        pytest.param("13.0", [VOLTA, HOPPER], "2.13.0+cu126", id="of several GPUs the oldest"),
        pytest.param("12.8", [BLACKWELL], "2.11.0+cu128", id="a GPU newer than CUDA 12.6"),
        pytest.param("11.4", [VOLTA], "2.7.1+cu118", id="CUDA 11"),
    ],
)
def test_the_build_is_the_newest_that_driver_and_gpus_can_run(driver, capabilities, version):
    build = torch_build(machine(driver, *capabilities))

    assert build.version == version
    tag = version.partition("+")[2]
    index = ["--extra-index-url", f"https://download.pytorch.org/whl/{tag}"] if tag else []
    assert build.pip_arguments == [f"torch=={version}", *index]
    assert not capabilities or mismatch(build.cuda, machine(driver, *capabilities)) is None


@pytest.mark.parametrize(
    ("driver", "capabilities"), [("10.2", [VOLTA]), ("11.4", [BLACKWELL]), ("13.0", [(3, 5)])]
)
def test_a_machine_may_have_no_build(driver, capabilities):
    assert torch_build(machine(driver, *capabilities)) is None


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_has_a_build(name):
    """Their drivers are for CUDA 12, so the default build is too new."""
    assert torch_build(RecordedReader.of(name).machine()).version == "2.13.0+cu126"


def test_a_torch_too_new_for_the_driver_is_a_misfit_with_the_build_to_install():
    assert mismatch("13.0", machine("12.8", AMPERE)).endswith(
        "; pip install torch==2.13.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126"
    )


def test_a_gpu_without_code_in_torch_is_a_misfit():
    assert mismatch("13.0", machine("13.0", AMPERE, VOLTA)).startswith(
        "torch is built for CUDA 13.0, which has no code for compute capability 7.0 (NVIDIA H200):"
        " install a torch built for CUDA 12; pip install torch==2.13.0+cu126"
    )


@pytest.mark.parametrize("torch_cuda", ["12.8", "11.8", None])
def test_a_torch_that_runs_is_no_mismatch(torch_cuda):
    assert mismatch(torch_cuda, machine("12.8", VOLTA)) is None


def test_a_mismatch_without_a_build_has_no_command():
    assert "pip install" not in mismatch("13.0", machine("10.2", VOLTA))
