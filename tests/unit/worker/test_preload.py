"""What a server imports before it forks ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddp_perf.system.gpu.gpus import find_gpus

SCRIPT = """
import sys
from ddp_perf.worker.preload import preload

preload([])
before = set(sys.modules)
import torch

parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
optimizer.zero_grad()
parameter.sum().backward()
optimizer.step()
later = len(sys.modules.keys() - before)
sys.exit(later > 20 and f"{later} modules in the first step")
"""


@pytest.mark.skipif(bool(find_gpus().gpus), reason="a server must not ask for the GPU")
def test_a_rank_on_a_cpu_imports_no_compiler_in_its_first_step():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
