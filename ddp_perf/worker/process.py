"""The process of one rank: it measures or counts, and tears down in an order without deadlocks."""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import FileStore, Store, TCPStore

import ddp_perf
from ddp_perf.core.launch import LaunchRequest, RankResult
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import DdpPerfError, LaunchError, NeedsGpuError
from ddp_perf.system.host.network import is_loopback
from ddp_perf.torch_compat import flight_recorder_entries
from ddp_perf.worker.counting.count import count_step
from ddp_perf.worker.loopback import store_on_loopback
from ddp_perf.worker.process_group import let_nccl_report, measure_in_group
from ddp_perf.worker.rank_context import Examination, RankStart, is_peer_lost
from ddp_perf.worker.rank_setup import set_up_rank
from ddp_perf.worker.report import (
    LAUNCH_VARIABLE,
    RankChannels,
    RankDone,
    RankError,
    RankFiles,
    RankTimed,
)
from ddp_perf.worker.script.count import count_script
from ddp_perf.worker.script.measure import measure_script
from ddp_perf.worker.script.run import end_children

# The states of a rank's collectives, reported also while the rank hangs in one of them.


def answer_questions(supervisor: Connection) -> None:
    """Start a thread that sends the flight recorder's entries whenever the supervisor asks.

    The thread sleeps in a read until then, so it takes no time from the steps. It can run while
    the main thread waits in a collective, because that wait releases the GIL.
    """
    threading.Thread(target=_answer, args=(supervisor,), name="recorder", daemon=True).start()


def _answer(supervisor: Connection) -> None:
    while True:
        try:
            supervisor.recv_bytes()
        except EOFError:
            return
        initialized = dist.is_initialized()
        entries = flight_recorder_entries() if initialized else []
        supervisor.send_bytes(msgspec.json.encode(entries))


# The process of one rank: it measures or counts, and tears down in an order without deadlocks.


# Frames of these are not the user's: this package, torch, and what imports or runs a module.
_MACHINERY = (
    *(f"{module.__path__[0]}{os.sep}" for module in (ddp_perf, torch, importlib)),
    runpy.__file__,
    "<frozen ",
)
# The address of a socket has at most 107 bytes, and its name in the directory has 18.
_LONGEST_DIRECTORY = 107 - len("/listener-12345678")
_LONGEST_TEXT = 20_000  # characters of an error
_LAUNCH = "ddp_perf.launch"  # key of the store between nodes


def run_rank(request: LaunchRequest, channels: RankChannels, parent: int) -> NoReturn:
    """Measure as the freshly forked rank of the environment, send one Report, and exit.

    It exits without unwinding. ``parent`` is the pid of its supervisor.
    """
    reports, directory, rank = channels.reports, channels.directory, int(os.environ["RANK"])
    set_up_rank(RankFiles(directory=directory, rank=rank), parent)
    answer_questions(channels.questions)
    _keep_sockets_in(directory)

    def deliver(result: RankResult, *, whole: bool = False) -> None:
        reports.send_bytes(msgspec.json.encode(RankTimed(result=result, whole=whole)))

    examination = Examination(deliver)

    def end(work: Callable[[], RankResult]) -> NoReturn:
        _end_with(lambda: RankDone(result=work(), left=examination.left), request, reports)

    def start() -> RankStart:
        return RankStart(
            rank=rank,
            local_rank=int(os.environ["LOCAL_RANK"]),
            heartbeats=channels.heartbeats,
            store=meet(request, directory),
            examination=examination,
        )

    let_nccl_report(request)
    if request.case.script is None:
        end(lambda: measure_in_group(request, start()))
    end(lambda: measure_script(request, start(), directory=directory / "scratch", end=end))


def meet(request: LaunchRequest, directory: Path) -> Store:
    """Return where the ranks meet: in a file of their node, or at the port of the first of several.

    Rank 0 listens at that port. The others wait for it. Raises LaunchError if it cannot, or if the
    ranks of another launch meet there.
    """
    case = request.case
    if case.nodes == 1:
        return FileStore(str(directory / "store"), case.world_size)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_first, own = os.environ["RANK"] == "0", os.environ[LAUNCH_VARIABLE]
    # The supervisor, whose deadline is earlier, names the rank that does not come.
    patience = datetime.timedelta(seconds=2 * case.schedule.start_deadline_s)
    try:
        if is_first and is_loopback(host):
            store = store_on_loopback(host, port, patience=patience)
        else:
            store = TCPStore(
                host, port, is_master=is_first, wait_for_workers=False, timeout=patience
            )
    except (OSError, RuntimeError) as error:
        if not is_first:
            raise
        raise LaunchError(f"rank 0 cannot listen at {host}:{port}: {error}") from None
    if is_first:
        store.set(_LAUNCH, own)
    elif store.get(_LAUNCH).decode() != own:
        raise LaunchError(
            f"the ranks of another launch meet at {host}:{port}: give one of both sessions another"
            " rdzv_endpoint in its cluster file"
        )
    return store


def _keep_sockets_in(directory: Path) -> None:
    """Let multiprocessing use the directory of the launch, which is removed however ranks end.

    It would make one in the temporary directory, as for a DataLoader's workers, and remove it when
    the interpreter shuts down, which no rank does.
    """
    if len(os.fsencode(directory)) <= _LONGEST_DIRECTORY:
        process: Any = multiprocessing.current_process()
        process._config["tempdir"] = str(directory)


def count_as_rank(request: CountRequest, channels: RankChannels, parent: int) -> NoReturn:
    """Count as the freshly forked rank of the environment, send one Report, and exit.

    It exits without unwinding. ``parent`` is the pid of its supervisor.
    """
    set_up_rank(RankFiles(directory=channels.directory, rank=request.rank), parent)
    _keep_sockets_in(channels.directory)

    def end(count: Callable[[], StepWork]) -> NoReturn:
        _end_with(lambda: RankCounted(work=count()), request, channels.reports)

    heartbeats, scratch = channels.heartbeats, channels.directory / "scratch"
    if request.case.script is None:
        end(lambda: count_step(request, heartbeats))
    end(lambda: count_script(request, heartbeats=heartbeats, directory=scratch, end=end))


def _end_with(
    work: Callable[[], RankDone | RankCounted],
    request: LaunchRequest | CountRequest,
    reports: Connection,
) -> NoReturn:
    """Report what ``work`` returns, or its error, and end the process.

    It ends by ``os._exit``, because torch may hang or abort when the interpreter shuts down after
    a process group was used.
    """
    code = 1
    try:
        try:
            # First of all, also if PYTHONPATH has them: the working directory may be another
            # checkout.
            paths = request.import_paths
            sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
            reports.send_bytes(msgspec.json.encode(work()))
            code = 0
        except BaseException as error:  # noqa: BLE001 – even SystemExit is a report; the process ends below
            reports.send_bytes(msgspec.json.encode(rank_error(error)))
        if request.case.script is not None:
            end_children()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # whatever a script did to its output, or the supervisor to the connection
        os._exit(code)


def rank_error(error: BaseException) -> RankError:
    """Return what a rank reports of an error that it is handling."""
    code = None
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    return RankError(
        detail=_shortened(_detail(error)),
        traceback="" if isinstance(error, DdpPerfError) else _shortened(traceback.format_exc()),
        user_frames="" if isinstance(error, DdpPerfError) else _shortened(_user_frames(error)),
        at=time.monotonic(),
        peer_lost=is_peer_lost(error),
        exit_code=code,
        needs_gpu=isinstance(error, NeedsGpuError),
    )


def _shortened(text: str) -> str:
    """Return the text, or its beginning: the message of an error may have a whole tensor."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… [{len(text) - _LONGEST_TEXT:,} more characters]"


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
