"""Launches of every kind, each with a witness in its ranks who notes what others could reach."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.faults.matrix import Tried
from tests.faults.witness import NOTES, open_to_others, seen_by_ranks
from tests.projects import REPOSITORY

_LAUNCHES = """
tier: cpu
world_sizes: [2]
batch_sizes: [16]
steps: 8
warmup: 2
launches: 2
"""
_SCRIPT = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.faults.witness import look

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(torch.randn(20_000, 8), batch_size=4)
for number, batch in enumerate(loader):
    if number == 1:
        look()
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""
_BENCH = """
import runpy

from ddp_perf.workloads import mlp
from tests.faults import witness

mlp.build = witness.watching(mlp.build)
runpy.run_module("ddp_perf.bench", run_name="__main__", alter_sys=True)
"""
_FILES = {
    "pytest.ini": "[pytest]\naddopts = -p ddp_perf.plugin -p no:cacheprovider\n",
    "bench_configs/ours.yaml": f"suite: ours\nworkload: ours:build\n{_LAUNCHES}",
    "scripts.yaml": f"suite: scripts\nscript: train.py\nargs: ['{{batch_size}}']\n{_LAUNCHES}",
    "hosts.yaml": "launcher: ssh\nhosts: [a, b]\nnode_shell: env NODE={node} sh -c\n"
    "nnodes: 2\nnproc_per_node: 1\nrdzv_endpoint: 127.0.0.1:PORT\n",
    "ours.py": "from tests.faults.witness import build\n",
    "train.py": _SCRIPT,
    "bench.py": _BENCH,
}
_COMMAND = ("-c", "from ddp_perf.cli.app import app; app()")
_PYTEST = ("-m", "pytest", "-m", "perf and cpu", "--ddp-launches=1", "--ddp-budget=0")
# Wide and long: it is decided by its first pairs on a machine as slow as any.
_DUEL = (*_COMMAND, "duel", "--tolerance=0.9", "--budget=10m")
_SMALL = (
    "--device=cpu",
    "--epochs=1",
    "--steps-per-epoch=6",
    "--warmup-steps=2",
    "--batch-size=32",
    "--input-dim=64",
    "--hidden-dim=64",
    "--output-dim=8",
)


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of launch, and the arguments of Python that start it."""

    words: str
    arguments: tuple[str, ...]


KINDS = {
    "session": Launched(words="a session", arguments=_PYTEST),
    "script": Launched(
        words="a script's session", arguments=(*_PYTEST, "--ddp-config=scripts.yaml")
    ),
    "hosts": Launched(words="two hosts in one", arguments=(*_PYTEST, "--ddp-cluster=hosts.yaml")),
    "duel": Launched(words="a duel of commits", arguments=(*_DUEL, "HEAD")),
    "command": Launched(words="a duel of a command", arguments=(*_DUEL, "command: {command}")),
    "bench": Launched(
        words="torchrun",
        arguments=("-m", "torch.distributed.run", "--nproc_per_node=2", "bench.py", *_SMALL),
    ),
}


def play(path: Path, kind: str, umask: int) -> Tried:
    """Launch in an empty directory, and gather what the ranks saw."""
    launched = KINDS[kind]
    _make_project(path)
    printed = _launch(path, launched, umask)
    seen = tuple(seen_by_ranks(path / "notes"))
    # Two ranks always listen, but those that only count: without a socket the witness was blind.
    looked = sum(bool(one.sockets) for one in seen) >= 2
    found = {what for one in seen for what in (*one.exposed, *one.open_to_others)}
    return Tried(
        fault="another user or host seeks a way into a launch",
        where=f"{launched.words}, umask {umask:04o}",
        seen="nothing" if looked else printed,
        kept="ports are on loopback, temporary files and the cache closed",
        survived=looked,
        leaked=tuple(sorted({*found, *open_to_others(path / "cache")})),
    )


def _make_project(path: Path) -> None:
    for name in ("bench_configs", "notes", "temporary", "cache"):
        (path / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, text in _FILES.items():
        (path / name).write_text(text.replace("PORT", str(port)), encoding="utf-8")
    shutil.copy(REPOSITORY / "tests/perf/test_perf.py", path)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init"], ["add", "*.*"], [*author, "commit", "-m", "a"]):
        subprocess.run(["git", *command], cwd=path, check=True, capture_output=True)


def _launch(path: Path, launched: Launched, umask: int) -> str:
    inherited = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, *launched.arguments],
        cwd=path,
        env={
            **inherited,
            NOTES: str(path / "notes"),
            "TMPDIR": str(path / "temporary"),
            "XDG_CACHE_HOME": str(path / "cache"),
        },
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout
