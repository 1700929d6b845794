"""The record of one step: its operations, its memory and its traffic, each with its place."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from ddp_perf.core.launch import Collective
from ddp_perf.core.work import (
    CallCount,
    CollectiveCount,
    KeptMemory,
    MemoryCount,
    OperationCount,
    Phase,
    StepWork,
)
from ddp_perf.torch_compat import TorchDispatchMode, infers_on_fake_tensors, paused_saved_hooks
from ddp_perf.torch_compat.internals import group_of_name, is_operator, is_wrapper
from ddp_perf.worker.counting.dry import dispatches_itself
from ddp_perf.worker.counting.sites import (
    Call,
    Makers,
    SiteNames,
    SourceLine,
    Spot,
    SpotFinder,
    count_calls,
    count_nodes,
    note_host_copies,
)
from ddp_perf.worker.counting.structure import (
    COLLECTIVE_NAMESPACES,
    SETTLED_AFTER,
    dispatched_collective,
    operation_flops,
    structure_of,
    tensors,
)
from ddp_perf.worker.steps.protocol import StepPlan, Training

# The bytes that an operation reads and writes.


# By the name of the operation, since no schema has it.
_UNTOUCHED = re.compile(r"aten\.(empty.*|new_empty.*|set_|resize_|record_stream|_unsafe_view)")
_READS_NO_VALUES = re.compile(r"aten\.(.*_like|new_.*)")
_OVERWRITES = re.compile(
    r"aten\.(copy_|zero_|fill_|normal_|uniform_|bernoulli_|random_|exponential_|randperm_"
    r"|_foreach_copy_|_foreach_zero_)"
)
_COPIES_FIRST = "fsdp.all_gather_copy_in"  # into another argument, which it returns
_READS_PART = re.compile(r"aten\.(embedding|gather|index|index_select)")


class Traffic(NamedTuple):
    """Bytes of memory."""

    read: int
    written: int


def operation_traffic(
    name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Traffic:
    """Return the bytes that one call of ``func`` moves. A view moves none.

    An argument that is changed is read and written, unless it is an ``out=`` or is overwritten as
    a whole. A table that is indexed is read as far as the result is large.
    """
    if _UNTOUCHED.fullmatch(name):
        return Traffic(0, 0)
    read, written = [], 0
    changed = False
    for argument, value in _arguments(func, args, kwargs):
        size = sum(map(_touched_bytes, tensors(value)))
        info = argument.alias_info
        if info is None or not info.is_write:
            read.append(size)
            continue
        changed = True
        written += size
        if not argument.kwarg_only and not _OVERWRITES.fullmatch(name):
            read.append(size)
    if name == _COPIES_FIRST:
        return Traffic(read[0], read[0])
    if not changed:
        new = [tensor for tensor in tensors(out) if not _is_shared(tensor, args, kwargs)]
        if not new and any(True for _ in tensors(out)):
            return Traffic(0, 0)  # a view
        written = sum(map(_touched_bytes, new))
    if _READS_NO_VALUES.fullmatch(name):
        return Traffic(0, written)
    if _READS_PART.fullmatch(name):
        read[0] = min(read[0], written)
    return Traffic(sum(read), written)


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with a storage that ``tensor`` consists of: itself, or a DTensor's part."""
    wrapper: Any = tensor
    if is_wrapper(wrapper):
        for name in wrapper.__tensor_flatten__()[0]:
            for inner in tensors(getattr(tensor, name)):  # nothing for a DTensor's mesh
                yield from plain_tensors(inner)
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())


def storages(value: Any) -> Iterator[torch.UntypedStorage]:
    """Yield the storage of each tensor in an argument or a result of an operator."""
    for tensor in tensors(value):
        for plain in plain_tensors(tensor):
            yield plain.untyped_storage()


def _arguments(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield each given argument with its part of the schema."""
    schema = func._schema.arguments
    yield from zip(schema, args, strict=False)
    for argument in schema[len(args) :]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _touched_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of the tensor's elements, each place in memory once."""
    return sum(map(_distinct_bytes, plain_tensors(tensor)))


def _distinct_bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride or not size else 1
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def _is_shared(tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = {storage._cdata for storage in storages([*args, *kwargs.values()])}
    return all(storage._cdata in given for storage in storages(tensor))


# The memory of a step by counting storages: when they are allocated, and when they are freed.


class _Storage(NamedTuple):
    reference: weakref.ref[torch.UntypedStorage]
    bytes: int
    spot: Spot


class MemoryTracker:
    """A tracker of the storages that operations allocate.

    The Python object of a storage lives as long as the storage, also where only C++ uses it. So a
    weak reference shows when the memory is freed.
    """

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}  # by address; only those that live
        self.begin_step()

    def begin_step(self) -> None:
        """Count from here on: what lives now is the level zero, and held by the step."""
        self.held: Counter[Spot] = Counter()  # bytes
        for storage in self._storages.values():
            self.held[storage.spot] += storage.bytes
        self.allocations = self.allocated = 0
        self.peak = self._level = 0
        self.kept: Counter[Spot] = Counter()  # bytes, net of what was freed

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        """Return whether an operation allocated ``storage`` since the tracker began."""
        return storage._cdata in self._storages

    def add(self, out: Any, given: Any, spot: Spot) -> None:
        """Add the storages of an operation's results ``out`` that are not in its arguments."""
        there = {storage._cdata for storage in storages(given)}
        for storage in storages(out):
            if storage._cdata not in there and storage not in self:
                self._set(storage, storage.nbytes(), spot)

    @contextlib.contextmanager
    def track_resizing(self, spot: Any) -> Iterator[None]:
        """Note resized storages inside the ``with`` block: FSDP empties storages, and fills them.

        ``spot`` is called for the place where that happens.
        """
        original = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            before = storage.nbytes()
            if storage not in self:
                self._hold(storage, before, spot())
            result = original(storage, size)
            held = self._storages.pop(storage._cdata)
            self._change(-held.bytes, held.spot)
            self._set(storage, storage.nbytes(), held.spot)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]

    def _set(self, storage: torch.UntypedStorage, size: int, spot: Spot) -> None:
        if size:
            self.allocations += 1
            self.allocated += size
        self._hold(storage, size, spot)
        self._change(size, spot)

    def _hold(self, storage: torch.UntypedStorage, size: int, spot: Spot) -> None:
        forget = functools.partial(self._forget, storage._cdata)
        self._storages[storage._cdata] = _Storage(weakref.ref(storage, forget), size, spot)

    def _forget(self, address: int, reference: weakref.ref[torch.UntypedStorage]) -> None:
        held = self._storages.get(address)
        if held is not None and held.reference is reference:
            del self._storages[address]
            self._change(-held.bytes, held.spot)

    def _change(self, size: int, spot: Spot) -> None:
        self._level += size
        self.kept[spot] += size
        self.peak = max(self.peak, self._level)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage, then none inside the ``with`` block: it would free memory at any time."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# The operations and collectives of a step, by phase and by place in the source.


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
        if infers_on_fake_tensors():  # a shard's result: it issues nothing
            return func(*args, **(kwargs or {}))
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


# The tensors that a forward saves for its backward.


class SavedTensors:
    """A counter of the storages that autograd holds at the end of a forward.

    Parameters, buffers and a batch that serves all steps are not counted: they live anyway, and so
    does all that was there before the tracked step. A checkpointed block saves its input only.
    """

    def __init__(self, memory: MemoryTracker) -> None:
        self.count = self.bytes = 0  # of the forward that saves most
        self._memory = memory
        self._held: weakref.WeakSet[_Saved] = weakref.WeakSet()

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Count what is saved inside the ``with`` block. The hooks dispatch views of their own."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack), paused_saved_hooks():
            yield

    def end_phase(self, phase: str) -> None:
        """Count, if it was a forward."""
        if phase == "forward":
            held = {
                storage._cdata: storage.nbytes()
                for saved in self._held
                for storage in storages(saved.tensor)
                if storage in self._memory and storage.nbytes()
            }
            self.count = max(self.count, len(held))
            self.bytes = max(self.bytes, sum(held.values()))

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor)
        self._held.add(saved)
        return saved


class _Saved:
    """A saved tensor. It lives as long as autograd holds it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _unpack(saved: _Saved) -> torch.Tensor:
    return saved.tensor


# The record of one step of a training: the exact counts of all it does, and where.


def record_step(
    training: Training, *, makers: Makers, import_paths: Sequence[str] = ()
) -> StepPlan[StepWork]:
    """Wait for settled steps of ``training`` and return the counts of the last one.

    ``makers`` were noted while the training was built. A step before the counted one shows what the
    counted one frees, and what is saved for the backward: the hooks for that add operations.
    """
    finder = SpotFinder(training.module, makers)
    recorder = OperationRecorder(finder)
    saved = SavedTensors(recorder.memory)
    with note_host_copies(recorder.add_host_copy):  # a wait for a GPU would raise on a CPU
        yield from training.settle(SETTLED_AFTER)
    with (
        no_garbage_collection(),
        recorder,
        recorder.memory.track_resizing(finder.here),
        note_host_copies(recorder.add_host_copy),
    ):
        with saved.observe(), training.observe(saved.end_phase, recorder.add_loss):
            yield
        yield from training.settle(SETTLED_AFTER)
        recorder.begin_step()
        with training.observe(recorder.end_phase, recorder.add_loss), count_calls() as calls:
            yield
        memory = MemoryCount(
            allocations=recorder.memory.allocations,
            allocated=recorder.memory.allocated,
            saved_tensors=saved.count,
            saved=saved.bytes,
            peak=recorder.memory.peak,
            kept=recorder.memory.kept.total(),
            held=recorder.memory.held.total(),
        )
        kept = Counter(recorder.memory.kept)
    return _step_work(training, recorder, memory, kept, calls, SiteNames(import_paths))


def _step_work(
    training: Training,
    recorder: OperationRecorder,
    memory: MemoryCount,
    kept: Counter[Spot],
    calls: Counter[Call],
    names: SiteNames,
) -> StepWork:
    called, callers = _calls(calls)
    held = recorder.memory.held
    spots = {key.spot for _, key in recorder.operations} | {*kept, *held, *called, *callers}
    site_of = {spot: names.site(spot) for spot in spots | {c.spot for c in recorder.collectives}}
    sites = sorted(set(site_of.values()))
    number = {spot: sites.index(site) for spot, site in site_of.items()}
    issued = tuple(collective.counted(number) for collective in recorder.collectives)
    return StepWork(
        structure=structure_of(training.module, (one.collective for one in recorder.collectives)),
        sites=tuple(sites),
        operations=_operations(recorder, number),
        collectives=issued,
        memory=memory,
        kept=tuple(KeptMemory(site=site, bytes=n) for site, n in _by_site(kept, number)),
        held=tuple(KeptMemory(site=site, bytes=n) for site, n in _by_site(held, number)),
        calls=tuple(CallCount(site=site, count=n) for site, n in _by_site(called, number)),
        callers=tuple(CallCount(site=site, count=n) for site, n in _by_site(callers, number)),
        autograd_nodes=dict(sorted(recorder.nodes.items())),
    )


def _calls(calls: Counter[Call]) -> tuple[Counter[Spot], Counter[Spot]]:
    """Return the calls by the definitions of the functions, and by the lines that call them."""
    called, callers = Counter[Spot](), Counter[Spot]()
    for (code, caller), count in calls.items():
        called[Spot(SourceLine(code, code.co_firstlineno), "")] += count
        if caller is not None:
            callers[Spot(caller, "")] += count
    return called, callers


def _by_site(numbers: Counter[Spot], site_of: dict[Spot, int]) -> list[tuple[int, int]]:
    """Return each site with its number, sorted. Two spots may be one site."""
    totals = Counter[int]()
    for spot, number in numbers.items():
        totals[site_of[spot]] += number
    return sorted((site, number) for site, number in totals.items() if number)


def _operations(recorder: OperationRecorder, number: dict[Spot, int]) -> tuple[OperationCount, ...]:
    """Return the operations with the numbers of their sites. Two spots may be one site."""
    tallies: defaultdict[tuple[Phase, str, str, int], OperationTally] = defaultdict(OperationTally)
    for (phase, key), tally in recorder.operations.items():
        tallies[phase, key.name, key.dtype, number[key.spot]].add(tally)
    return tuple(
        OperationCount(
            phase=phase,
            name=name,
            dtype=dtype,
            site=site,
            count=tally.count,
            read=tally.read,
            written=tally.written,
            flops=tally.flops,
        )
        for (phase, name, dtype, site), tally in sorted(tallies.items(), key=lambda item: item[0])
    )
