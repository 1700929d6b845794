"""Counting a step of a script on one rank that runs alone, on a CPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch
from torch.distributed import HashStore

from ddp_perf.core.subject import ScriptRun
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.errors import NeedsGpuError
from ddp_perf.torch_compat import foreach_on_cpu
from ddp_perf.torch_compat.internals import modes_disabled, worker_batches
from ddp_perf.worker.counting.count import Computing, limit_memory
from ddp_perf.worker.counting.sites import Makers, note_makers, own_package
from ddp_perf.worker.counting.step_recorder import record_step
from ddp_perf.worker.counting.structure import SETTLED_AFTER
from ddp_perf.worker.lone_group import LONE, register_lone_backend
from ddp_perf.worker.process_group import set_variables
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.script.groups import groups_of
from ddp_perf.worker.script.hooks import patched
from ddp_perf.worker.script.private_tree import PrivateTree
from ddp_perf.worker.script.refusals import too_few_to_count
from ddp_perf.worker.script.run import (
    become_main,
    run_as_main,
    script_file,
    set_torchrun_variables,
    stack_signal_kept,
)
from ddp_perf.worker.script.steps import ScriptSteps, line_here
from ddp_perf.worker.steps.protocol import StepPlan, seed_all

# The batches that a script's data loader gets from its worker processes.


@contextlib.contextmanager
def unrecorded_batches() -> Iterator[None]:
    """Let no mode see the operations that receive a worker's batch, inside the ``with`` block.

    Batches come when they are ready, in any order: two may come in one step, and none in the next.
    """
    with patched(*worker_batches(), _receive_unseen):
        yield


def _receive_unseen(receive: Callable[[Any], Any], loader: Any) -> Any:
    with modes_disabled():
        return receive(loader)


# Counting a step of a script on one rank that runs alone, on a CPU.


_COUNTED_STEP = SETTLED_AFTER + 2  # one shows what is saved for the backward


def count_script(
    request: CountRequest,
    *,
    heartbeats: Heartbeats,
    directory: Path,
    end: Callable[[Callable[[], StepWork]], NoReturn],
) -> StepWork:
    """Run the script of the request's case on one rank, and return the work of a settled step.

    It runs as in a launch, with its values computed, on a CPU: it finds no GPU. Every process group
    that it makes is that of a lone rank. Its generators begin with a seed, so what it draws is the
    same in each count. ``directory`` and ``end``: see ``measure_script``.
    """
    run = request.case.script
    assert run is not None  # that is what is counted
    paths = (*request.import_paths, str(Path.cwd()))  # the script may change the directory
    file = script_file(run, paths)
    if run.is_module:
        own_package(run.script)
    case = msgspec.structs.replace(request.case, tier="cpu")
    set_variables(case)
    limit_memory()
    torch.set_num_threads(case.threads_per_rank)
    alone = msgspec.structs.replace(case, nodes=1)
    meeting = set_torchrun_variables(alone, 0, HashStore())  # as rank 0, which waits for no other
    os.environ["ROLE_RANK"] = str(request.rank)
    become_main(run, file)
    seed_all()
    steps: ScriptSteps[StepWork] = ScriptSteps(
        case, request.rank, heartbeats, needed=_COUNTED_STEP, short=too_few_to_count
    )
    tree = PrivateTree(directory, paths) if run.scratch else None
    register_lone_backend()
    with (
        contextlib.nullcontext() if tree is None else tree.entered(),
        groups_of(LONE, request.rank, case.world_size),
        _without_cuda(run),
        foreach_on_cpu() if request.case.tier == "gpu" else contextlib.nullcontext(),
        Computing(),  # type: ignore[no-untyped-call]
        unrecorded_batches(),
        note_makers() as makers,
        stack_signal_kept(),
    ):
        # By a path such as "src", modules are imported from where the script works.
        paths = (*paths, str(Path.cwd()))
        work = steps.run(_plan(steps, makers, paths), lambda: run_as_main(run, file), end)
    del meeting
    return work


def _plan(
    steps: ScriptSteps[StepWork], makers: Makers, paths: tuple[str, ...]
) -> StepPlan[StepWork]:
    yield from steps.settle(SETTLED_AFTER)  # then all optimizers have stepped: the module is known
    work = yield from record_step(steps, makers=makers, import_paths=paths)
    return msgspec.structs.replace(work, computed=True)


@contextlib.contextmanager
def _without_cuda(run: ScriptRun) -> Iterator[None]:
    """Raise NeedsGpuError where the script uses CUDA inside the ``with`` block."""

    def refuse(original: object, *args: object) -> NoReturn:
        raise NeedsGpuError(
            f"{run.script} uses CUDA ({line_here()}), and a step is counted on a CPU; let the"
            " script choose its device by torch.cuda.is_available()"
        )

    with patched(torch.cuda, "_lazy_init", refuse), patched(torch.cuda, "set_device", refuse):
        yield
