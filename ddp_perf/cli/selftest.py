"""``ddp-perf selftest``: how often this gate is wrong on this machine, and what it sees."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ddp_perf.baselines.save import is_comparable
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.group import ExitCode
from ddp_perf.cli.options import FalseAlarmRate
from ddp_perf.cli.progress import BudgetProgress
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.case import Case
from ddp_perf.core.metric import gated_metrics
from ddp_perf.errors import ConfigError, ResultsError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import Launcher
from ddp_perf.render.units import parse_duration
from ddp_perf.report.terminal.text import describe_launch_failure
from ddp_perf.selftest.curve import PowerCurve, SelftestOutcome
from ddp_perf.selftest.launches import SelftestRequest, run_selftest
from ddp_perf.selftest.log import SelftestLog, conditions_of
from ddp_perf.selftest.text import selftest_json, selftest_text
from ddp_perf.selftest.trials import power_curve
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.stats.rule.alpha_spending import alpha_per_metric
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.files import replace_file
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.system.host.termination import sigterm_calls
from ddp_perf.system.lease import machine_lease

_CONFIGS, _BASELINES = Path("bench_configs"), Path("baselines")
_LEASE_PATIENCE_S = 600
_EXIT_CODES = {
    SelftestOutcome.CAN_GATE: ExitCode.PASS,
    SelftestOutcome.FALSE_ALARMS: ExitCode.REGRESSION,
    SelftestOutcome.CANNOT_GATE: ExitCode.UNDECIDED,
    SelftestOutcome.TOO_SHORT: ExitCode.UNDECIDED,
}
_INTERRUPTED, _TERMINATED = 130, 143  # what a shell says of Ctrl-C and of SIGTERM


def selftest(
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure: 90s, 10m or 1h.")
    ] = "10m",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Suite file; its smallest case of several ranks is measured."
            " [default: the first of bench_configs/ for this machine's GPUs, else for its CPU]",
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Launches of a session. [default: the suite's]"),
    ] = None,
    false_alarm_rate: FalseAlarmRate = 0.01,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Keeps the launches, the curve and its plot.")
    ] = Path("artifacts/selftest"),
) -> None:
    """Measure what this gate sees on this machine: its power and its false alarms.

    Real launches of one case, as it is and slowed on purpose by 2, 3, 5, 10 and 20 %, are judged
    as a pytest session would be. Run again, it goes on with the launches that DIR holds.

    \b
    Exit code:
      0  this machine can gate: some slow-down is found 9 times in 10
      1  more false alarms than promised
      2  undecided: it cannot gate, the budget was too short, or a launch failed
      4  usage: an argument, a file, or launches in DIR of another case, machine or version
    """
    check_can_launch()
    budget_s = _seconds(budget)
    capacity = find_capacity()
    cases = _suite(config, capacity)
    case = min(cases, key=lambda c: (c.world_size == 1, c.world_size, c.samples_per_step))
    request = SelftestRequest(
        case=case,
        launches=launches or case.schedule.launches,
        false_alarm_rate=false_alarm_rate,
        alpha=alpha_per_metric(false_alarm_rate, sum(len(gated_metrics(c)) for c in cases)),
        import_paths=(str(Path.cwd()),),
    )
    stored = _stored(case, capacity)
    with contextlib.ExitStack() as stack:
        lease = machine_lease(
            patience_s=_LEASE_PATIENCE_S, on_wait=_say, gpus=capacity.machine.gpus
        )
        stack.enter_context(lease)
        progress = stack.enter_context(BudgetProgress(budget_s))
        launcher = stack.enter_context(contextlib.closing(ForkserverLauncher()))
        runtime = launcher.runtime(case)
        check_runtime(case.tier, runtime, capacity.machine)
        environment = describe_environment(capacity, case.tier, runtime, Path.cwd())
        log = SelftestLog(output / "launches.jsonl", conditions_of(case, environment))
        stack.enter_context(contextlib.closing(log))
        ended = _measure(request, log, launcher, progress)
    curve = power_curve(request, log.launches, environment, stored)
    typer.echo(selftest_text(curve, shutil.get_terminal_size().columns))
    typer.echo(f"written: {', '.join(map(str, [log.path, *_write(curve, output)]))}")
    if ended is None:
        raise typer.Exit(_EXIT_CODES[curve.conclusion])
    why, code = ended
    _say(why)
    raise typer.Exit(code)


def _seconds(budget: str) -> float:
    try:
        return parse_duration(budget)
    except ConfigError as error:
        raise ConfigError(f"--budget: {error}") from None


def _suite(config: Path | None, capacity: Capacity) -> list[Case]:
    """The cases of one suite that this machine can run. Raises ConfigError where it can none."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as pytest has its root: a user's workload is looked for there
    paths = [config] if config else find_suites(_CONFIGS)
    if not paths:
        raise ConfigError(f"{_CONFIGS}: there is no suite file; name one with --config")
    cases = [case for case in load_cases(paths, Overrides()) if case.trains]
    if not cases:
        raise ConfigError(f"{paths[0]}: only a step that trains can be slowed; name another suite")
    runnable = [case for case in cases if capacity.obstacle(case) is None]
    if not runnable:
        raise ConfigError(f"{paths[0]}: {cases[0].id} {capacity.obstacle(cases[0])}")
    first = min(runnable, key=lambda case: case.tier != "gpu")  # the first of them
    return [case for case in runnable if case.suite == first.suite]


def _stored(case: Case, capacity: Capacity) -> CaseBaseline | None:
    """What the machine's baseline holds of this work. Raises BaselineError for a broken file."""
    baseline = BaselineStore(_BASELINES).load(capacity.accelerator_key(case.tier))
    stored = baseline.cases.get(case.id)
    comparable = stored is not None and stored.source == "measured" and is_comparable(stored, case)
    return stored if comparable else None


def _measure(
    request: SelftestRequest, log: SelftestLog, launcher: Launcher, progress: BudgetProgress
) -> tuple[str, int] | None:
    """Why it ended before its time, and the exit code of that; None where it did not."""
    go_on = "the same command goes on from here"
    try:
        with sigterm_calls(_raise_terminated):
            failure = run_selftest(
                request, log, launcher, until=progress.until, on_launch=progress.launched
            )
    except KeyboardInterrupt:
        return f"interrupted; {go_on}", _INTERRUPTED
    except _TerminatedError:
        return f"ended by SIGTERM at launch {1 + len(log.launches)}; {go_on}", _TERMINATED
    if failure is not None:
        return describe_launch_failure(failure), ExitCode.UNDECIDED
    return None


class _TerminatedError(BaseException):
    """SIGTERM came. No ``Exception``, as KeyboardInterrupt is none."""


def _raise_terminated() -> NoReturn:
    raise _TerminatedError


def _write(curve: PowerCurve, output: Path) -> list[Path]:
    # Here, since matplotlib takes half a second that no other command need pay.
    from ddp_perf.selftest.plot import write_power_plot

    json, plot = output / "selftest.json", output / "selftest.png"
    try:
        replace_file(json, selftest_json(curve))
        write_power_plot(plot, curve)
    except OSError as error:
        raise ResultsError(f"{output}: cannot be written: {error.strerror}") from None
    return [json, plot]


def _say(line: str) -> None:
    typer.echo(f"ddp-perf: {line}", err=True)
