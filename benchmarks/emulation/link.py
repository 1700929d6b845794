"""One of two ranks that measure their link: ``-m benchmarks.emulation.link RANK ADDRESS``.

Rank 0 prints JSON.

What a byte costs the core of its rank is measured as what it costs a computation beside it: the
kernel's own work for the network is no CPU time of the process that sends.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist

SIZES = tuple(2**power for power in range(12, 24, 2))  # bytes of an all-reduce, of one round
_BUSY_WITH = 2**12, 2**22  # bytes
_REPEATS, _TRIALS, _BESIDE_S = 40, 8, 0.5
_LEAST = 10  # of these times: a neighbour on the core only makes one longer
_PORT = 29555


def main(rank: int, address: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "cable"
    patience = datetime.timedelta(seconds=60)
    store = dist.TCPStore(address, _PORT, 2, is_master=rank == 0, timeout=patience)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    times = {size: _times_s(size) for size in SIZES}
    busy = _busy_s_per_byte()
    if rank == 0:
        print(json.dumps({"times": times, "busy": busy}))
    dist.barrier()
    dist.destroy_process_group()


def _times_s(size: int) -> list[float]:
    tensor = torch.ones(size // 4)
    times = []
    for _ in range(_REPEATS):
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - begun)
    return sorted(times)[:_LEAST]


def _busy_s_per_byte() -> tuple[float, float]:
    """Return the seconds that a rank's computation loses for each byte that the rank sends.

    They lie between the quartiles of several trials. What it loses for a message is not of them.
    """
    lost = []
    for _ in range(_TRIALS):
        empty, full = (_lost_s(size) for size in _BUSY_WITH)
        lost.append((full - empty) / (_BUSY_WITH[1] - _BUSY_WITH[0]))
    low, _, high = statistics.quantiles(lost, n=4)
    return low, high


def _lost_s(size: int) -> float:
    """Return the seconds that a rank's computation loses for one all-reduce of this size."""
    alone = _products_in(_BESIDE_S)
    beside, calls = _products_beside(size)
    return (1 - beside / alone) * _BESIDE_S / calls


def _products_beside(size: int) -> tuple[int, int]:
    """Return how many products a rank computes beside its all-reduces, and the number of these."""
    tensor, calls, found = torch.ones(size // 4), 0, []
    dist.barrier()
    thread = threading.Thread(target=lambda: found.append(_products_in(_BESIDE_S)))
    thread.start()
    begun = time.perf_counter()
    while True:
        dist.all_reduce(tensor)
        calls += 1
        more = torch.tensor([float(time.perf_counter() - begun < _BESIDE_S)])
        dist.all_reduce(more, dist.ReduceOp.MIN)  # both end after the same one
        if not more.item():
            break
    thread.join()
    return found[0], calls


def _products_in(seconds: float) -> int:
    a, count = torch.ones(256, 256), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.mm(a, a)
        count += 1
    return count


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
