"""``ddp-perf sweep``: the best setting of a case."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.command import (
    NO_USER_CODE,
    AsJson,
    Budget,
    NoUserCode,
    budget_seconds,
    print_result,
    write_line,
)
from ddp_perf.cli.measuring import (
    AGAIN,
    Ending,
    check_writable,
    checked_environment,
    endable,
    going_on,
    leased,
    suite_files,
)
from ddp_perf.config.loading import Overrides, load_cases, load_suite
from ddp_perf.config.suite import Suite
from ddp_perf.core.case import Case
from ddp_perf.duel.sweep.halving import SweepResult, SweepRun, open_sweep_log, sweep_result
from ddp_perf.duel.sweep.report import build_sweep
from ddp_perf.duel.sweep.settings import Settings, parse_knobs, plan_settings
from ddp_perf.errors import ConfigError, ExitCode, nearest_or_all
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.render.units import counted, to_json
from ddp_perf.report.case_text import describe_launch_failure
from ddp_perf.session.measure.experiment import time_of
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.files import write_files
from ddp_perf.system.host.launch_platform import check_can_launch


def sweep(
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of a case.")],
    knobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE,VALUE]...",
            help="Options of the suite, as in bucket_cap_mb=5,25, and variables of the ranks, whose"
            " names have upper-case letters, as in OMP_NUM_THREADS=1,2.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="KNOBS.yaml", help="Further names, each with a list of values: NAME: [A, B]."
        ),
    ] = None,
    budget: Budget = "10m",
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Suite file of the case. [default: in bench_configs/]"),
    ] = None,
    no_user_code: NoUserCode = False,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the result and its plot.")
    ] = Path("artifacts/sweep"),
    as_json: AsJson = False,
) -> None:
    """Find the best setting of a case: every combination of the values, by sequential halving.

    All settings are launched in turn, beside the suite's own. After each rung the slower half is
    dropped. The last one is judged against the suite's own by launches that did not choose it.

    \b
    Exit code:
      0  the sweep is finished; its text states how sure the best setting is
      4  usage: an argument, or a file that cannot be read or written
      75  undecided: the budget was too short, or the suite's own setting or every other one failed
    """
    check_can_launch()
    budget_s = budget_seconds(budget)
    capacity = find_capacity()
    if no_user_code and file is not None:
        raise ConfigError(
            f"--file: {NO_USER_CODE} refuses it, since a variable in a file may name code; give the"
            " values on the command line"
        )
    overrides = Overrides(no_user_code=NO_USER_CODE if no_user_code else None)
    suite, base = _find_case(case, config, overrides)
    if (reason := capacity.obstacle(base)) is not None:
        raise ConfigError(f"{base.id} {reason}")
    settings = plan_settings(suite, base, parse_knobs(knobs or (), file, suite), capacity.obstacle)
    check_writable(output)
    result, ending = _measure(settings, capacity, budget_s, output)
    print_result(result, [build_sweep(result)], as_json=as_json)
    written = write_files(output, _files(result))
    typer.echo(f"written: {', '.join(map(str, written))}", err=as_json)
    judged = result.complete and result.verdict is not None
    ending.exit(ExitCode.GREEN if judged else ExitCode.UNDECIDED)


def _find_case(case_id: str, config: Path | None, overrides: Overrides) -> tuple[Suite, Case]:
    """Return the case with its suite. Raises ConfigError if no suite, or several, have it."""
    paths = suite_files(config)
    here = (str(Path.cwd()),)
    cases = load_cases(paths, overrides, here)
    found = [one for one in cases if one.id == case_id]
    if not found:
        known = [one.id for one in cases]
        raise ConfigError(f"{case_id}: no suite has such a case{nearest_or_all(case_id, known)}")
    if len(found) > 1:
        names = ", ".join(one.suite for one in found)
        raise ConfigError(f"{case_id}: the suites {names} have it; name the file with --config")
    suites = [load_suite(path, here) for path in paths]
    return next(suite for suite in suites if suite.suite == found[0].suite), found[0]


def _measure(
    settings: Settings, capacity: Capacity, budget_s: float, output: Path
) -> tuple[SweepResult, Ending]:
    """Return what was measured, and how the sweep ended.

    Unless a signal ended it, it is finished: its result is written, and its log deleted.
    """
    began, began_s = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
    write_line(
        f"{counted(len(settings.tried), 'setting')} of {settings.base.id} beside the suite's own,"
        f" {len(settings.left_out)} left out"
    )
    run: SweepRun | None = None

    def result(run: SweepRun) -> SweepResult:
        return sweep_result(
            run,
            began=began.isoformat(timespec="seconds"),
            wall_s=time.monotonic() - began_s,
            runtime=runtime,
        )

    with endable(AGAIN) as ending, leased(capacity, ServerLauncher()) as launcher:
        environment = checked_environment(launcher, settings.base, capacity)
        runtime = launcher.runtime(settings.base)
        log = open_sweep_log(output, settings, environment)
        with going_on(log, budget_s - time_of(log.entries)) as progress:
            paths = (str(Path.cwd()),)
            run = SweepRun(settings, launcher, log, budget_s=budget_s, import_paths=paths)
            failure = run.run(on_launch=progress.launched)
        if failure is not None:
            ending.note(describe_launch_failure(failure), ExitCode.UNDECIDED)
        write_files(output, [_json(result(run))])
        log.discard()
    if run is None:
        ending.exit(ExitCode.UNDECIDED)
    return result(run), ending


def _files(result: SweepResult) -> Iterator[tuple[str, bytes]]:
    """Yield the result and its plot."""
    # Imported here: charts take a third of a second, and most commands draw none.
    from ddp_perf.duel.sweep.chart import sweep_chart
    from ddp_perf.render.chart import image

    yield _json(result)
    yield _name(result, "png"), image(sweep_chart(result))


def _json(result: SweepResult) -> tuple[str, bytes]:
    return _name(result, "json"), f"{to_json(result)}\n".encode()


def _name(result: SweepResult, suffix: str) -> str:
    """Return the name of a file, by the time at which the sweep began."""
    return f"{result.began[:19].replace(':', '')}.{suffix}"
