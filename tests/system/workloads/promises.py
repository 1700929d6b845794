"""A workload that notes what its server must not have, and where the launch listens."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from ddp_perf.workloads import mlp

_LISTEN = "0A"  # st of /proc/net/tcp


def build(context, *, note):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        if step == 4:
            server = os.getppid()
            found = {
                "threads": len(os.listdir(f"/proc/{server}/task")),
                "server": _listening(server),
                "rank": _listening(os.getpid()),
            }
            Path(f"{note}{context.rank}").write_text(json.dumps(found), encoding="utf-8")
        return workload.loss(module, batch)

    return replace(workload, loss=loss)


def _listening(pid):
    """Return the addresses, as the kernel writes them, at which a process listens."""
    links = (os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink())
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text(encoding="utf-8").splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == _LISTEN and row[9] in inodes]
