"""The training iteration of a case, as one rank runs it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from ddp_perf.core.case import Case
from ddp_perf.errors import LaunchError
from ddp_perf.strategies.precision import autocast, grad_scaler
from ddp_perf.strategies.registry import apply_strategy
from ddp_perf.strategies.strategy import Parts
from ddp_perf.torch_compat import set_tf32
from ddp_perf.worker.heartbeat import Heartbeats, Phase
from ddp_perf.worker.steps.graph import WARM_UPS, captured
from ddp_perf.workloads.registry import build_workload
from ddp_perf.workloads.workload import BuildContext

_SEED = 0  # the same on every rank: the plain module and DDP start from the same parameters


class Trainer:
    """The training iteration of a case on one rank."""

    def __init__(self, case: Case, rank: int, device: torch.device, heartbeats: Heartbeats) -> None:
        torch.manual_seed(_SEED)
        set_tf32(case.precision == "tf32")
        assert case.batch_size is not None  # it trains
        torch.backends.cudnn.benchmark = case.cudnn_benchmark
        context = BuildContext(
            device=device,
            batch_size=case.batch_size,
            rank=rank,
            world_size=case.world_size,
            data=case.data,
        )
        workload = build_workload(case.workload, context, case.model)
        self._strategy = apply_strategy(
            case, Parts(model=workload.model, blocks=workload.blocks), device
        )
        self.module = self._strategy.module
        batch = workload.batch
        self.batches = itertools.repeat(batch) if isinstance(batch, tuple) else batch
        self.unit = workload.unit
        self.loss = workload.loss
        self._optimizer = workload.optimizer(self.module.parameters())
        self._autocast = autocast(case, device)
        self._scaler = grad_scaler(case, device)
        self.micro_steps = case.gradient_accumulation
        self._replay: Callable[[], None] | None = None  # of a CUDA graph
        self.phase_done: Callable[[str], None] = _nobody_asks
        self._heartbeats = heartbeats
        self._rank = rank
        self._steps = 0

    def step(self, *, synchronise: bool = True) -> None:
        """One update of the parameters; two beats, however many micro-steps.

        ``synchronise=False`` leaves each rank with its own gradients, and so, from then on,
        with its own parameters; it is nothing that a graph replays.
        """
        if self._replay is None:
            self._compute_gradients(synchronise)
        else:
            self._replay()
            self.beat()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._strategy.after_step()
        self._steps += 1
        self.beat()
        self.phase_done("optimizer")

    def capture(self) -> None:
        """Make forward and backward one CUDA graph, which each step from now on replays.

        Raises LaunchError for a workload of changing batches: the graph would go on with one.
        """
        if not isinstance(self.batches, itertools.repeat):
            raise LaunchError(
                "cuda_graphs: the workload's batch is an iterator, and a graph replays one batch;"
                " give it as a tuple, or leave cuda_graphs out"
            )
        self.settle(WARM_UPS)
        self._optimizer.zero_grad(set_to_none=True)  # before: what frees memory is not captured
        self._replay = captured(self._compute_gradients)

    def release(self) -> None:
        """Back to steps that the host launches, operation by operation."""
        self._replay = None

    def _compute_gradients(self, synchronise: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self.phase_done("optimizer")
        for micro_step in range(1, self.micro_steps + 1):
            last = micro_step == self.micro_steps
            with self._strategy.micro_step(last and synchronise):
                batch = next(self.batches)
                self.phase_done("data")
                with self._autocast:
                    loss = self._share(self.loss(self.module, batch))
                if last:
                    self.beat()
                self.phase_done("forward")
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                self.phase_done("backward")

    def settle(self, steps: int) -> None:
        """Train on until so many steps are done, and the next one is a full one."""
        while self._steps < steps or not self._strategy.is_full_step(self._steps):
            self.step()

    def beat(self) -> None:
        """Tell the supervisor that this rank gets on."""
        self._heartbeats.beat(self._rank)

    def enter(self, phase: Phase) -> None:
        """Tell the supervisor what comes next."""
        self._heartbeats.enter(self._rank, phase)

    def _share(self, loss: torch.Tensor) -> torch.Tensor:
        """So that micro-steps add up to the mean loss of the whole batch."""
        return loss / self.micro_steps if self.micro_steps > 1 else loss


def _nobody_asks(phase: str) -> None:
    """Of the timed steps: what looks at phases looks at later ones."""
