"""What a rank's collectives have come to, told while the rank itself hangs in one of them."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import msgspec
import torch.distributed as dist

from ddp_perf.torch_compat import flight_recorder_entries


def answer_questions(supervisor: Connection) -> None:
    """Send the flight recorder's entries whenever the supervisor asks for them.

    From a thread of its own, which sleeps in a read until then: it takes nothing from the steps,
    and a main thread that waits in a collective does not hold the GIL.
    """
    threading.Thread(target=_answer, args=(supervisor,), name="recorder", daemon=True).start()


def _answer(supervisor: Connection) -> None:
    while True:
        try:
            supervisor.recv_bytes()
        except EOFError:
            return
        known = dist.is_initialized()
        entries = flight_recorder_entries(dist.get_backend()) if known else []
        supervisor.send_bytes(msgspec.json.encode(entries))
