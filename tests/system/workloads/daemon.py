"""A workload that leaves a daemon behind: a process in a session of its own, without its parent."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ddp_perf.workloads import mlp


def build(context, *, note):
    shell = subprocess.run(
        ["sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    daemon = int(shell.stdout)
    Path(f"{note}-{context.rank}").write_text(
        f"{daemon} {_parent(daemon)} {_parent('self')}", encoding="utf-8"
    )
    return mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
