"""One script through each launcher: its ranks do what forks of a server do."""

from __future__ import annotations

import contextlib
import socket

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.engines.machine import UserCommand
from ddp_perf.launch.engines.slurm import SlurmEngine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.unit.duel.script_cases import make_script_case

SCRIPT = """
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sizes import WIDTH

dist.init_process_group("gloo")
print("rank", dist.get_rank(), "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(WIDTH, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(4, WIDTH)).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def script_request(tmp_path_factory):
    """A launch of two ranks of a script that imports its neighbour."""
    root = tmp_path_factory.mktemp("project")
    (root / "jobs").mkdir()
    (root / "jobs" / "train.py").write_text(SCRIPT, encoding="utf-8")
    (root / "jobs" / "sizes.py").write_text("WIDTH = 16\n", encoding="utf-8")
    suite = {"script": "jobs/train.py", "world_sizes": [2], "steps": 8, "warmup": 2}
    case = make_script_case(**suite, start_deadline_s=60, step_deadline_s=30)
    return LaunchRequest(case=case, round=0, import_paths=(str(root),), probe_steps=4)


@pytest.fixture(scope="module")
def forked(script_request):
    """A launch of a command, whose ranks are forks of a server in it."""
    return launched(ServerLauncher(UserCommand("env SIDE=there {command}")), script_request)


def launched(launcher, request):
    with contextlib.closing(launcher):
        outcome = launcher.launch(request)
    assert isinstance(outcome, LaunchResult), str(outcome)
    return outcome


def check_alike(outcome, forked):
    for rank, same in zip(outcome.ranks, forked.ranks, strict=True):
        assert (rank.structure, rank.script, rank.flops) == (
            same.structure,
            same.script,
            same.flops,
        )
        assert rank.probe is not None
        assert len(rank.warmup_s) == len(same.warmup_s)


@pytest.mark.slow
def test_a_server_that_a_command_starts_runs_it_with_its_neighbour(forked):
    first, second = forked.ranks

    assert first.script.micro_steps == (2, 2)
    assert [one.bytes for one in first.structure.collectives] == [544, 544]
    assert (first.structure, first.script) == (second.structure, second.script)
    assert first.digest == second.digest


def over_two_nodes(request, engine):
    case = msgspec.structs.replace(request.case, nodes=2)
    return launched(ServerLauncher(engine), msgspec.structs.replace(request, case=case))


@pytest.mark.slow
def test_two_hosts_run_it_in_one_group(script_request, forked, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    engine = Hosts(["a", "b"], node_shell="env NODE={node} sh -c", endpoint=endpoint)
    request = msgspec.structs.replace(script_request, output=str(tmp_path))

    outcome = over_two_nodes(request, engine)

    check_alike(outcome, forked)
    assert [rank.placement.node for rank in outcome.ranks] == [0, 1]
    assert (tmp_path / "rank1.out").read_text() == "rank 1 of 2 --batch-size 64\n"


def test_two_nodes_of_slurm_run_it_in_one_group(cluster, script_request, forked):
    outcome = over_two_nodes(script_request, SlurmEngine(nodes=2, gpus_per_node=8, on_wait=print))

    check_alike(outcome, forked)
    assert [rank.placement.node for rank in outcome.ranks] == [0, 1]
