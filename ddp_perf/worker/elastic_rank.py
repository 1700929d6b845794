"""A rank under torchrun: ``python -m ddp_perf.worker.elastic_rank DIRECTORY``.

DIRECTORY belongs to the node process, which supervises the ranks of its node from there.
"""

from __future__ import annotations

import os
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.subject import PACKAGES
from ddp_perf.worker.rank_setup import set_up_rank
from ddp_perf.worker.report import Greeting, Heartbeats, NodeFiles, RankChannels, RankFiles


def main(directory: Path) -> NoReturn:
    """Connect to the node process, import torch, and run the rank of torchrun's environment."""
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    files = NodeFiles(directory=directory)
    # Not the parent of now: torchrun may have ended since it started this process.
    parent = int(files.torchrun.read_text(encoding="ascii"))
    set_up_rank(RankFiles(directory=directory, rank=rank), parent)
    greeting = Greeting(rank=rank, local_rank=local_rank, pid=os.getpid())
    reports, questions = (_connect(files, greeting) for _ in range(2))
    request = msgspec.json.decode(files.request.read_bytes(), type=LaunchRequest)
    with files.heartbeats.open("r+b") as shared:
        heartbeats = Heartbeats(
            request.case.ranks_per_node, file=shared.fileno(), first=rank - local_rank
        )
    # After the greeting: these imports take seconds.
    from ddp_perf.worker.process import run_to_end
    from ddp_perf.worker.rank_setup import freeze, preload

    workload = request.case.workload
    preload([workload] if workload in PACKAGES else [])
    freeze()
    run_to_end(request, RankChannels(directory, heartbeats, reports, questions), store=None)


def _connect(files: NodeFiles, greeting: Greeting) -> Connection:
    """Open a connection to the node process; the first one is for the report."""
    node = socket.socket(socket.AF_UNIX)
    with files.socket_address() as address:
        node.connect(address)
    connection = Connection(node.detach())
    connection.send_bytes(msgspec.json.encode(greeting))
    return connection


if __name__ == "__main__":
    main(Path(sys.argv[1]))
