"""The measurement of a script on one rank: it runs as it is, until all figures are there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import LaunchRequest, Placement, RankResult
from ddp_perf.errors import ScriptError
from ddp_perf.torch_compat import compiles_by_itself, uncompiled
from ddp_perf.worker.counting.structure import (
    SETTLED_AFTER,
    FlopCounter,
    StepCounts,
    count_structure,
    ddp_logging,
    parameter_digest,
)
from ddp_perf.worker.emulation import EMULATED, register_emulation
from ddp_perf.worker.injection.effects import Injected
from ddp_perf.worker.measure import (
    Prepared,
    control_before,
    measurement,
    peak_memory_of,
)
from ddp_perf.worker.process_group import place_script, placement_on, set_variables
from ddp_perf.worker.rank_context import RankContext, RankStart
from ddp_perf.worker.script import refusals
from ddp_perf.worker.script.groups import groups_of
from ddp_perf.worker.script.private_tree import PrivateTree
from ddp_perf.worker.script.run import (
    become_main,
    run_as_main,
    script_file,
    set_torchrun_variables,
    stack_signal_kept,
)
from ddp_perf.worker.script.steps import ScriptSteps
from ddp_perf.worker.step_probe import probe
from ddp_perf.worker.steps.protocol import StepFacts, StepPlan, StepsEndedError
from ddp_perf.worker.timing.clock import NO_STRUCTURE, all_agree
from ddp_perf.worker.timing.timed_steps import LEAST_EXTRA_WARMUPS


def measure_script(
    request: LaunchRequest,
    start: RankStart,
    *,
    directory: Path,
    end: Callable[[Callable[[], RankResult]], NoReturn],
) -> RankResult:
    """Run the script of the request's case on one rank, and measure it.

    The script makes the process group itself. ``directory`` is for this launch alone. ``end`` is
    called in the middle of the script when all figures are there. If the script is over just
    before, they are returned. Collective.
    """
    case, rank, local_rank = request.case, start.rank, start.local_rank
    assert case.script is not None  # that is what is measured
    file = script_file(case.script, [*request.import_paths, str(Path.cwd())])
    set_variables(case)
    placed = place_script(case, rank, local_rank, shared_gpu=request.shared_gpu)
    meeting = set_torchrun_variables(case, rank, start.store)
    roots = request.import_paths if file is None else (*request.import_paths, str(file.parent))
    tree = PrivateTree(directory, roots) if case.script.scratch else None
    run = case.script
    become_main(run, file)
    steps: ScriptSteps[RankResult] = ScriptSteps(
        case, rank, start.heartbeats, needed=needed_steps(request)
    )

    def context() -> RankContext:
        device, placement = placed or _on_used_gpu(case, rank, steps)
        return RankContext(
            rank=rank,
            device=device,
            placement=placement,
            heartbeats=start.heartbeats,
            examination=start.examination,
        )

    def with_files(work: Callable[[], RankResult]) -> RankResult:
        return work() if tree is None else _with_files(work, tree, lists_own=local_rank == 0)

    plan = _plan(request, context, steps)
    groups: AbstractContextManager[None] = contextlib.nullcontext()
    if register_emulation(request):
        groups = groups_of(EMULATED, rank, case.world_size)
    with (
        stack_signal_kept(),
        contextlib.nullcontext() if tree is None else tree.entered(),
        groups,
    ):
        result = with_files(
            lambda: steps.run(
                plan, lambda: run_as_main(run, file), lambda work: end(lambda: with_files(work))
            )
        )
    del meeting  # not before: the other ranks may still be clients of it
    return result


def _with_files(
    work: Callable[[], RankResult], tree: PrivateTree, *, lists_own: bool
) -> RankResult:
    """Return a result with the files that the script wrote: one rank lists those of a tree.

    A ScriptError names the user's files that were changed before it.
    """
    try:
        result = work()
    except ScriptError as error:
        changed = ", ".join(_listed(tree.changed_outside))
        raise ScriptError(f"{error}; the script changed {changed}") if changed else error from None
    assert result.script is not None
    facts = msgspec.structs.replace(
        result.script,
        own_files=_listed(tree.own_files) if lists_own else (),
        changed_files=_listed(tree.changed_outside),
    )
    return msgspec.structs.replace(result, script=facts)


def _listed(files: Callable[[], list[str]]) -> tuple[str, ...]:
    """Return the files. If that fails, only the output of the rank states so."""
    try:
        return tuple(files())
    except Exception as error:  # noqa: BLE001 – whatever it is, the launch is measured
        print(f"not all that the script wrote is listed: {error!r}", file=sys.stderr)
        return ()


def _on_used_gpu(
    case: Case, rank: int, steps: ScriptSteps[RankResult]
) -> tuple[torch.device, Placement]:
    device = steps.used_gpu()
    return device, placement_on(device, case, rank)


def needed_steps(request: LaunchRequest) -> int:
    """Return the fewest steps that a measurement needs; the probe is left out if there are none."""
    case = request.case
    extra = LEAST_EXTRA_WARMUPS if case.tier == "gpu" else 0
    traced = 1 + request.profiling.steps if request.profiling is not None else 0
    return SETTLED_AFTER + 2 + extra + case.schedule.steps + traced


def _plan(
    request: LaunchRequest, placed: Callable[[], RankContext], steps: ScriptSteps[RankResult]
) -> StepPlan[RankResult]:
    """Apply the injections, count two steps, then measure.

    It begins after the first step: before, a script may choose its GPU, and set variables that CUDA
    reads at its first use. A script may be over soon after the timed steps, so steps are counted
    before them. Compiled ones are counted after them: they run uncompiled, and may then need more
    memory than there is.
    """
    context = placed()
    with steps.own_device:  # until the first step, the current device is the script's
        peak = peak_memory_of(context.device)
        control_s = control_before(context.device)
        injected = Injected(request.injections, context)
    yield from steps.settle(SETTLED_AFTER)
    _check_device(request.case, steps, context.device)
    yield from injected.apply_to_script(steps)
    counts = None if compiles_by_itself() else (yield from _count(request.case, steps, context))
    steps.facts()  # those of the steps before
    examination = _examine(request, steps, counts, context)
    prepared = Prepared(
        injected=injected,
        control_s=control_s,
        peak=peak,
        owes_steps=counts is None or request.profiling is not None,
    )
    result = yield from measurement(request, context, steps, examination, prepared)
    if dist.is_initialized():
        context.examination.meet(result)  # rank 0 has the store that the others may still need
    return result


class _Counts(NamedTuple):
    """The counts of one step, and the FLOPs of the next one; None: a count failed."""

    step: StepCounts | None
    next_flops: int | None


def _count(case: Case, steps: ScriptSteps[RankResult], context: RankContext) -> StepPlan[_Counts]:
    """Count two steps. Raises ScriptError if the ranks train apart."""
    guard = context.examination
    step = yield from count_structure(steps.module, guard)
    with uncompiled(), FlopCounter() as again:
        yield
    next_flops = guard.alone("structure", lambda: again.flops)
    if case.world_size > 1 and step is not None and not step.structure.collectives:
        raise refusals.no_collective(case)
    return _Counts(step, next_flops)


def _check_device(case: Case, steps: ScriptSteps[RankResult], device: torch.device) -> None:
    """Raise ScriptError if the ranks train on another device than the one that is measured."""
    parameter = next(steps.module.parameters(), None)
    if parameter is None or parameter.device == device:
        return
    is_offloaded = steps.strategy == "fsdp" and parameter.device.type == "cpu"
    if not is_offloaded:
        raise refusals.other_device(case, str(parameter.device), str(device))


def _examine(
    request: LaunchRequest,
    steps: ScriptSteps[RankResult],
    counts: _Counts | None,
    context: RankContext,
) -> StepPlan[StepFacts]:
    """Return the facts of a step, and probe further ones if the script has so many.

    ``counts``: None if steps are still to be counted.
    """
    guard = context.examination
    facts = steps.facts()  # of the timed steps
    module = steps.module
    digest = yield from guard.together("digest", _digest(steps))
    logging = guard.alone("ddp_logging", lambda: ddp_logging(module))
    if counts is None:
        counts = yield from guard.together("structure", _count(request.case, steps, context))
    step, next_flops = counts or _Counts(None, None)
    probed = yield from guard.together("probe", _probed(request, steps, step, context))
    return StepFacts(
        digest=digest,
        structure=step.structure if step is not None else None,
        probe=probed,
        ddp_logging=logging or {},
        flops=step.flops if step is not None else None,
        flops_by_format=step.flops_by_format if step is not None else {},
        one_batch=step is not None and step.flops == next_flops,  # as far as two steps show it
        script=facts,
    )


def _digest(steps: ScriptSteps[RankResult]) -> StepPlan[int | None]:
    yield from ()
    module = steps.module
    is_flat = any(isinstance(one, FullyShardedDataParallel) for one in module.modules())
    # Shards of FSDP1 differ by rank. Those of FSDP2 are gathered, which needs the group.
    can_digest = not is_flat and (steps.strategy != "fsdp" or dist.is_initialized())
    return parameter_digest(module) if can_digest else None


def _probed(
    request: LaunchRequest,
    steps: ScriptSteps[RankResult],
    counts: StepCounts | None,
    context: RankContext,
) -> StepPlan[RankProbe | None]:
    device = context.device
    if not all_agree(counts is not None, device) or counts is None:
        context.examination.missing.setdefault("probe", NO_STRUCTURE)
        return None
    structure = counts.structure
    with contextlib.suppress(StepsEndedError):  # the times are there
        return (yield from probe(request.case, steps, structure, device, request.probe_steps))
    return None
