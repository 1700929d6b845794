"""A script on a simulated GPU: CUDA is left alone until the script has chosen its GPU."""

from __future__ import annotations

import contextlib
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import HashStore

from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.worker import process_group
from ddp_perf.worker.rank_context import Examination, RankStart
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.script import measure
from ddp_perf.worker.script.run import set_torchrun_variables
from tests.builders import make_gpu
from tests.recordings import FakeNvml
from tests.unit.worker.script.scripts import Ended, destroyed_group, make_script_case

SCRIPT = """\
import os
import torch

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with two GPUs, each beside a core of its own. Notes the cores of the rank, and each
    use of CUDA with the variable that CUDA reads then."""
    gpus = tuple(make_gpu(index, name="NVIDIA H200", cores=(index,)) for index in range(2))
    FakeNvml(GpuMachine(gpus=gpus, driver="570.1")).install(monkeypatch)
    noted = SimpleNamespace(uuids=[gpu.uuid for gpu in gpus], cores=(), uses=[])

    def used(name, result=None):
        def use(*arguments):
            noted.uses.append((name, os.environ.get("CUDA_VISIBLE_DEVICES")))
            return result

        return use

    def uuid(index):
        visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return noted.uuids[int(visible[index])].removeprefix("GPU-")

    for owner, name, stand_in in (
        (torch.cuda, "_lazy_init", used("_lazy_init")),
        (torch.cuda, "set_device", used("set_device")),
        (torch.cuda, "device_count", used("device_count", 2)),
        (torch.cuda, "current_device", used("current_device", 0)),
        (torch.cuda, "get_device_name", used("get_device_name", "NVIDIA H200")),
        (torch.cuda, "device", lambda device: contextlib.nullcontext()),
        (process_group, "device_uuid", uuid),
        (process_group, "allowed_cores", lambda: noted.cores or (0, 1)),
        (os, "sched_setaffinity", lambda pid, cores: setattr(noted, "cores", tuple(cores))),
    ):
        monkeypatch.setattr(owner, name, stand_in)
    return noted


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(rank)``: the context in which a rank of SCRIPT is measured, after its first step."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(os.environ, "CUDA_VISIBLE_DEVICES", raising=False)

    def placed(request, context, steps):
        yield
        return context()

    monkeypatch.setattr(measure, "_plan", placed)

    def measured(rank):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        found = []

        def end(work):
            found.append(work())
            raise Ended

        request = LaunchRequest(case=make_script_case(tier="gpu", scratch=False), round=0)
        store = HashStore()
        first = None if rank == 0 else set_torchrun_variables(request.case, 0, store)
        start = RankStart(
            rank=rank,
            local_rank=rank,
            heartbeats=Heartbeats(2),
            store=store,
            examination=Examination(),
        )
        with destroyed_group(), pytest.raises(Ended):
            measure.measure_script(request, start, directory=tmp_path, end=end)
        del first  # the store that the other rank meets at
        return found[0]

    return measured


@pytest.mark.parametrize("rank", [0, 1])
def test_a_script_may_choose_its_gpu_before_cuda_is_used(two_gpus, run, rank):
    context = run(rank)

    assert {mask for _, mask in two_gpus.uses} == {str(rank)}  # none before the script
    assert str(context.device) == "cuda:0"
    assert context.placement.device_id == two_gpus.uuids[rank]
    assert context.placement.cuda_visible_devices == str(rank)
    assert context.placement.cores == (rank,)  # near the GPU, by NVML


def test_a_rank_of_a_script_without_a_gpu_is_refused_before_it_runs(two_gpus, run):
    with pytest.raises(LaunchError, match="rank 2 needs cuda:2, but torch sees 2 GPUs"):
        run(2)
