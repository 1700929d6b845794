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
    budget_seconds,
    print_result,
    write_line,
)
from ddp_perf.cli.measuring import AGAIN, endable, going_on, leased
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
from ddp_perf.duel.bisect.result import BisectResult
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
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch

# ``ddp-perf bisect --good-env A --bad-env B``: the package or variable that is to blame.


def bisect_environments(
    good: str, bad: str, case_id: str, *, budget_s: float, as_json: bool
) -> NoReturn:
    """Find what makes environment ``bad`` slower than ``good``, print it, and exit.

    The exit codes are those of the command: 0 if every culprit is found, 75 if not.
    """
    check_can_launch()
    root, capacity = Path.cwd(), find_capacity()
    sides = parse_environment(good, "A", root), parse_environment(bad, "B", root)
    run: EnvironmentRun | None = None
    with endable(AGAIN) as ending, contextlib.ExitStack() as stack:
        a, b = (
            stack.enter_context(prepare_environment(side, root, on_progress=write_line))
            for side in sides
        )
        case = _case(a, b, case_id, capacity)
        differences = find_differences(a, b)
        write_line(f"{counted(len(differences.factors), 'difference')} of {b.side.spec} to probe")
        # Each probe closes its own launchers.
        stack.enter_context(leased(capacity, contextlib.ExitStack()))
        run = EnvironmentRun(
            a,
            b,
            case,
            differences,
            logs=cache_shelf("bisect", 0, os.environ).path,
            machine=f"{capacity.host.name}, {capacity.accelerator_key(case.tier)}",
        )
        progress = stack.enter_context(going_on(run.log, budget_s))
        try:
            run.run(
                side_launcher,
                until=progress.until,
                on_launch=progress.launched,
            )
        except (LaunchError, SideError) as error:
            ending.note(f"{error}; {AGAIN}", ExitCode.UNDECIDED)
    if run is None:
        ending.exit(ExitCode.UNDECIDED)
    result = run.result()
    print_result(result, [build_environments(result)], as_json=as_json)
    found = result.search.complete and bool(result.search.culprits)
    ending.exit(ExitCode.GREEN if found else ExitCode.UNDECIDED)


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
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure: 90s, 10m or 1h.")
    ] = "15m",
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
    budget_s = budget_seconds(budget)
    if torch is not None:
        if any(end is not None for end in (good, bad, good_env, bad_env)):
            raise ConfigError("--torch has both ends; leave --good, --bad and those of --…-env out")
        line = version_line(Path.cwd(), torch)
    elif good_env is not None and bad_env is not None and good is None and bad is None:
        bisect_environments(good_env, bad_env, case, budget_s=budget_s, as_json=as_json)
    elif good is None or bad is None or good_env is not None or bad_env is not None:
        raise ConfigError("give --good and --bad for commits, --torch, or --good-env and --bad-env")
    else:
        line = commit_line(Path.cwd(), good, bad)
    search = _Search(line, case, find_capacity())
    with endable(AGAIN) as ending:
        try:
            search.run(budget_s)
        except LaunchError as error:
            ending.note(f"{error}; {AGAIN}", ExitCode.UNDECIDED)
    if search.result is not None:
        result = with_comparisons(search.result)
        print_result(result, [build_bisect(result)], as_json=as_json)
    found = search.result is not None and search.result.outcome == "found"
    ending.exit(ExitCode.GREEN if found else ExitCode.UNDECIDED)


class _Search:
    """One search: its ``result`` is there as soon as its log is open, however it ends."""

    def __init__(self, line: CommitLine, case: str, capacity: Capacity) -> None:
        self.result: BisectResult | None = None
        self._line, self._case, self._capacity = line, case, capacity

    def run(self, budget_s: float) -> None:
        """Search for ``budget_s`` seconds. Raises LaunchError if ranks cannot be started."""
        opener = functools.partial(
            open_commit,
            root=Path.cwd(),
            case_id=self._case,
            capacity=self._capacity,
            on_progress=write_line,
        )
        with contextlib.ExitStack() as stack:
            turns = stack.enter_context(leased(self._capacity, CommitTurns(self._line, opener)))
            turn = self._ends(turns)
            tier, runtime = turn.case.tier, turn.launcher.runtime(turn.case)
            environment = describe_environment(self._capacity, tier, runtime, Path.cwd())
            log = open_commit_log(self._line, self._case, environment)
            progress = stack.enter_context(going_on(log, budget_s))
            search = CommitSearch(
                self._line,
                turns,
                log,
                on_progress=progress.show,
                counts=self._line.what == "commit",  # another torch does the same by other calls
            )
            try:
                search.run(until=progress.until)
            finally:
                self.result = search.result()

    def _ends(self, turns: CommitTurns) -> CommitTurn:
        """Make good and bad ready, before anything is launched, and return good.

        Raises SideError or ConfigError, which names the option.
        """
        for option, place in (("--bad", self._line.length), ("--good", 0)):
            try:
                turn = turns.turn(place)
            except (SideError, ConfigError) as error:
                named = "--torch" if self._line.what == "version" else option
                raise type(error)(f"{named}: {error}") from None
        runtime = turn.launcher.runtime(turn.case)
        check_runtime(turn.case.tier, runtime, self._capacity.machine)
        return turn
