"""The process of one node: ``python -m ddp_perf.launch.nodes.node REQUEST [--end-with-stdin]``.

It does not import torch. It starts torchrun, supervises the ranks of its node, and prints the
outcome of the node as its last line. REQUEST is a ``NodeRequest``. With ``--end-with-stdin`` it
ends as soon as its standard input is closed, which happens if its driver ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.launch.brought import contents, with_directories
from ddp_perf.launch.environment import server_environment
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.nodes.engine import END_WITH_STDIN
from ddp_perf.launch.nodes.facts import read_facts
from ddp_perf.launch.nodes.node_launch import NodeLaunch
from ddp_perf.launch.nodes.outcome import (
    NodeOutcome,
    NodeRequest,
    decode_request,
    encode_outcome,
)
from ddp_perf.launch.scratch import ScratchDirectory
from ddp_perf.launch.supervisor.output import beginnings
from ddp_perf.launch.supervisor.watch import ending_orphans
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.host.host import this_host
from ddp_perf.system.host.parent_death import adopt_orphans
from ddp_perf.system.host.termination import sigterm_calls


class _EndedError(Exception):
    """SIGTERM: the engine ends this node, since its driver or another node ended."""


def main(arguments: list[str]) -> int:
    """Run what the request asks, print the outcome, and return 1 if it is a failure."""
    adopt_orphans()
    request = decode_request(arguments[0])
    if request.launch is None:
        outcome = _description(request)
    else:
        outcome = _launched(request, request.launch, _driver(END_WITH_STDIN in arguments))
    print(encode_outcome(outcome), flush=True)
    return int(outcome.failure is not None)


def _driver(watched: bool) -> Connection:
    """Return what is closed when the driver ends: stdin, or else nothing."""
    if watched:
        return Connection(os.dup(0), writable=False)
    ours, theirs = Pipe(duplex=False)
    _OPEN.append(theirs)
    return ours


_OPEN: list[Connection] = []  # for the life of this process


def _launched(request: NodeRequest, launch: LaunchRequest, driver: Connection) -> NodeOutcome:
    scratch = ScratchDirectory()
    try:
        with sigterm_calls(_end):
            return _outcome(request, launch, scratch.path, driver)
    except (EOFError, _EndedError):
        failure = _failure(launch, "it was ended while its ranks ran")
        return NodeOutcome(facts=read_facts(request.tier), failure=failure, was_ended=True)
    except LaunchError as error:
        failure = _failure(launch, str(error))
        return NodeOutcome(facts=read_facts(request.tier), failure=failure)
    finally:
        scratch.close()


def _failure(launch: LaunchRequest, detail: str) -> LaunchFailure:
    return LaunchFailure(
        case_id=launch.case.id, round=launch.round, kind="server", rank=None, detail=detail
    )


def _end() -> NoReturn:
    raise _EndedError


def _outcome(
    request: NodeRequest, launch: LaunchRequest, directory: Path, driver: Connection
) -> NodeOutcome:
    """Run the launch with files in ``directory``, and return what the driver needs of them."""
    records, profiles = directory / "records", directory / "profiles"
    with ending_orphans(lambda: None):
        node = NodeLaunch(request, with_directories(launch, records, profiles), directory)
        failure = node.run(driver)
    printed = [] if launch.output is None else [rank.files.output for rank in node.ranks]
    return NodeOutcome(
        facts=read_facts(request.tier),
        results=() if failure is not None else node.results,
        failure=failure,
        is_symptom=node.is_symptom,
        place=node.place,
        unreachable=node.unreachable,
        output=beginnings(printed),
        records=contents(records),
        profiles=contents(profiles),
    )


def _description(request: NodeRequest) -> NodeOutcome:
    runtime = _runtime(server_environment({**os.environ, **request.environ}))
    capacity = msgspec.structs.replace(find_capacity(), node=this_host())
    return NodeOutcome(facts=read_facts(request.tier), runtime=runtime, capacity=capacity)


def _runtime(environ: Mapping[str, str]) -> Runtime | None:
    """Return the versions that ranks here run on; what went wrong is printed."""
    command = [sys.executable, "-m", "ddp_perf.launch.runtime"]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Runtime)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
