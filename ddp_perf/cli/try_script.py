"""``ddp-perf try SCRIPT -- ARGUMENTS``: one short run of a training script, and its suite file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import typer.core

from ddp_perf.cli.command import (
    AsJson,
    LaunchProgress,
    show,
    write_line,
)
from ddp_perf.cli.measuring import Ending, endable, leased
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.loading import check_environment, checked_suite
from ddp_perf.config.script_file import (
    StepSamples,
    default_formula,
    find_samples,
    free_name,
    suite_of_script,
    suite_text,
)
from ddp_perf.config.suite import ScriptSuite, as_name
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.subject import BY_OPTIMIZER
from ddp_perf.errors import ConfigError, ExitCode, LaunchError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.render.tables import LiveBar
from ddp_perf.render.units import counted, parse_duration
from ddp_perf.report.case_text import describe_launch_failure, script_facts
from ddp_perf.report.commands.unjudged import unjudged_parts
from ddp_perf.session.measure.environment import check_runtime
from ddp_perf.session.measure.further_launches import measure_unjudged
from ddp_perf.session.result import SuiteResult, results_json
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch

# The suite file of a tried script: written for the user, and the command that measures it.


CONFIGS = Path("bench_configs")  # where pytest finds suite files
_TESTS = Path("tests")
_FIXTURE = "assert_verdict"  # the fixture of every performance test


def check_writable(file: Path) -> None:
    """Make the directory of a new file. Raises ConfigError if it exists, or cannot be written."""
    if os.path.lexists(file):
        raise ConfigError(f"--write {file}: it exists already; remove it, or name another file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise _refused(file, error) from None


def write_suite(file: Path, text: str) -> None:
    """Write a new suite file. Raises ConfigError if it exists by now, or cannot be written."""
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise _refused(file, error) from None
    typer.echo(f"written: {file}", err=True)


def _refused(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--write {file}: it cannot be written: {error.strerror}")


def next_command(file: Path, tier: Tier) -> str:
    """Return the command that measures a suite file, and stores it as the baseline."""
    marks = '"perf and cpu"' if tier == "cpu" else "gpu"
    options = f"-m {marks} {shlex.quote(f'--ddp-config={file}')} --save-baseline"
    if _has_tests():
        return f"pytest {options}"
    return f"ddp-perf init && pytest {_TESTS / 'test_perf.py'} {options}"


def _has_tests() -> bool:
    """Return whether this directory has performance tests."""
    return any(map(_asserts, [*Path().glob("test_*.py"), *_TESTS.rglob("test_*.py")]))


def _asserts(file: Path) -> bool:
    try:
        return _FIXTURE in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


# ``ddp-perf try SCRIPT -- ARGUMENTS``: one short run of a training script, and its suite file.


_FRAMES = "(These are the frames of your code.)"
# Fields of a suite in an error, with a list of one number; here they are options.
_FIELDS = re.compile(r"`?\b(?P<name>steps|steps_by|tier|world_sizes):`?( \[(?P<number>\d+)\])?")
_GPUS = "CUDA_VISIBLE_DEVICES"  # what decides the tier


class ScriptCommand(typer.core.TyperCommand):
    """A command whose arguments after ``--`` are those of a script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say where an option of the script goes: this command does not know it."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            option = getattr(error, "option_name", None)
            if option is None or not error.format_message().startswith("No such option"):
                raise
            raise ConfigError(
                f"{error.format_message()}; what is for the script follows --, as in ddp-perf try"
                f" train.py -- {option}"
            ) from None


def try_script(
    context: typer.Context,
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="The training script, or a module: package.train."),
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="Arguments of the script, after --."),
    ] = None,
    world_sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Numbers of ranks. [default: 1 and 2, or 1 and all GPUs]"),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            metavar="N", help="Steps of a launch, 5 warm-ups included; the script needs a few more."
        ),
    ] = 60,
    launches: Annotated[
        int, typer.Option(metavar="N", min=1, help="Launches of each number of ranks.")
    ] = 3,
    samples_per_step: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help='Samples of a step over all ranks, as in 256 or "{world_size} * 64".'
            " [default: --batch-size among the script's arguments, for each rank]",
        ),
    ] = None,
    steps_by: Annotated[
        str,
        typer.Option(metavar="WHAT", help="What ends a step: optimizer, or module:function."),
    ] = BY_OPTIMIZER,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A variable of the ranks; may be repeated."),
    ] = None,
    start_deadline: Annotated[
        str, typer.Option(metavar="TIME", help="How long the first step may take: 90s or 10m.")
    ] = "2m",
    scratch: Annotated[
        bool,
        typer.Option(
            "--scratch/--no-scratch",
            help="Let the script write in a private directory, which is removed; or in this one.",
        ),
    ] = True,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Write the suite file. No file is overwritten."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a training script as it is, in one short run, and print the suite file for it.

    Nothing of the script is edited, and it ends after its measured steps. Nothing is judged or
    stored. GPUs are used if torch can use them; CUDA_VISIBLE_DEVICES= before the command hides
    them.

    \b
    Exit code:
      0  measured
      4  usage: an argument, a script that does not exist, or a file that cannot be written
      75  undecided: a launch failed
    """
    check_can_launch()
    if write is not None:
        check_writable(write)
    capacity, root = find_capacity(), Path.cwd()
    path = _from(root, script)
    samples = find_samples(args or (), samples_per_step)
    with contextlib.closing(ServerLauncher()) as launcher:
        tier = _tier(capacity, launcher)
        suite = checked_suite(
            {
                "suite": free_name(path, CONFIGS) if write is None else as_name(write.stem),
                "tier": tier,
                "script": path,
                "args": [*samples.args],
                "world_sizes": _sizes(world_sizes) or _default_sizes(tier, capacity),
                "batch_sizes": [samples.batch_size],
                "samples_per_step": samples.per_step,
                "steps": steps,
                "steps_by": steps_by,
                "env": dict(map(_assignment, env or ())),
                "start_deadline_s": _seconds(start_deadline),
                "scratch": scratch,
            },
            [str(root)],
        )
        assert isinstance(suite, ScriptSuite)  # as it has a script
        cases = _runnable_cases(msgspec.structs.replace(suite, launches=launches), capacity)
        result, ending = _measure(cases, launcher, capacity, root)
    _show(result, suite, ending, as_json=as_json)
    if not as_json:
        typer.echo()
        show(_samples_notes(suite, samples, result))
    _propose(context, suite, write, as_json=as_json)
    ending.exit(ExitCode.GREEN)


def _propose(
    context: typer.Context, suite: ScriptSuite, write: Path | None, *, as_json: bool
) -> None:
    """Show the suite file, write it if wanted, and end with the one command that leads on."""
    known = suite_of_script(suite.script, CONFIGS)  # before another one is there
    proposed = CONFIGS / f"{suite.suite}.yaml"
    text = suite_text(suite)
    if not as_json:
        typer.echo(f"\nto commit, as {write or proposed}:\n\n{textwrap.indent(text, '    ')}")
    if write is not None:
        write_suite(write, text)
    if known is not None:
        write_line(f"{known} measures {suite.script} already")
    file = write or known
    again = _again(context, write=proposed, as_json=False)
    command = again if file is None else next_command(file, suite.tier)
    typer.echo(f"next: {command}", err=as_json)


def _from(root: Path, script: str) -> str:
    """Return the path of a script from the root on, if it is there; a module as it is."""
    if not script.endswith(".py"):
        return script
    path = Path(os.path.normpath(root / script))
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    write_line(
        f"{script} is outside of {root}; a suite file for every checkout needs a script inside of"
        " it: start in the directory of your project"
    )
    return Path(os.path.normpath(script)).as_posix()


def _tier(capacity: Capacity, launcher: Launcher) -> str:
    """Return gpu if this machine has a GPU that torch can use, else cpu."""
    if not capacity.machine.gpus:
        return "cpu"
    try:
        check_runtime("gpu", launcher.runtime(), capacity.machine)
    except LaunchError as error:
        write_line(f"tier cpu, since torch cannot use the GPUs here: {error}")
        return "cpu"
    return "gpu"


def _default_sizes(tier: str, capacity: Capacity) -> list[int]:
    """Return one rank and all GPUs, or one and two ranks on CPUs if there are cores for them."""
    if tier == "gpu":
        return sorted({1, len(capacity.machine.gpus) or 1})
    if capacity.cores < 2:
        write_line("1 rank: this process may use one core, and each rank on a CPU needs one")
        return [1]
    return [1, 2]


def _sizes(text: str | None) -> list[int]:
    """Return the numbers of ``1,2,4``. Raises ConfigError."""
    try:
        return [int(part) for part in (text or "").split(",") if text]
    except ValueError:
        raise ConfigError(f"--world-sizes {text}: it is no list of numbers, as in 1,2,4") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        # Without the value, which may be a secret.
        raise ConfigError(f"--env {name}: it is not of the form NAME=VALUE")
    return name, value


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--start-deadline: {error}") from None


def _runnable_cases(suite: ScriptSuite, capacity: Capacity) -> list[Case]:
    """Return the cases that this machine can run. Raises ConfigError if there is none."""
    check_environment(suite.env)
    cases = cases_of(Variant(suite=suite))
    obstacles = {case.id: why for case in cases if (why := capacity.obstacle(case)) is not None}
    if len(obstacles) == len(cases):
        raise ConfigError("; ".join(f"{case_id} {why}" for case_id, why in obstacles.items()))
    for case_id, why in obstacles.items():
        write_line(f"{case_id} is left out: it {why}")
    return [case for case in cases if case.id not in obstacles]


def _measure(
    cases: Sequence[Case], launcher: Launcher, capacity: Capacity, root: Path
) -> tuple[SuiteResult, Ending]:
    """Measure the cases on the leased machine, with progress on stderr.

    An interrupt ends the command, unless all are measured: then it only sets the exit code.
    """
    total = sum(case.schedule.launches for case in cases)
    result: SuiteResult | None = None
    with (
        endable() as ending,
        leased(capacity, launcher),
        LiveBar(sys.stderr) as bar,
    ):
        progress = LaunchProgress(bar, total)
        write_line(f"{counted(total, 'launch')} of {cases[0].workload}, tier {cases[0].tier}")
        result = measure_unjudged(cases, launcher, capacity, root=root, on_launch=progress.launched)
    if result is None:
        ending.exit(ExitCode.UNDECIDED)
    return result, ending


def _show(result: SuiteResult, suite: ScriptSuite, ending: Ending, *, as_json: bool) -> None:
    """Show what was measured. Raises Exit with the failure of a launch, if there is one."""
    failures = [one for each in result.measurements.values() for one in each.failures]
    if as_json:
        typer.echo(results_json([result], complete=not failures))
    elif any(result.summaries.values()):
        show(unjudged_parts(result))
    for failure in failures:
        write_line(_failure_text(failure, suite))
        ending.exit(ExitCode.UNDECIDED)


def _failure_text(failure: LaunchFailure, suite: ScriptSuite) -> str:
    text = describe_launch_failure(_with_options(failure), remark=_FRAMES)
    if failure.kind != "hang":
        return text
    return (
        f"{text}\nThe first step had {suite.start_deadline_s:g} s, and each later one"
        f" {suite.step_deadline_s:g} s. If the script needs longer to start: --start-deadline 10m"
    )


def _with_options(failure: LaunchFailure) -> LaunchFailure:
    """Return the failure with our options in place of a suite's fields; a script's is as it is."""
    if failure.user_frames:
        return failure
    return msgspec.structs.replace(failure, detail=_FIELDS.sub(_as_option, failure.detail))


def _as_option(field: re.Match[str]) -> str:
    if field["name"] == "tier":
        return f"{_GPUS}="
    number = f" {field['number']}" if field["number"] else ""
    return f"--{field['name'].replace('_', '-')}{number}"


def _samples_notes(suite: ScriptSuite, samples: StepSamples, result: SuiteResult) -> Iterator[str]:
    """Yield what counts as a sample, and that it may be something else."""
    size = samples.batch_size
    is_default = suite.samples_per_step == default_formula(samples.source)
    if not is_default:
        yield f"samples of a step: {suite.samples_per_step}"
    elif samples.source:
        yield (
            f"samples: {size} of each rank in a step, as {samples.source} states;"
            " --samples-per-step states another number"
        )
    else:
        yield (
            "samples: each step of a rank counts as one, since no argument states a batch size;"
            ' --samples-per-step "{world_size} * 64" states 64 samples of each rank'
        )
    passes = _backward_passes(result)
    if is_default and passes > 1:
        formula = f"{suite.samples_per_step} * {passes}"
        yield (
            f"a step has up to {passes} backward passes; if each has a batch of its own:"
            f' --samples-per-step "{formula}"'
        )


def _backward_passes(result: SuiteResult) -> int:
    """Return the most backward passes of a step."""
    found = [facts for one in result.measurements.values() if (facts := script_facts(one))]
    return max(facts.micro_steps[1] for facts in found)


def _again(context: typer.Context, **changed: object) -> str:
    """Return this command with the GPUs and options as given, but for the changed ones."""
    values = {**context.params, **changed}
    gpus = f"{_GPUS}={shlex.quote(os.environ[_GPUS])} " if _GPUS in os.environ else ""
    words = ["ddp-perf", "try", str(values["script"])]
    for option in context.command.params:
        value = values.get(option.name or "")
        if option.name in ("script", "args") or value in (None, option.default, []):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += option.secondary_opts if each is False else [option.opts[0], str(each)]
    rest = ["--", *context.params["args"]] if context.params["args"] else []
    return gpus + shlex.join([*words, *rest])
