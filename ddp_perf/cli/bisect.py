"""``ddp-perf bisect``: the commit, the package or the variable that made a case slower."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from ddp_perf.cli.command import (
    AsJson,
    Budget,
    budget_seconds,
    print_result,
    write_line,
)
from ddp_perf.cli.emulation import Emulate, Network, case_overrides
from ddp_perf.cli.measuring import AGAIN, checked_environment, endable, going_on, leased
from ddp_perf.config.loading import Overrides
from ddp_perf.core.case import Case
from ddp_perf.duel.bisect.commits import CommitLine, commit_line
from ddp_perf.duel.bisect.find import CommitSearch
from ddp_perf.duel.bisect.opening import (
    CommitTurn,
    CommitTurns,
    open_commit,
    version_line,
    with_comparisons,
)
from ddp_perf.duel.bisect.report import build_bisect
from ddp_perf.duel.bisect.search import open_commit_log
from ddp_perf.duel.cases import match_cases
from ddp_perf.duel.environments.report import build_environments
from ddp_perf.duel.environments.run import (
    EnvironmentRun,
    find_differences,
    parse_environment,
    prepare_environment,
)
from ddp_perf.duel.open_sides import side_launcher
from ddp_perf.duel.sides.checkout import cache_shelf
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import ConfigError, ExitCode, LaunchError, SideError
from ddp_perf.render.units import counted
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch

# ``ddp-perf bisect --good-env A --bad-env B``: the package or variable that is to blame.


def bisect_environments(
    good: str,
    bad: str,
    case_id: str,
    *,
    overrides: Overrides | None = None,
    budget_s: float,
    as_json: bool,
) -> NoReturn:
    """Find what makes environment ``bad`` slower than ``good``, print it, and exit.

    The exit codes are those of the command: 0 if every culprit is found, 75 if not.
    """
    root, capacity = Path.cwd(), find_capacity()
    sides = parse_environment(good, "A", root), parse_environment(bad, "B", root)
    ready_a, ready_b = (prepare_environment(one, root, on_progress=write_line) for one in sides)
    run: EnvironmentRun | None = None
    with endable(AGAIN, LaunchError) as ending, ready_a as a, ready_b as b:
        case = _case(a, b, case_id, capacity, overrides)
        differences = find_differences(a, b)
        write_line(f"{counted(len(differences.factors), 'difference')} of {b.side.spec} to probe")
        logs = cache_shelf("bisect", 0, os.environ).path
        machine = f"{capacity.host.name}, {capacity.accelerator_key(case.tier)}"
        with leased(capacity, contextlib.ExitStack()):  # each probe closes its own launchers
            run = EnvironmentRun(a, b, case, differences, logs=logs, machine=machine)
            with going_on(run.log, budget_s) as progress:
                run.run(side_launcher, until=progress.until, on_launch=progress.launched)
    if run is None:
        ending.exit(ExitCode.UNDECIDED)
    result = run.result()
    print_result(result, [build_environments(result)], as_json=as_json)
    found = result.search.complete and bool(result.search.culprits)
    ending.exit(ExitCode.GREEN if found else ExitCode.UNDECIDED)


def _case(
    a: PreparedSide, b: PreparedSide, case_id: str, capacity: Capacity, overrides: Overrides | None
) -> Case:
    """Return the case without the variables of a side, which each hybrid has its own of.

    Raises ConfigError if there is no such case, or if it cannot run with those of a side.
    """
    plain_a, plain_b = (msgspec.structs.replace(side, variables={}) for side in (a, b))
    for older, newer in ((a, b), (plain_a, plain_b)):
        matched = match_cases(older, newer, capacity, ids=[case_id], overrides=overrides)
        for missing in matched.missing:
            raise ConfigError(f"{missing.case_id}: {missing.reason}")
    return matched.cases[0].a


# ``ddp-perf bisect``: the commit that made a case slower.


def bisect(
    case: Annotated[
        str, typer.Option("--case", metavar="ID", help="Id of a case, which both commits have.")
    ],
    good: Annotated[
        str | None, typer.Option("--good", metavar="REV", help="A commit where the case was fast.")
    ] = None,
    bad: Annotated[
        str | None, typer.Option("--bad", metavar="REV", help="A later commit where it is slow.")
    ] = None,
    good_env: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Instead of commits: an environment where the case was fast. python:PATH,"
            ' torch==VERSION, env:NAME=VALUE, or two of them, as in "python:PATH env:NAME=VALUE".',
        ),
    ] = None,
    bad_env: Annotated[
        str | None, typer.Option(metavar="ENV", help="The environment where it is slow.")
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            metavar="GOOD..BAD",
            help="Instead of commits: versions of torch, as in 2.11.0..2.13.0. All releases between"
            " them that pip finds are installed as they are asked; with the index of nightly builds"
            " in PIP_INDEX_URL, those.",
        ),
    ] = None,
    emulate: Emulate = None,
    network: Network = None,
    budget: Budget = "15m",
    as_json: AsJson = False,
) -> None:
    """Find the commit, or the version, package or variable, that made a case slower, by pairs.

    Good and bad are launched until bad is shown to be slower. Then commits between them are
    launched beside good or bad, each time the one that tells most. A commit that cannot be
    launched is skipped. Run the same command again to go on where it ended.

    With --good-env and --bad-env, the packages and variables in which two environments differ are
    moved from one to the other, in halves, until those that make it slower are left.

    \b
    Exit code:
      0  found: one commit, adjacent ones of which the others cannot be launched, or two steps;
         or every package and variable that is to blame
      4  usage: an argument, a commit or a case that does not exist
      75  undecided: the budget was too short, bad is not slower, or good or bad cannot be launched
    """
    check_can_launch()
    budget_s, overrides = budget_seconds(budget), case_overrides(emulate, network)
    if torch is not None:
        if any(end is not None for end in (good, bad, good_env, bad_env)):
            raise ConfigError("--torch has both ends; leave --good, --bad and those of --…-env out")
        line = version_line(Path.cwd(), torch)
    elif good_env is not None and bad_env is not None and good is None and bad is None:
        bisect_environments(
            good_env, bad_env, case, overrides=overrides, budget_s=budget_s, as_json=as_json
        )
    elif good is None or bad is None or good_env is not None or bad_env is not None:
        raise ConfigError("give --good and --bad for commits, --torch, or --good-env and --bad-env")
    else:
        line = commit_line(Path.cwd(), good, bad)
    bisect_commits(line, case, overrides, budget_s=budget_s, as_json=as_json)


def bisect_commits(
    line: CommitLine, case_id: str, overrides: Overrides, *, budget_s: float, as_json: bool
) -> NoReturn:
    """Find the commit, or the version of torch, that makes the case slower, print it, and exit."""
    root, capacity = Path.cwd(), find_capacity()
    opener = functools.partial(
        open_commit,
        root=root,
        case_id=case_id,
        overrides=overrides,
        capacity=capacity,
        on_progress=write_line,
    )
    search: CommitSearch | None = None
    with (
        endable(AGAIN, LaunchError) as ending,
        leased(capacity, CommitTurns(line, opener)) as turns,
    ):
        turn = _ends(turns, line)
        environment = checked_environment(turn.launcher, turn.case, capacity)
        log = open_commit_log(line, case_id, environment)
        with going_on(log, budget_s) as progress:
            search = CommitSearch(
                line,
                turns,
                log,
                on_progress=progress.show,
                counts=line.what == "commit",  # another torch does the same by other calls
            )
            search.run(until=progress.until)
    if search is None:
        ending.exit(ExitCode.UNDECIDED)
    result = with_comparisons(search.result())
    print_result(result, [build_bisect(result)], as_json=as_json)
    ending.exit(ExitCode.GREEN if result.outcome == "found" else ExitCode.UNDECIDED)


def _ends(turns: CommitTurns, line: CommitLine) -> CommitTurn:
    """Make good and bad ready, before anything is launched, and return good.

    Raises SideError or ConfigError, which names the option.
    """
    for option, place in (("--bad", line.length), ("--good", 0)):
        try:
            turn = turns.turn(place)
        except (SideError, ConfigError) as error:
            named = "--torch" if line.what == "version" else option
            raise type(error)(f"{named}: {error}") from None
    return turn
