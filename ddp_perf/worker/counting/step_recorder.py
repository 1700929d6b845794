"""The record of one step of a training: the exact counts of all it does, and where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ddp_perf.core.work import (
    CallCount,
    KeptMemory,
    MemoryCount,
    OperationCount,
    Phase,
    StepWork,
)
from ddp_perf.worker.counted.calls import Call, count_calls
from ddp_perf.worker.counted.host_copies import note_host_copies
from ddp_perf.worker.counted.makers import Makers
from ddp_perf.worker.counted.memory import no_garbage_collection
from ddp_perf.worker.counted.operations import OperationRecorder, OperationTally
from ddp_perf.worker.counted.origin import SourceLine
from ddp_perf.worker.counted.saved import SavedTensors
from ddp_perf.worker.counting.sites import SiteNames, Spot, SpotFinder
from ddp_perf.worker.counting.structure import SETTLED_AFTER, structure_of
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Training


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
