"""Compare the step time of the harness and of a bare DDP loop, in alternating blocks."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch._C._distributed_c10d import FileStore

from ddp_perf.config.loading import load_suite
from ddp_perf.config.suite import Variant, cases_of
from ddp_perf.core.case import Case
from ddp_perf.torch_compat import broadcast_buffers_argument
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.placement import place
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.trainer import Trainer
from ddp_perf.worker.timing.timed_steps import timed_steps

PAIRS = 10
STEPS = 40  # of each loop in a pair
CONFIG = Path(__file__).parents[2] / "bench_configs/cpu_quick.yaml"


def main() -> None:
    case = next(
        case
        for case in cases_of(Variant(suite=load_suite(CONFIG)))
        if case.world_size == 2 and case.batch_size == 128
    )
    by_rank = _run(case)
    ratios = []
    for pair in range(PAIRS):
        harness, bare = (
            statistics.median(map(max, *(blocks[pair][loop] for blocks in by_rank)))
            for loop in ("harness", "bare")
        )
        ratios.append(harness / bare)
        print(f"  pair {pair + 1}: harness {harness * 1e3:.2f} ms, bare {bare * 1e3:.2f} ms")
    print(
        f"observer effect: {statistics.median(ratios):.3f} (median of {PAIRS} alternating pairs"
        f" of {STEPS} steps, {min(ratios):.3f} to {max(ratios):.3f}; target: 1.00 ± 0.01)"
    )


def _run(case: Case) -> list[list[dict[str, list[float]]]]:
    """Return the step times by rank, pair and loop."""
    context = multiprocessing.get_context("fork")
    heartbeats = Heartbeats(case.world_size)
    with tempfile.TemporaryDirectory() as directory:
        receivers, ranks = [], []
        for rank in range(case.world_size):
            receiver, sender = context.Pipe(duplex=False)
            receivers.append(receiver)
            arguments = (case, rank, directory, heartbeats, sender)
            ranks.append(context.Process(target=_rank, args=arguments))
            ranks[-1].start()
            sender.close()  # so that a rank's early end is seen as the end of its pipe
        results = [receiver.recv() for receiver in receivers]
        for process in ranks:
            process.join()
    return results


def _rank(case: Case, rank: int, directory: str, heartbeats: Heartbeats, sender) -> NoReturn:
    device, placement = place(case, rank)
    context = RankContext(rank=rank, device=device, placement=placement, heartbeats=heartbeats)
    store = FileStore(f"{directory}/store", case.world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=case.world_size)
    # In a function of its own: a name that is left here, were it only a loop's, would keep DDP
    # alive until after destroy_process_group, which then deadlocks in 3 of 10 runs.
    sender.send(_pairs(case, context))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as the harness's own ranks end


def _pairs(case: Case, context: RankContext) -> list[dict[str, list[float]]]:
    loops: dict[str, Callable[[], tuple[Any, ...]]] = {
        "harness": partial(timed_steps, Trainer(case, context), STEPS, context.device),
        "bare": _BareLoop(case).run,
    }
    for loop in loops.values():
        loop()  # warm up
    pairs = []
    for pair in range(PAIRS):
        # Which goes first alternates too, so that a drift favours neither.
        order = ("harness", "bare") if pair % 2 else ("bare", "harness")
        pairs.append({name: loops[name]()[0] for name in order})
    return pairs


class _BareLoop:
    """The same training, as a plain script would write it."""

    def __init__(self, case: Case) -> None:
        size = case.model
        model = nn.Sequential(
            nn.Linear(size["input_dim"], size["hidden_dim"]),
            nn.ReLU(),
            nn.Linear(size["hidden_dim"], size["output_dim"]),
        )
        self._ddp = nn.parallel.DistributedDataParallel(
            model,
            bucket_cap_mb=case.ddp.bucket_cap_mb,
            gradient_as_bucket_view=case.ddp.gradient_as_bucket_view,
            static_graph=case.ddp.static_graph,
            **broadcast_buffers_argument(case.ddp.broadcast_buffers),
        )
        self._optimizer = torch.optim.SGD(self._ddp.parameters(), lr=0.01)
        self._inputs = torch.randn(case.batch_size, size["input_dim"])
        self._targets = torch.randn(case.batch_size, size["output_dim"])

    def run(self) -> tuple[list[float], None]:
        """Return the seconds of each step, and None where the harness returns its CPU time."""
        times = []
        dist.barrier()
        for _ in range(STEPS):
            begin = time.perf_counter()
            self._optimizer.zero_grad()
            nn.functional.mse_loss(self._ddp(self._inputs), self._targets).backward()
            self._optimizer.step()
            times.append(time.perf_counter() - begin)
        return times, None


if __name__ == "__main__":
    main()
