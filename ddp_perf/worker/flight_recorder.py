"""The states of a rank's collectives, reported also while the rank hangs in one of them."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import msgspec
import torch.distributed as dist

from ddp_perf.torch_compat import flight_recorder_entries


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
        entries = flight_recorder_entries(dist.get_backend()) if initialized else []
        supervisor.send_bytes(msgspec.json.encode(entries))
