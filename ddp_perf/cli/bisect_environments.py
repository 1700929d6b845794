"""``ddp-perf bisect --good-env A --bad-env B``: the package or variable that is to blame."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import NoReturn

import msgspec
import typer

from ddp_perf.cli.ending import TerminatedError, raise_terminated
from ddp_perf.cli.progress import BudgetProgress, write_line
from ddp_perf.core.case import Case
from ddp_perf.core.exit_code import ExitCode
from ddp_perf.duel.cases import match_cases
from ddp_perf.duel.environments.run import EnvironmentRun, find_differences
from ddp_perf.duel.environments.sides import parse_environment, prepare_environment
from ddp_perf.duel.environments.text import environments_json, environments_text
from ddp_perf.duel.launchers import side_launcher
from ddp_perf.duel.sides.cache import cache_shelf
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import ConfigError, LaunchError, SideError
from ddp_perf.render.units import counted
from ddp_perf.session.measure.machine import open_machine
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch


def bisect_environments(
    good: str, bad: str, case_id: str, *, confidence: float, budget_s: float, as_json: bool
) -> NoReturn:
    """Find what makes environment ``bad`` slower than ``good``, print it, and exit.

    ``confidence`` is that none of the probes of one culprit finds a slow-down that is not there.
    The exit codes are those of the command: 0 if every culprit is found, 75 if not.
    """
    check_can_launch()
    root, capacity = Path.cwd(), find_capacity()
    sides = parse_environment(good, "A", root), parse_environment(bad, "B", root)
    with contextlib.ExitStack() as stack:
        a, b = (
            stack.enter_context(prepare_environment(side, root, on_progress=write_line))
            for side in sides
        )
        case = _case(a, b, case_id, capacity)
        differences = find_differences(a, b)
        write_line(f"{counted(len(differences.factors), 'difference')} of {b.side.spec} to probe")
        # Each probe closes its own launchers.
        nothing = contextlib.ExitStack()
        stack.enter_context(
            open_machine(capacity, nothing, on_wait=write_line, on_sigterm=raise_terminated)
        )
        run = EnvironmentRun(
            a,
            b,
            case,
            differences,
            logs=cache_shelf("bisect", 0, os.environ).path,
            machine=f"{capacity.host.name}, {capacity.accelerator_key(case.tier)}",
            confidence=confidence,
        )
        stack.enter_context(contextlib.closing(run.log))
        if run.log.probes:
            write_line(f"goes on after {counted(len(run.log.probes), 'probe')} of {run.log.path}")
        elif run.log.changed:
            write_line(f"begins anew, since conditions have changed: {', '.join(run.log.changed)}")
        ended = _measure(run, budget_s)
        result = run.result()
    width = shutil.get_terminal_size().columns
    typer.echo(environments_json(result) if as_json else environments_text(result, width))
    if ended is not None:
        write_line(ended[0])
        raise typer.Exit(ended[1])
    found = result.search.complete and bool(result.search.culprits)
    raise typer.Exit(ExitCode.GREEN if found else ExitCode.UNDECIDED)


def _case(a: PreparedSide, b: PreparedSide, case_id: str, capacity: Capacity) -> Case:
    """Return the case without the variables of a side, which each hybrid has its own of.

    Raises ConfigError if there is no such case, or if it cannot run with those of a side.
    """
    plain_a, plain_b = (msgspec.structs.replace(side, variables={}) for side in (a, b))
    for older, newer in ((a, b), (plain_a, plain_b)):
        matched = match_cases(older, newer, capacity, ids=[case_id])
        for missing in matched.missing:
            raise ConfigError(f"{missing.case_id}: {missing.reason}")
    return matched.cases[0].a


def _measure(run: EnvironmentRun, budget_s: float) -> tuple[str, int] | None:
    """Return why the search ended early, and the exit code of that; None if it did not."""
    go_on = "run the same command again to go on"
    with BudgetProgress(budget_s) as progress:
        try:
            run.run(
                side_launcher,
                until=progress.until,
                on_probe=lambda probes: progress.show(f"probe {probes} done"),
            )
        except KeyboardInterrupt:
            return f"interrupted; {go_on}", ExitCode.INTERRUPTED
        except TerminatedError:
            return f"ended by SIGTERM; {go_on}", ExitCode.TERMINATED
        except (LaunchError, SideError) as error:
            return f"{error}; {go_on}", int(ExitCode.UNDECIDED)
    return None
