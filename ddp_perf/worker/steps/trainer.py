"""The training iteration of a case on one rank, as a CUDA graph or not, with its losses."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Unit
from ddp_perf.core.strategy import Strategy as StrategyName
from ddp_perf.errors import LaunchError
from ddp_perf.strategies.strategy import Fill, Parts, apply_strategy, autocast, grad_scaler
from ddp_perf.torch_compat import set_tf32
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.protocol import ObservedSteps, StepPlan, follow_plan, seed_all
from ddp_perf.workloads.workload import Batch, BuildContext, build_workload

# The forward and backward of a step as one CUDA graph, which the host launches as a whole.
#
# This follows torch's notes "CUDA Graphs", section "Usage with DistributedDataParallel": DDP is
# built, warmed up and captured on one stream that is not the default stream. The optimizer's step
# is not captured, as those notes advise for GradScaler, so any optimizer can be used.


WARM_UPS = 11  # steps: DDP times its first ten by events, which cannot be captured


def graph_stream(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """Return the context for building and training a captured case; an empty one for any other."""
    if not is_captured(case, device):
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)


def is_captured(case: Case, device: torch.device) -> bool:
    """Return whether the step is captured. A gpu case that is counted on a CPU is not."""
    return case.training.cuda_graphs and device.type == "cuda"


def capture_graph(gradients: Callable[[], None]) -> Callable[[], None]:
    """Capture ``gradients`` on the current stream, and return a function that replays it.

    No gradient may exist before the capture: the graph must allocate the gradients, and then
    overwrites them in each replay.
    """
    graph = torch.cuda.CUDAGraph()
    # thread_local, since NCCL's watchdog queries its own events at the same time.
    with torch.cuda.graph(
        graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
    ):
        gradients()
    replay: Callable[[], None] = graph.replay
    return replay


# The losses of some training steps, kept on the device until the timed steps are over.


_LAST = 32  # later steps are not checked for what rounding changes (docs/correctness.md)


class Losses:
    """The losses of steps 1, 2, 4, 8, 16 and 32, counted from the initial parameters.

    The numbers of these steps do not depend on how many warm-ups a launch had. Most of them are
    early, where rounding has not yet grown. Nothing here waits for the device.
    """

    def __init__(self, *, last: int = _LAST) -> None:
        """Keep none after step ``last``."""
        self._last = last
        self.type = torch.float64  # until the first loss
        self._micro_steps: list[torch.Tensor] = []
        self._kept: dict[int, torch.Tensor] = {}

    def begin_step(self) -> None:
        """Forget the micro-steps of the step before."""
        self._micro_steps = []

    def add(self, loss: torch.Tensor) -> None:
        """Add a micro-step's share of the loss, before any scaling for half precision."""
        self._micro_steps.append(loss.detach())
        self.type = loss.dtype

    def end_step(self, number: int) -> None:
        """Keep the loss of the step if its number is a power of two up to 32.

        The sum is a copy: the next replay of a CUDA graph overwrites the losses of its micro-steps.
        """
        if number <= self._last and number.bit_count() == 1:
            self._kept[number] = torch.stack(self._micro_steps).sum(dtype=torch.float64)

    def read(self) -> dict[str, float | None]:
        """Return the losses by step, None for one that is not finite. It waits for the device."""
        losses = {str(number): loss.item() for number, loss in self._kept.items()}
        return {number: loss if math.isfinite(loss) else None for number, loss in losses.items()}


# The training iteration of a case on one rank.


Loss = Callable[[nn.Module, Batch], torch.Tensor]

_LAST_BITS = 1e-6  # relative: some units in the last place of float32


class Trainer(ObservedSteps):
    """The training iteration of a case on one rank: what the timed loop calls."""

    # A collection takes milliseconds, in a step of one rank or of another.
    collects_garbage = False

    def __init__(self, case: Case, context: RankContext, *, nudged: bool = False) -> None:
        """Build the training. A ``nudged`` one begins with other last bits of its parameters."""
        super().__init__(context.rank, context.heartbeats)
        self._case = case
        device = context.device
        seed_all()
        set_tf32(case.precision == "tf32")
        assert case.batch_size is not None  # the case trains
        torch.backends.cudnn.benchmark = case.training.cudnn_benchmark
        build_context = BuildContext(
            device=device,
            batch_size=case.batch_size,
            rank=context.rank,
            world_size=case.world_size,
            data=case.training.data,
        )
        workload = build_workload(case.workload, build_context, case.training.model)
        fill = workload.fill
        if nudged and fill is None:
            _nudge(_trained(workload.model))
        elif nudged and fill is not None:
            fill = _nudging(fill, workload.model)
        self._strategy = apply_strategy(
            case, Parts(model=workload.model, blocks=workload.blocks, fill=fill), device
        )
        self._workload = workload
        batch = workload.batch
        self._batches = itertools.repeat(batch) if isinstance(batch, tuple) else batch
        self._loss: Loss = workload.loss
        self._optimizer = workload.optimizer(self.module.parameters())
        self._autocast = autocast(case, device)
        self._scaler = grad_scaler(case, device)
        self._replay: Callable[[], None] | None = None  # the replay of a CUDA graph; None: eager
        self._steps = 0
        self._synchronises = True
        self.losses = Losses()

    @property
    def module(self) -> nn.Module:
        return self._strategy.module

    @property
    def strategy(self) -> StrategyName:
        return self._case.strategy

    @property
    def micro_steps(self) -> int:
        return self._case.training.gradient_accumulation

    @property
    def unit(self) -> Unit:
        return self._workload.unit

    @property
    def one_batch(self) -> bool:
        """True if the workload trains on the same batch in each step."""
        return isinstance(self._workload.batch, tuple)

    @property
    def loss_unit(self) -> float:
        """The relative unit of the coarsest type of the trained parameters and the loss."""
        types = {self.losses.type, *(parameter.dtype for parameter in _trained(self.module))}
        return max(torch.finfo(one).eps for one in types)

    def step(self) -> None:
        """Update the parameters once; beat BEATS_PER_STEP times for any number of micro-steps."""
        if self._replay is None:
            self._compute_gradients()
        else:
            self._replay()
            self.beat()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._strategy.after_step()
        self._steps += 1
        self.losses.end_step(self._steps)
        self.beat()
        self._on_phase("optimizer")

    def wrap_loss(self, wrap: Callable[[Loss], Loss]) -> None:
        """Replace the loss function of all later steps by ``wrap(loss function)``."""
        self._loss = wrap(self._loss)

    def wrap_batches(self, wrap: Callable[[Iterator[Batch]], Iterator[Batch]]) -> None:
        """Replace the batches of all later steps by ``wrap(batches)``."""
        self._batches = wrap(self._batches)

    @contextlib.contextmanager
    def unsynchronised(self) -> Iterator[None]:
        """Let each rank use its own gradients: see ``Training``. A captured step ignores it."""
        self._synchronises = False
        try:
            yield
        finally:
            self._synchronises = True

    def capture(self) -> None:
        """Capture forward and backward as one CUDA graph, which each later step replays.

        Raises LaunchError if the workload's batches change: the graph would replay one of them.
        """
        if not isinstance(self._batches, itertools.repeat):
            raise LaunchError(
                "cuda_graphs: the workload's batch is an iterator, and a graph replays one batch;"
                " give it as a tuple, or leave cuda_graphs out"
            )
        follow_plan(self.settle(WARM_UPS), self.step)
        # Before the capture, since freed memory must not be part of it.
        self._optimizer.zero_grad(set_to_none=True)
        self._replay = capture_graph(self._compute_gradients)

    def release(self) -> None:
        """Release the CUDA graph: later steps are launched by the host, operation by operation."""
        self._replay = None

    def _compute_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._on_phase("optimizer")
        self.losses.begin_step()
        for micro_step in range(1, self.micro_steps + 1):
            last = micro_step == self.micro_steps
            with self._strategy.micro_step(last and self._synchronises):
                batch = next(self._batches)
                self._on_phase("data")
                with self._autocast:
                    loss = self._share(self._loss(self.module, batch))
                self.losses.add(loss)
                if last:
                    self.beat()
                self._on_loss(loss)
                self._on_phase("forward")
                self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                self._on_phase("backward")

    def settle(self, steps: int) -> StepPlan[None]:
        """Go on until the next step is a settled one: see ``Training.settle``."""
        while self._steps < steps or not self._strategy.is_full_step(self._steps):
            yield

    def synchronise(self) -> StepPlan[None]:
        """Go on until all ranks have the same parameters: hooks may average them now and then."""
        while self._steps and not self._strategy.is_full_step(self._steps - 1):
            yield

    def _share(self, loss: torch.Tensor) -> torch.Tensor:
        """Scale a micro-step's loss: the micro-steps add up to the mean loss of the whole batch."""
        return loss / self.micro_steps if self.micro_steps > 1 else loss


def _nudging(fill: Fill, model: nn.Module) -> Fill:
    """Return a fill of the model that also nudges what is trained."""
    trained = {id(parameter) for parameter in _trained(model)}
    names = {name for name, one in model.named_parameters() if id(one) in trained}

    def fill_and_nudge(name: str, parameter: torch.Tensor) -> None:
        fill(name, parameter)
        if name in names:
            _nudge([parameter])

    return fill_and_nudge


def _nudge(parameters: Iterable[torch.Tensor]) -> None:
    """Change the last bits of every second row of the parameters, without any further memory.

    One unit of half precision is a thousand of these changes, so there it is a single row. A frozen
    parameter stays: it may be of a type, or a view, that nothing computes in place.
    """
    with torch.no_grad():
        for parameter in parameters:
            if parameter.dim():
                unit = torch.finfo(parameter.dtype).eps
                rows = parameter[::2] if unit < _LAST_BITS else parameter[:1]
                rows.mul_(1 + max(_LAST_BITS, unit))


def _trained(model: nn.Module) -> Iterator[nn.Parameter]:
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.is_floating_point():
            yield parameter
