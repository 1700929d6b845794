"""What an outsider on this machine could reach of a launch, as one of its own ranks sees it.

A rank looks, since it runs while the sockets of its launch are open. This is its workload, or what
its script calls.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from ddp_perf.workloads import mlp
from ddp_perf.workloads.workload import Batch, BuildContext, Workload
from tests.faults.leaks import listening

NOTES = "WITNESS_NOTES"  # the environment variable that names the directory of the notes
_OF_TORCH = ("torchinductor_", "torchelastic_")
_LEVELS = 3


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw."""

    sockets: tuple[str, ...]  # on which a process of the launch listens
    exposed: tuple[str, ...]  # of these, what is not bound to loopback
    open_to_others: tuple[str, ...]  # temporary files and directories


def build(context: BuildContext) -> Workload:
    """Build a small network whose first loss looks around."""
    small = {"input_dim": 16, "hidden_dim": 16, "output_dim": 4, "num_layers": 2}
    return watching(mlp.build)(context, **small)


def watching(build: Callable[..., Workload]) -> Callable[..., Workload]:
    """Return ``build``, whose first loss looks around: the process group is there by then."""

    def watched(*arguments: Any, **options: Any) -> Workload:
        workload = build(*arguments, **options)
        looks = iter([look])

        def loss(module: torch.nn.Module, batch: Batch) -> torch.Tensor:
            for one in looks:
                one()
            return workload.loss(module, batch)

        return replace(workload, loss=loss)

    return watched


def look() -> None:
    """Note what others could reach now."""
    sockets = tuple(address for pid in _own_processes() for address in listening(pid))
    seen = Seen(
        sockets=sockets,
        exposed=tuple(one for one in sockets if not _is_loopback(one)),
        open_to_others=tuple(open_to_others(Path(tempfile.gettempdir()))),
    )
    note = Path(os.environ[NOTES], f"{os.getpid()}.json")
    note.write_bytes(msgspec.json.encode(seen))


def seen_by_ranks(notes: Path) -> Iterator[Seen]:
    """Yield what each rank noted."""
    for note in sorted(notes.glob("*.json")):
        yield msgspec.json.decode(note.read_bytes(), type=Seen)


def _own_processes() -> Iterator[int]:
    """Yield this rank, its server and the driver, but not torchrun, which is the user's."""
    pid = os.getpid()
    for _ in range(_LEVELS):
        process = Path(f"/proc/{pid}")
        if b"torch.distributed.run" in (process / "cmdline").read_bytes():
            return
        yield pid
        pid = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])


def _is_loopback(address: str) -> bool:
    """``address``: as in /proc/net, in words of the machine's byte order."""
    host = address.partition(":")[0]
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    found = ipaddress.ip_address(b"".join(words))
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def open_to_others(directory: Path) -> Iterator[str]:
    """Yield what another user could enter, read or write there.

    What is in a directory that is closed to others is closed as well. What torch keeps by itself
    may be read.
    """
    for path in directory.iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (stat.S_IWOTH if path.name.startswith(_OF_TORCH) else 0o077):
            yield f"{path.name} of mode {mode:04o}"
