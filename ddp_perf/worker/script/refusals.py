"""The errors of a script that cannot be measured: what, where, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_perf.core.case import Case
from ddp_perf.core.subject import BY_OPTIMIZER
from ddp_perf.errors import ScriptError

_OTHERWISE = "name the function that ends a step: steps_by: module:function"


def no_step(case: Case, how: str) -> ScriptError:
    """Return the error of a script that ended before its first step."""
    assert case.script is not None
    if case.script.steps_by == BY_OPTIMIZER:
        return ScriptError(
            f"{case.workload} ended ({how}) without a step of an optimizer of torch in this"
            f" process; if it steps otherwise, {_OTHERWISE}"
        )
    return ScriptError(
        f"{case.workload} ended ({how}), and {case.script.steps_by} never returned before; let"
        " steps_by name a function that ends each step, in the module where the script finds it"
    )


def too_few_steps(case: Case, how: str, done: int, steps_at: str, needed: int) -> ScriptError:
    """Return the error of a script that ended before its measurement was through."""
    if done >= needed:  # a GPU warms up until its step is steady; an injection is calibrated
        return ScriptError(
            f"{case.workload} ended ({how}) after {_steps(done)} ({steps_at}), which are too few to"
            f" warm up and then time {case.schedule.steps} of them; let it train longer, or lower"
            " `steps:`"
        )
    before = needed - case.schedule.steps
    least = "at least " if case.tier == "gpu" else ""  # a GPU warms up for as long as it takes
    enough = done - before if case.tier == "cpu" else 0
    to = f" to {enough}" if enough > case.schedule.warmup else ""
    return ScriptError(
        f"{case.workload} ended ({how}) after {_steps(done)} ({steps_at}), but needs"
        f" {least}{needed}: {case.schedule.steps} of `steps:`, and {before} before them; let it"
        f" train longer, or lower `steps:`{to}"
    )


def too_few_to_count(case: Case, how: str, done: int, steps_at: str, needed: int) -> ScriptError:
    """Return the error of a script that ended before the step that is counted."""
    return ScriptError(
        f"{case.workload} ended ({how}) after {_steps(done)} ({steps_at}), but step {needed} is"
        " the one that is counted; let it train longer"
    )


def failed_exit(case: Case, how: str, done: int) -> ScriptError:
    """Return the error of a script that ended with an exit code of a failure."""
    return ScriptError(f"{case.workload} failed after {_steps(done)}: {how}")


def ended_apart(case: Case, how: str, done: int, others: Mapping[int, int | None]) -> ScriptError:
    """Return the error of a rank whose script ended at another step than that of ``others``.

    These are the steps of each other rank; None: it trains on.
    """
    ranks = " and ".join(
        f"rank {rank} " + ("goes on" if steps is None else f"ended after {steps}")
        for rank, steps in others.items()
    )
    return ScriptError(
        f"{case.workload} ended here ({how}) after {_steps(done)}, while {ranks};"
        " let each rank train as many steps, as with DistributedSampler or drop_last=True"
    )


def no_group(case: Case, steps_at: str) -> ScriptError:
    """Return the error of a script that has no process group at its first step."""
    return ScriptError(
        f"{case.workload} has no process group at its first step ({steps_at}), so its"
        f" {case.world_size} ranks train apart; let it call torch.distributed.init_process_group,"
        " or keep world_sizes: [1]"
    )


def other_group(case: Case, ranks: int) -> ScriptError:
    """Return the error of a script whose process group has another number of ranks."""
    return ScriptError(
        f"{case.workload} has a process group of {ranks} rank{'' if ranks == 1 else 's'}, not of"
        f" {case.world_size}; let it take RANK and WORLD_SIZE from the environment, as torchrun"
        " sets them"
    )


def no_collective(case: Case) -> ScriptError:
    """Return the error of ranks that exchange nothing in a step."""
    return ScriptError(
        f"no collective in a step of {case.workload}, so its {case.world_size} ranks train apart;"
        " let it wrap the model in DistributedDataParallel or FSDP, or keep world_sizes: [1]"
    )


def other_device(case: Case, device: str, wanted: str) -> ScriptError:
    """Return the error of a script that trains on another device than its tier states."""
    return ScriptError(
        f"{case.workload} trains on {device}, but tier {case.tier} measures {wanted}; set `tier:`"
        " or the script's own option for its device"
    )


def steps_in_backward(case: Case, steps_at: str) -> ScriptError:
    """Return the error of a script whose optimizers step while gradients are computed."""
    return ScriptError(
        f"{case.workload} steps its optimizers within the backward ({steps_at}), so none of them"
        f" ends a step; {_OTHERWISE}"
    )


def own_ranks(case: Case, line: str) -> ScriptError:
    """Return the error of a script that starts the processes that train."""
    return ScriptError(
        f"{case.workload} starts its own ranks ({line}); let it train in the process that it is"
        " started in, as under torchrun: without mp.spawn or ddp_spawn, by RANK, LOCAL_RANK and"
        " WORLD_SIZE"
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
