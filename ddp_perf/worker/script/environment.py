"""The environment that torchrun gives a script: its variables, and a store to meet at."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from torch.distributed import Store, TCPStore

from ddp_perf.core.case import Case
from ddp_perf.worker.report import STACK_SIGNAL
from ddp_perf.worker.script.patching import patched

_LOOPBACK = "127.0.0.1"
_PORT = "port"  # key of the store


def set_torchrun_variables(case: Case, rank: int, store: Store) -> Store:
    """Set the variables that torchrun sets beside those of the rank, and return the store to keep.

    Rank 0 makes the store that a script's ``env://`` meets at. As under torchrun's agent, each
    rank of the script is a client of it, so no port has to be guessed. ``store`` tells the others
    its port. Collective.
    """
    if rank == 0:
        meeting = _loopback_store()
        store.set(_PORT, str(meeting.port))
    else:
        meeting = TCPStore(_LOOPBACK, int(store.get(_PORT)), is_master=False)
    os.environ |= {
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(meeting.port),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(case.world_size),
        "TORCHELASTIC_RUN_ID": str(meeting.port),  # of no other launch at the same time
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": "",
    }
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(case.threads_per_rank))
    return meeting


def _loopback_store() -> TCPStore:
    """Return a store that other hosts cannot reach: by itself it listens on all interfaces."""
    listener = socket.create_server((_LOOPBACK, 0))
    port: int = listener.getsockname()[1]
    return TCPStore(
        _LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
        use_libuv=False,  # which takes no listener in torch 2.6
    )


@contextlib.contextmanager
def stack_signal_kept() -> Iterator[None]:
    """Keep the signal by which a rank that hangs shows its stack, if the script sets a handler."""

    def unless_kept(original: Callable[..., Any], number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == STACK_SIGNAL else original(number, handler)

    with patched(signal, "signal", unless_kept):
        yield
