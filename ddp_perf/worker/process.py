"""The process of one rank: it sets up, measures, and tears down in an order without deadlocks."""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import ddp_perf
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, RankResult
from ddp_perf.errors import DdpPerfError
from ddp_perf.system.host.parent_death import die_with_parent
from ddp_perf.torch_compat import flight_recorder_variable
from ddp_perf.worker.flight_recorder import answer_questions
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.measure import measure
from ddp_perf.worker.placement import place
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.graph import graph_stream

STACK_SIGNAL = signal.SIGUSR1
_RECORDED_COLLECTIVES = "2000"
# Frames of these are not the user's: this package, torch, and what imports a module.
_MACHINERY = (
    *(f"{module.__path__[0]}{os.sep}" for module in (ddp_perf, torch, importlib)),
    "<frozen ",
)


class RankError(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The error of a rank, as the rank itself reports it."""

    detail: str
    traceback: str
    user_frames: str = ""  # the traceback without the frames of this package and of torch
    at: float  # time.monotonic(), which is one clock for all processes of a machine
    peer_lost: bool  # the error is a symptom: another rank died
    exit_code: int | None  # of a SystemExit


class RankDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The measurements of a rank."""

    result: RankResult


Report = RankError | RankDone


class RankFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one rank in the launch's directory."""

    directory: Path
    rank: int

    @property
    def output(self) -> Path:
        return self.directory / f"rank{self.rank}.out"

    @property
    def stacks(self) -> Path:
        return self.directory / f"rank{self.rank}.stacks"


def run_rank(
    request: LaunchRequest,
    rank: int,
    directory: Path,
    heartbeats: Heartbeats,
    reports: Connection,
    questions: Connection,
    parent: int,
) -> NoReturn:
    """Run a freshly forked rank: send one Report, then exit without unwinding.

    It ends by ``os._exit``, because torch may hang or abort when the interpreter shuts down after
    a process group was used.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server ignores it
    os.setpgid(0, 0)  # so that all that this rank starts can be killed with it
    files = RankFiles(directory=directory, rank=rank)
    _redirect_output(files.output)
    stacks = files.stacks.open("w", encoding="utf-8")
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    answer_questions(questions)
    try:
        _set_environment(request.case, rank)
        sys.path[:0] = [path for path in request.import_paths if path not in sys.path]
        result = _in_process_group(request, rank, directory, heartbeats)
        reports.send_bytes(msgspec.json.encode(RankDone(result=result)))
        code = 0
    except BaseException as error:  # noqa: BLE001 – even SystemExit is a report; the process ends below
        reports.send_bytes(msgspec.json.encode(_describe(error)))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _in_process_group(
    request: LaunchRequest, rank: int, directory: Path, heartbeats: Heartbeats
) -> RankResult:
    case = request.case
    device, placement = place(case, rank, shared_gpu=request.shared_gpu)
    backend = backend_of(request)
    dist.init_process_group(
        backend,
        store=FileStore(str(directory / "store"), case.world_size),
        rank=rank,
        world_size=case.world_size,
        device_id=device if "nccl" in backend else None,  # so that no barrier has to guess
    )
    context = RankContext(rank=rank, device=device, placement=placement, heartbeats=heartbeats)
    with graph_stream(case, device):
        result = measure(request, context)
    # The model and optimizer of measure() are gone by now. A last reference to DDP that dies after
    # destroy_process_group would deadlock. There is no barrier after an error, since the other
    # ranks may be gone.
    dist.barrier()
    dist.destroy_process_group()
    return result


def backend_of(request: LaunchRequest) -> str:
    """Return the backend of the launch's process group, as torch names it."""
    case = request.case
    if case.tier == "cpu" or request.shared_gpu:  # NCCL refuses two ranks on one GPU
        return "gloo"
    # Shards in the host's memory are reduced there, which NCCL cannot do.
    offloads = case.fsdp is not None and case.fsdp.cpu_offload
    return "cpu:gloo,cuda:nccl" if offloads else "nccl"


def _redirect_output(path: Path) -> None:
    """Replace the output descriptors, to which C++ and child processes write, too."""
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _set_environment(case: Case, rank: int) -> None:
    """Set the variables that torchrun would set for the user's code, and those for torch."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(case.world_size),
        "LOCAL_WORLD_SIZE": str(case.world_size),
    }
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # one machine: never listen on a public address
    if case.tier == "cpu":
        # torch's own hooks synchronise with any visible GPU, also over gloo. Hiding GPUs works
        # here because CUDA is not initialised: the server never does it.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault(flight_recorder_variable(), _RECORDED_COLLECTIVES)


def _describe(error: BaseException) -> RankError:
    code = None
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    return RankError(
        detail=_detail(error),
        traceback="" if isinstance(error, DdpPerfError) else traceback.format_exc(),
        user_frames="" if isinstance(error, DdpPerfError) else _user_frames(error),
        at=time.monotonic(),
        peer_lost=_is_peer_lost(error),
        exit_code=code,
    )


def _user_frames(error: BaseException) -> str:
    """Return the traceback of the error and of what caused it, with the user's frames alone.

    It is empty if none of them has a frame of the user's code.
    """
    whole = traceback.TracebackException.from_exception(error)
    found, left = 0, [whole]
    while left:
        part = left.pop()
        users = [frame for frame in part.stack if not frame.filename.startswith(_MACHINERY)]
        part.stack = traceback.StackSummary.from_list(users)
        found += len(users)
        left += [cause for cause in (part.__cause__, part.__context__) if cause is not None]
    return "".join(whole.format()) if found else ""


def _detail(error: BaseException) -> str:
    """Return the text of a user's mistake; for any other error put its type before the text."""
    if isinstance(error, DdpPerfError):
        return str(error)
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _is_peer_lost(error: BaseException) -> bool:
    """Return whether a collective failed because another rank ended."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and "gloo/transport" in text.replace("\\", "/")
