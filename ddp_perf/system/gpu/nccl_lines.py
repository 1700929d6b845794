"""The choice of NCCL, from the lines that it prints with NCCL_DEBUG=INFO.

The formats are those of NCCL's source: init.cc prints the version and the channels, the files of
transport/ print the transports, and enqueue.cc prints the algorithm of each call, if
NCCL_DEBUG_SUBSYS has TUNING.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddp_perf.core.launch import NcclChoice

_VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)")
_CHANNELS = re.compile(r"NCCL INFO (\d+) coll channels,(?:.*? (\d+) nvls channels)?")
_TRANSPORT = re.compile(
    r"NCCL INFO Channel \S+ : \S+ -> \S+ (?:\[(?:send|receive)\] )?via (\S+(?: pointer)?)"
)
_DEVICE = re.compile(r"/\d+(?:\(\d+\))?(?=/|$)")  # the number of a network card
_ALGORITHM = re.compile(r"NCCL INFO (?:(\w+): )?\d+ Bytes -> Algo (\w+) proto (\w+)")
# NCCL before 2.24 prints the indices of nccl_common.h.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def nccl_choice(outputs: Iterable[str]) -> NcclChoice | None:
    """Return NCCL's choice from the outputs of a launch's ranks, or None without a line of it."""
    text = "\n".join(outputs)
    version, channels = _VERSION.search(text), _CHANNELS.search(text)
    transports = dict.fromkeys(_DEVICE.sub("", name) for name in _TRANSPORT.findall(text))
    algorithms = dict.fromkeys(_algorithms(text))
    if not (version or channels or transports or algorithms):
        return None
    return NcclChoice(
        version=version[1] if version else None,
        channels=int(channels[1]) if channels else None,
        nvls_channels=int(channels[2]) if channels and channels[2] else None,
        transports=tuple(sorted(transports)),
        algorithms=tuple(sorted(algorithms)),
    )


def _algorithms(text: str) -> Iterator[str]:
    for call, algorithm, protocol in _ALGORITHM.findall(text):
        how = f"{_named(algorithm, _ALGORITHMS)}/{_named(protocol, _PROTOCOLS)}"
        yield f"{call} {how}" if call else how


def _named(text: str, names: tuple[str, ...]) -> str:
    """Return a name in capitals, of a name or an index."""
    if not text.isdecimal():
        return text.upper()
    return names[int(text)] if int(text) < len(names) else text
