"""Run a script as torchrun and Python would: its environment, ``__main__``, and its children."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from torch.distributed import Store, TCPStore

from ddp_perf.core.case import Case
from ddp_perf.core.subject import ScriptRun
from ddp_perf.errors import ScriptError
from ddp_perf.worker.loopback import LOOPBACK, store_on_loopback
from ddp_perf.worker.report import LAUNCH_VARIABLE, STACK_SIGNAL
from ddp_perf.worker.script.hooks import patched

# Run a script as Python would: as ``__main__``, with its arguments, its folder searched first.


def script_file(run: ScriptRun, roots: Sequence[str]) -> Path | None:
    """Return the absolute path of the script in the first root that has it; None for a module.

    Raises ScriptError if none of them has it.
    """
    if run.is_module:
        return None
    for root in roots:
        if (path := Path(root) / run.script).is_file():
            return path.resolve()
    raise ScriptError(f"there is no file {run.script} in {' or '.join(roots)}")


def become_main(run: ScriptRun, file: Path | None) -> None:
    """Set the arguments, and let imports search the script's folder first, as Python does.

    Raises ScriptError if the script is a module that does not exist.
    """
    sys.argv = [run.script if file is None else str(file), *run.args]
    if file is not None:
        sys.path.insert(0, str(file.parent))
        return
    try:
        found = importlib.util.find_spec(run.script) is not None
    except ModuleNotFoundError as error:  # of a package that it is in, or that one imports
        if not f"{run.script}.".startswith(f"{error.name}."):
            raise
        found = False
    if not found:
        raise ScriptError(f"there is no module {run.script}; is it below the root of the project?")


def run_as_main(run: ScriptRun, file: Path | None) -> None:
    """Run the script to its end. What it raises, SystemExit too, is raised here."""
    with _forks_end_here():
        if file is None:
            runpy.run_module(run.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(file), run_name="__main__")


@contextlib.contextmanager
def _forks_end_here() -> Iterator[None]:
    """End processes that the script forks at its end, as Python would: they are no ranks."""
    process = os.getpid()
    code = 0
    try:
        yield
    except BaseException as error:
        if os.getpid() == process:
            raise
        code = 1
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            traceback.print_exc()
    finally:
        if os.getpid() != process:
            os._exit(code)


# The environment that torchrun gives a script: its variables, and a store to meet at.


_PORT = "port"  # key of the store


def set_torchrun_variables(case: Case, rank: int, store: Store) -> Store:
    """Set the variables that torchrun sets beside those of the rank, and return the store to keep.

    Rank 0 makes the store that a script's ``env://`` meets at. As under torchrun's agent, each
    rank of the script is a client of it, so no port has to be guessed. ``store`` tells the others
    its port; between nodes it is that store itself. Collective.
    """
    meeting = store if case.nodes > 1 else _meeting_on_this_host(rank, store)
    os.environ |= {
        "GROUP_RANK": str(rank // case.ranks_per_node),
        "GROUP_WORLD_SIZE": str(case.layout[0]),
        # Of no other launch at the same time.
        "TORCHELASTIC_RUN_ID": os.environ.get(LAUNCH_VARIABLE, os.environ["MASTER_PORT"]),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(case.world_size),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": "",
    }
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(case.threads_per_rank))
    return meeting


def _meeting_on_this_host(rank: int, store: Store) -> TCPStore:
    if rank == 0:
        meeting = store_on_loopback()
        store.set(_PORT, str(meeting.port))
    else:
        meeting = TCPStore(LOOPBACK, int(store.get(_PORT)), is_master=False)
    os.environ |= {
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(meeting.port),
    }
    return meeting


@contextlib.contextmanager
def stack_signal_kept() -> Iterator[None]:
    """Keep the signal by which a rank that hangs shows its stack, if the script sets a handler."""

    def unless_kept(original: Callable[..., Any], number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == STACK_SIGNAL else original(number, handler)

    with patched(signal, "signal", unless_kept):
        yield


# The processes that a script started by multiprocessing, as for its DataLoader.


_JOIN_S = 1.0


def end_children() -> None:
    """End them and then their tracker, which removes the names of their semaphores.

    The supervisor kills what is left, and would kill the tracker together with them.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a DataLoader raises an error for its worker
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    for child in children:
        child.join(_JOIN_S)
    tracker: Any = resource_tracker._resource_tracker
    if tracker._pid is not None:
        os.close(tracker._fd)
        _await(tracker._pid)


def _await(pid: int) -> None:
    """Wait a moment for the end of a child. It stays if another process keeps its pipe open."""
    end = time.monotonic() + _JOIN_S
    with contextlib.suppress(ChildProcessError):  # of the server
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
