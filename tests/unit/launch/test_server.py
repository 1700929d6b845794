"""The state of a server before it forks ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from ddp_perf.launch.server import has_opened_cuda


@pytest.mark.parametrize(
    ("opened", "is_cuda"),
    [
        ("/dev/nvidia-uvm", True),  # by cuInit, whoever called it
        ("/dev/nvidiactl", False),  # by NVML, too
        ("/dev/null", False),
    ],
)
def test_cuda_in_a_server_is_found_by_its_open_device(tmp_path, opened, is_cuda):
    (tmp_path / "0").symlink_to("pipe:[7]")
    (tmp_path / "9").symlink_to(opened)

    assert has_opened_cuda(tmp_path) is is_cuda


def test_this_process_has_not_opened_cuda():
    assert not has_opened_cuda()


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ < "2.7", reason="FSDP2 of this torch imports the compiler")
def test_what_a_server_imports_before_its_preload_leaves_the_compiler_alone():
    """With a torch for CUDA the import of the compiler may ask for a device."""
    code = (
        "import sys, ddp_perf.launch.supervisor.supervise, ddp_perf.workloads.workload;"
        " sys.exit('torch._dynamo' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
