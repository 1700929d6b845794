"""The harness's step time ÷ that of a bare DDP loop, in alternating pairs of one run."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch._C._distributed_c10d import FileStore

from ddp_perf.config.loading import load_suite
from ddp_perf.config.suite import Variant, cases_of
from ddp_perf.core.case import Case
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import LaunchRequest
from ddp_perf.stats.summary import group_steps
from ddp_perf.torch_compat import broadcast_buffers_argument
from ddp_perf.worker.placement import place

PAIRS = 10
CONFIG = Path(__file__).parents[2] / "bench_configs/cpu_quick.yaml"


def main() -> None:
    case = next(
        case
        for case in cases_of(Variant(suite=load_suite(CONFIG)))
        if case.world_size == 2 and case.batch_size == 128
    )
    ratios = []
    with contextlib.closing(ForkserverLauncher()) as launcher:
        launcher.runtime({})
        for round_ in range(PAIRS):
            # Which goes first alternates too, so that a drift favours neither.
            if round_ % 2:
                harness, bare = _harness(launcher, case, round_), _bare(case)
            else:
                bare, harness = _bare(case), _harness(launcher, case, round_)
            ratios.append(harness / bare)
            print(f"  pair {round_ + 1}: harness {harness * 1e3:.2f} ms, bare {bare * 1e3:.2f} ms")
    print(
        f"observer effect: {statistics.median(ratios):.3f} (median of {PAIRS} alternating pairs,"
        f" {min(ratios):.3f} to {max(ratios):.3f}; target: 1.00 ± 0.01)"
    )


def _harness(launcher: ForkserverLauncher, case: Case, round_: int) -> float:
    outcome = launcher.launch(LaunchRequest(case=case, round=round_))
    return statistics.median(group_steps(outcome))


def _bare(case: Case) -> float:
    """Median step of the same training, written as a plain script would write it."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        receivers, ranks = [], []
        for rank in range(case.world_size):
            receiver, sender = context.Pipe(duplex=False)
            receivers.append(receiver)
            ranks.append(context.Process(target=_bare_rank, args=(case, rank, directory, sender)))
            ranks[-1].start()
        times = [receiver.recv() for receiver in receivers]
        for rank in ranks:
            rank.join()
    steps = [max(pair) for pair in zip(*times, strict=True)]
    return statistics.median(steps[case.schedule.warmup :])


def _bare_rank(case: Case, rank: int, directory: str, sender) -> None:
    device, _ = place(case, rank)
    store = FileStore(f"{directory}/store", case.world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=case.world_size)
    torch.manual_seed(0)
    size = case.model
    model = nn.Sequential(
        nn.Linear(size["input_dim"], size["hidden_dim"]),
        nn.ReLU(),
        nn.Linear(size["hidden_dim"], size["output_dim"]),
    ).to(device)
    ddp = nn.parallel.DistributedDataParallel(
        model,
        bucket_cap_mb=case.ddp.bucket_cap_mb,
        gradient_as_bucket_view=case.ddp.gradient_as_bucket_view,
        static_graph=case.ddp.static_graph,
        **broadcast_buffers_argument(case.ddp.broadcast_buffers),
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    inputs = torch.randn(case.batch_size, size["input_dim"])
    targets = torch.randn(case.batch_size, size["output_dim"])
    times = []
    dist.barrier()
    for _ in range(case.schedule.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.mse_loss(ddp(inputs), targets).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    sender.send(times)
    dist.barrier()
    del ddp, model, optimizer
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
