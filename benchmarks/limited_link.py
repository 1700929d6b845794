"""Real gloo all-reduces over a link of a known, limited rate, on any number of ranks.

A network namespace of our own has a loopback of our own: a token bucket (``tc``, tbf) limits it,
without root. All ranks share that one queue, so it is given the rate of a link times the ranks:
in a ring all of them send at once, and each has a link's share. There are more ranks than
cores, so computing is a sleep; what is measured is the communication.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from ddp_perf.scaling.laws import Exchange, Piece, ScalingPoint, StepShape, point_of

SIZES = (1, 2, 4, 8, 12, 16)
LINK_BYTES_PER_S = 6.25e6
COMPUTE_S = 0.05  # of a rank, or of all ranks that share one batch
FIXED_S = 0.01  # of these, what does not shrink with the batch of a rank
BUCKET_BYTES, BUCKETS = 500_000, 2
LAUNCHES, STEPS, WARMUP = 5, 9, 2


def gloo_curve(*, strong: bool = False) -> tuple[StepShape, list[ScalingPoint]]:
    """Return the communication of such a step, none of it hidden, and its times.

    ``strong``: the ranks share the compute of one batch, but for its fixed part. Exit if the link
    cannot be limited here.
    """
    if not all(map(shutil.which, ("unshare", "tc", "ip"))):
        sys.exit("the link cannot be limited: unshare, tc and ip are needed (util-linux, iproute2)")
    kind = "strong" if strong else "weak"
    inside = ["unshare", "--user", "--map-root-user", "--net", sys.executable, __file__, kind]
    done = subprocess.run(inside, stdout=subprocess.PIPE, text=True, timeout=900, check=False)
    if done.returncode:
        sys.exit("the link cannot be limited: this kernel refuses a namespace, or tbf")
    exchanges = [Exchange(kind="all_reduce", payload=BUCKET_BYTES)] * BUCKETS
    whole = Piece(spans=((0, BUCKETS),))  # nothing overlaps
    launches: dict[str, list[float]] = json.loads(done.stdout)
    return StepShape(exchanges=tuple(exchanges), pieces=(whole,)), [
        point_of(int(ranks), steps) for ranks, steps in launches.items()
    ]


def _measure(*, strong: bool) -> dict[int, list[float]]:
    """Return the median steps in seconds, by launch. The sizes alternate, against drift."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", "9000", "up"], check=True)
    found: dict[int, list[float]] = {ranks: [] for ranks in SIZES}
    for _ in range(LAUNCHES):
        for ranks in SIZES:
            rate = f"{int(8 * LINK_BYTES_PER_S * ranks)}bit"
            limit = ["tbf", "rate", rate, "burst", "32kb", "latency", "500ms"]
            subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", *limit], check=True)
            compute_s = FIXED_S + (COMPUTE_S - FIXED_S) / ranks if strong else COMPUTE_S
            found[ranks].append(_launch(ranks, compute_s))
    return found


def _launch(ranks: int, compute_s: float) -> float:
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(ranks)]
        processes = [
            context.Process(target=_rank, args=(rank, ranks, f"{folder}/store", compute_s, sender))
            for rank, (_, sender) in enumerate(ends)
        ]
        for process in processes:
            process.start()
        steps = [receiver.recv() for receiver, _ in ends]
        for process in processes:
            process.join()
    return statistics.median(max(step) for step in zip(*steps, strict=True))


def _rank(rank: int, ranks: int, store: str, compute_s: float, sender: Connection) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    buckets = [torch.ones(BUCKET_BYTES // 4) for _ in range(BUCKETS)]
    times = []
    for _ in range(STEPS):
        dist.barrier()
        begun = time.perf_counter()
        time.sleep(compute_s)
        for bucket in buckets:
            dist.all_reduce(bucket)
        times.append(time.perf_counter() - begun)
    sender.send(times[WARMUP:])
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    json.dump(_measure(strong="strong" in sys.argv), sys.stdout)
