"""The operations and collectives of a step, by phase and by place in the source."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from ddp_perf.core.launch import Collective
from ddp_perf.core.work import CollectiveCount, Phase
from ddp_perf.torch_compat import TorchDispatchMode
from ddp_perf.torch_compat.internals import group_of_name, is_operator
from ddp_perf.worker.counted.autograd_graph import count_nodes
from ddp_perf.worker.counted.flops import operation_flops
from ddp_perf.worker.counted.memory import MemoryTracker
from ddp_perf.worker.counted.traffic import operation_traffic
from ddp_perf.worker.counting.dry import dispatches_itself
from ddp_perf.worker.counting.sites import Spot, SpotFinder
from ddp_perf.worker.counting.structure import (
    COLLECTIVE_NAMESPACES,
    dispatched_collective,
    tensors,
)

_COPIES = frozenset({"aten._to_copy", "aten.copy_"})


class OperationKey(NamedTuple):
    """The properties that calls of an operation have in common to be counted as one."""

    name: str
    dtype: str
    spot: Spot


@dataclass
class OperationTally:
    """The number of calls of an operation, with all they move and compute."""

    count: int = 0
    read: int = 0
    written: int = 0
    flops: int = 0

    def add(self, other: OperationTally) -> None:
        """Add the calls of ``other``."""
        self.count += other.count
        self.read += other.read
        self.written += other.written
        self.flops += other.flops


@dataclass
class IssuedCollective:
    """A collective. ``flops`` are those before it in its phase; after the phase, those after it."""

    collective: Collective
    group: int | None
    asynchronous: bool
    spot: Spot
    flops: int
    phase: Phase | None = None  # None: the phase has not ended

    def counted(self, sites: Mapping[Spot, int]) -> CollectiveCount:
        """Return the count of this collective, with the number of its site."""
        assert self.phase is not None  # the step is over
        return CollectiveCount(
            phase=self.phase,
            kind=self.collective.kind,
            dtype=self.collective.dtype,
            bytes=self.collective.bytes,
            group=self.group,
            asynchronous=self.asynchronous,
            flops_after=self.flops,
            site=sites[self.spot],
        )


class OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A recorder of all that this thread and its backward dispatch.

    It works under any other mode, since it passes each operation on.
    """

    def __init__(self, finder: SpotFinder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = MemoryTracker()
        self._finder = finder
        self.begin_step()

    def begin_step(self) -> None:
        """Forget all but the memory that lives."""
        self.memory.begin_step()
        self._finder.begin_step()
        self.operations: dict[tuple[Phase, OperationKey], OperationTally] = {}
        self.collectives: list[IssuedCollective] = []
        self.nodes: Counter[str] = Counter()
        self._phase: defaultdict[OperationKey, OperationTally] = defaultdict(OperationTally)
        self._flops = 0  # of the phase

    def end_phase(self, phase: str) -> None:
        """Give all since the phase before to ``phase``."""
        ended = cast(Phase, phase)
        for key, tally in self._phase.items():
            self.operations.setdefault((ended, key), OperationTally()).add(tally)
        for issued in self.collectives:
            if issued.phase is None:
                issued.phase = ended
                issued.flops = self._flops - issued.flops
        self._phase.clear()
        self._flops = 0

    def add_loss(self, loss: torch.Tensor) -> None:
        """Count the nodes of the graph of a micro-step's loss."""
        self.nodes += count_nodes(loss, self._finder.note_use)

    def add_host_copy(self, name: str, dtype: str) -> None:
        """Count a call by which the host would wait for a GPU, and which dispatches nothing."""
        self._phase[OperationKey(name, dtype, self._finder.here())].add(OperationTally(count=1))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_operator(func) or func.namespace == "profiler":
            return func(*args, **kwargs)
        spot = self._finder.here()
        issues = any(map(dispatches_itself, types))
        with _IssuedWithin(self._note_collective) if issues else contextlib.nullcontext():
            out = func(*args, **kwargs)
        # The storage of what torch.tensor() copies is known to nobody yet.
        given = [] if func is torch.ops.aten.lift_fresh.default else [*args, *kwargs.values()]
        self.memory.add(out, given, spot)
        if func.namespace in COLLECTIVE_NAMESPACES:
            self._note_collective(func, args, kwargs, out)
        else:
            self._add_operation(func, args, kwargs, out, spot)
        return out

    def _note_collective(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """Add the collective that ``func`` issued when it returned ``out``, if it is one."""
        if (dispatched := dispatched_collective(func, args, out)) is not None:
            named = _by_name(func, args, kwargs)
            self.collectives.append(
                IssuedCollective(
                    collective=dispatched.collective,
                    group=_group_size(named),
                    asynchronous=bool(named.get("async_op", True)),
                    spot=self._finder.here(),
                    flops=self._flops,
                )
            )

    def _add_operation(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, spot: Spot
    ) -> None:
        name = func._schema.name.replace("::", ".")
        traffic = operation_traffic(name, func, args, kwargs, out)
        found = [*tensors(out), *tensors([*args, *kwargs.values()])]
        if name in _COPIES and len({tensor.device for tensor in found}) > 1:
            name = "copy_between_devices"
        dtype = str(found[0].dtype).removeprefix("torch.") if found else "none"
        flops = operation_flops(func, args, kwargs, out)
        self._flops += flops
        self._phase[OperationKey(name, dtype, spot)].add(
            OperationTally(count=1, read=traffic.read, written=traffic.written, flops=flops)
        )


class _IssuedWithin(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A recorder of what a tensor's own dispatch issues, as a DTensor's does on its local tensors.

    Such an operation is counted as the one that it is: only its collectives are noted.
    """

    def __init__(self, note: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(map(dispatches_itself, types)):
            return NotImplemented  # its own dispatch then comes here with its local tensors
        out = func(*args, **(kwargs or {}))
        self._note(func, args, kwargs or {}, out)
        return out


def _by_name(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _group_size(given: dict[str, Any]) -> int | None:
    """Return the number of ranks of a collective's group, or None for all ranks."""
    if "process_group" in given:
        group = dist.ProcessGroup.unbox(given["process_group"])
        size = group.size()
    else:
        size = group_of_name(given["group_name"]).size()
    return None if size == dist.get_world_size() else size
