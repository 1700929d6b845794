"""Compare the step time of the harness and of a bare DDP loop, in alternating blocks.

A third loop is the harness between the readings that a launch takes around its steps: the
conditions of the rank and its utilisation.
"""

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

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.loading import load_suite
from ddp_perf.core.case import Case
from ddp_perf.system.host.network import group_interface
from ddp_perf.telemetry.conditions import conditions
from ddp_perf.telemetry.sample import Sampler
from ddp_perf.telemetry.utilisation import utilisation
from ddp_perf.torch_compat import broadcast_buffers_argument
from ddp_perf.worker.process_group import place
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.steps.trainer import Trainer
from ddp_perf.worker.timing.timed_steps import Timed, timed_steps

PAIRS = 10
STEPS = 40  # of each loop in a pair
CONFIG = Path(__file__).parents[1] / "bench_configs/cpu_quick.yaml"


def main() -> None:
    case = next(
        case
        for case in cases_of(Variant(suite=load_suite(CONFIG)))
        if case.world_size == 2 and case.batch_size == 128
    )
    by_rank = _run(case)
    medians = {loop: _medians_s(by_rank, loop) for loop in ("harness", "bare", "read")}
    for pair, steps in enumerate(zip(*medians.values(), strict=True), 1):
        figures = (f"{loop} {s * 1e3:.2f} ms" for loop, s in zip(medians, steps, strict=True))
        print(f"  pair {pair}: {', '.join(figures)}")
    _print_ratio("observer effect", medians["harness"], medians["bare"])
    _print_ratio("readings around the steps", medians["read"], medians["harness"])


def _medians_s(by_rank: list[list[dict[str, list[float]]]], loop: str) -> list[float]:
    """Return the median step of each pair, of its slowest rank step by step, in seconds."""
    return [
        statistics.median(map(max, *(blocks[pair][loop] for blocks in by_rank)))
        for pair in range(PAIRS)
    ]


def _print_ratio(name: str, ones: list[float], others: list[float]) -> None:
    ratios = [one / other for one, other in zip(ones, others, strict=True)]
    print(
        f"{name}: {statistics.median(ratios):.3f} (median of {PAIRS} alternating pairs"
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
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # as in a launch
    device, placement = place(case, rank, local_rank=rank)
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
    trainer = Trainer(case, context)

    def harness() -> Timed:
        return follow_plan(timed_steps(trainer, STEPS, context.device), trainer.step)

    loops: dict[str, Callable[[], tuple[Any, ...]]] = {
        "harness": harness,
        "bare": _BareLoop(case).run,
        "read": partial(_between_readings, harness, case, context),
    }
    for loop in loops.values():
        loop()  # warm up
    pairs = []
    for pair in range(PAIRS):
        # Which goes first alternates too, so that a drift favours neither.
        order = list(loops) if pair % 2 else list(reversed(loops))
        pairs.append({name: loops[name]()[0] for name in order})
    return pairs


def _between_readings(
    loop: Callable[[], tuple[Any, ...]], case: Case, context: RankContext
) -> tuple[Any, ...]:
    """Run the loop with the readings of a launch before it and after it."""
    interface = group_interface(case) if context.rank == 0 else None
    sampler = Sampler(context.placement.cores, pinned=True, interface=interface)
    first = sampler.read()
    timed = loop()
    last = sampler.read_after(first)
    conditions(first, last, pinned=True)
    utilisation(first, last)
    return timed


class _BareLoop:
    """The same training, as a plain script would write it."""

    def __init__(self, case: Case) -> None:
        size = case.training.model
        model = nn.Sequential(
            nn.Linear(size["input_dim"], size["hidden_dim"]),
            nn.ReLU(),
            nn.Linear(size["hidden_dim"], size["output_dim"]),
        )
        self._ddp = nn.parallel.DistributedDataParallel(
            model,
            bucket_cap_mb=case.training.ddp.bucket_cap_mb,
            gradient_as_bucket_view=case.training.ddp.gradient_as_bucket_view,
            static_graph=case.training.ddp.static_graph,
            **broadcast_buffers_argument(case.training.ddp.broadcast_buffers),
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
