"""What a server imports before it forks ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddp_perf.worker.rank_setup import may_have_gpu, preload

SCRIPT = """
import sys
from ddp_perf.worker.rank_setup import preload

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


@pytest.mark.skipif(may_have_gpu(), reason="a server must not ask for the GPU")
def test_a_rank_on_a_cpu_imports_no_compiler_in_its_first_step():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("built", "driver", "imports"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_a_server_leaves_the_compiler_to_its_ranks_where_it_may_ask_for_a_gpu(
    monkeypatch, built, driver, imports
):
    imported = []
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: built)
    monkeypatch.setattr("os.path.exists", lambda path: driver and path == "/dev/nvidiactl")
    monkeypatch.setattr("importlib.import_module", imported.append)

    preload([])

    assert ("torch._dynamo" in imported) is imports
