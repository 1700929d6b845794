"""``ddp-perf selftest``: the power and the false alarms of the gate on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import (
    NO_USER_CODE,
    Budget,
    NoUserCode,
    budget_seconds,
    show,
    write_line,
)
from ddp_perf.cli.measuring import (
    AGAIN,
    checked_environment,
    endable,
    going_on,
    leased,
    suite_files,
)
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import FALSE_ALARM_RATE
from ddp_perf.errors import ConfigError, ExitCode
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.render.units import describe_duration
from ddp_perf.report.case_text import describe_launch_failure
from ddp_perf.selftest.curve import (
    LEAST_TRIALS,
    PowerCurve,
    SelftestOutcome,
    selftest_json,
    selftest_parts,
)
from ddp_perf.selftest.trials import (
    SelftestRequest,
    launches_for,
    open_launches,
    power_curve,
    run_selftest,
)
from ddp_perf.session.measure.experiment import Log
from ddp_perf.session.measure.nights import core_of, most_telling_first
from ddp_perf.session.measure.rounds import expected_launch_s, stored_baseline
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.files import write_files
from ddp_perf.system.host.launch_platform import check_can_launch

_EXIT_CODES = {
    SelftestOutcome.CAN_GATE: ExitCode.GREEN,
    SelftestOutcome.FALSE_ALARMS: ExitCode.RED,
    SelftestOutcome.CANNOT_GATE: ExitCode.UNDECIDED,
    SelftestOutcome.TOO_SHORT: ExitCode.UNDECIDED,
}


def selftest(
    budget: Budget = "10m",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Suite file. Its smallest case of several ranks is measured. [default: the first"
            " of bench_configs/ for the CPU; with GPUs, the first case of a night's core]",
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Launches per session. [default: the suite's]"),
    ] = None,
    no_user_code: NoUserCode = False,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the launches, the curve and its plot.")
    ] = Path("artifacts/selftest"),
) -> None:
    """Measure the power and the false alarms of the gate on this machine.

    The command launches one case as it is, and slowed on purpose by 2, 3, 5, 10 and 20 %. It
    judges these launches as a pytest session does. Run it again to add launches to those in DIR.

    \b
    Exit code:
      0  this machine can gate: it finds some slow-down more often than not (95 % confidence),
         and no more false alarms than promised are shown
      1  more false alarms than promised
      4  usage: an argument, a file, or launches in DIR of another case, machine or version
      75  undecided: it cannot gate, the budget was too short, or a launch failed
    """
    check_can_launch()
    budget_s = budget_seconds(budget)
    capacity = find_capacity()
    overrides = Overrides(no_user_code=NO_USER_CODE if no_user_code else None)
    cases = _gated_cases(config, overrides, capacity)
    request = _request(cases, launches)
    if outlook := _outlook(request, capacity, budget_s):
        write_line(outlook)
    log: Log | None = None
    with endable(AGAIN) as ending, leased(capacity, ServerLauncher()) as launcher:
        environment = checked_environment(launcher, request.case, capacity)
        log = open_launches(output / "launches.jsonl", request.case, environment)
        with going_on(log, budget_s) as progress:
            failure = run_selftest(
                request, log, launcher, until=progress.until, on_launch=progress.launched
            )
        if failure is not None:
            ending.note(describe_launch_failure(failure), ExitCode.UNDECIDED)
    if log is None:
        ending.exit(ExitCode.UNDECIDED)
    curve = power_curve(request, log.entries, environment)
    show(selftest_parts(curve))
    written = [log.path, *write_files(output, _files(curve))]
    typer.echo(f"written: {', '.join(map(str, written))}")
    ending.exit(_EXIT_CODES[curve.conclusion])


def _gated_cases(config: Path | None, overrides: Overrides, capacity: Capacity) -> list[Case]:
    """Return the cases that share the false-alarm rate of a session: of one suite, or of a night.

    On GPUs it is the core of a night, the most telling case first, unless a suite is named. Raises
    ConfigError if this machine can run no case.
    """
    runnable = _runnable_cases(config, overrides, capacity)
    if config is None and runnable[0].tier == "gpu":
        on_gpus = [case for case in runnable if case.tier == "gpu"]
        core = core_of(on_gpus, capacity.fits)
        telling = most_telling_first(on_gpus, capacity.fits)
        return [case for case in telling if case.key in core] or telling[:1]
    return [case for case in runnable if case.suite == runnable[0].suite]


def _outlook(request: SelftestRequest, capacity: Capacity, budget_s: float) -> str | None:
    """Return which case is measured, and how long it takes until its launches decide.

    None if no launch of it was timed, and none is assumed.
    """
    case, needed = request.case, launches_for(LEAST_TRIALS, request.launches)
    baseline = stored_baseline(BaselineStore(Path.cwd() / "baselines"), capacity, case.tier)
    if not (launch_s := expected_launch_s(case, baseline)):
        return None
    return (
        f"{case.id} of {case.suite}: the {needed} launches that show what the gate finds take about"
        f" {describe_duration(needed * launch_s)}; the budget is {describe_duration(budget_s)}, and"
        " the same command continues"
    )


def _runnable_cases(config: Path | None, overrides: Overrides, capacity: Capacity) -> list[Case]:
    """Return the cases of the files that this machine can run, those of its GPUs first.

    Raises ConfigError if there is no such case.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a user's workload is imported from here, as from pytest's root
    paths = suite_files(config)
    cases = [case for case in load_cases(paths, overrides) if case.trains]
    if not cases:
        raise ConfigError(f"{paths[0]}: only a step that trains can be slowed; name another suite")
    runnable = [case for case in cases if capacity.obstacle(case) is None]
    if not runnable:
        raise ConfigError(f"{paths[0]}: {cases[0].id} {capacity.obstacle(cases[0])}")
    return sorted(runnable, key=lambda case: case.tier != "gpu")


def _request(cases: Sequence[Case], launches: int | None) -> SelftestRequest:
    """Choose the smallest case of several ranks, or of one rank if there is no other.

    Of several suites, which are the core of a night, the first case is chosen.
    """
    case = min(cases, key=lambda c: (c.world_size == 1, c.world_size, c.samples_per_step))
    if len({c.suite for c in cases}) > 1:
        case = cases[0]
    return SelftestRequest(
        case=case,
        launches=launches or case.schedule.launches,
        alpha=alpha_per_metric(FALSE_ALARM_RATE, sum(len(gated_metrics(c)) for c in cases)),
        import_paths=(str(Path.cwd()),),
    )


def _files(curve: PowerCurve) -> Iterator[tuple[str, bytes]]:
    # Imported here: charts take a third of a second, and most commands draw none.
    from ddp_perf.render.chart import image
    from ddp_perf.selftest.chart import power_chart

    yield "selftest.json", selftest_json(curve)
    yield "selftest.png", image(power_chart(curve))
