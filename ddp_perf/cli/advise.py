"""``ddp-perf advise FILE``: how to train a model on a number of GPUs."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated, get_args

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import (
    AsJson,
    CurvesFile,
    GpusPerNode,
    InterBandwidth,
    IntraBandwidth,
)
from ddp_perf.cli.predict import NCCL_LATENCIES_US, curves_of, is_baseline, topology_in, topology_of
from ddp_perf.core.exit_code import ExitCode
from ddp_perf.core.strategy import Precision
from ddp_perf.errors import ConfigError, ResultsError
from ddp_perf.scaling.advice.choice import Recommendation, recommend
from ddp_perf.scaling.advice.facts import (
    CaseFacts,
    MeasuredStep,
    measured_step,
    result_facts,
    stored_facts,
)
from ddp_perf.scaling.advice.fragment import suite_fragment
from ddp_perf.scaling.advice.plan import Goal
from ddp_perf.scaling.advice.step_model import StepModel
from ddp_perf.scaling.advice.text import advice_json, advice_text
from ddp_perf.scaling.consistency import link_clashes
from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.session.results_file import read_results
from ddp_perf.stats.memory import Optimizer
from ddp_perf.system.files import replace_file

_GIGA = 1e9
_MOST_PARAMETERS, _MOST_GPUS = 1e15, 2**20
_WRITTEN = Path("advised.yaml")  # the name that the next command proposes


def advise_training(
    context: typer.Context,
    file: CurvesFile,
    gpus: Annotated[int, typer.Option(metavar="N", help="Number of GPUs.")],
    model_params: Annotated[
        float | None,
        typer.Option(metavar="N", help="Parameters, as in 7e9. [default: the measured model's]"),
    ] = None,
    measured_params: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Parameters of the measured model, if the file does not state them.",
        ),
    ] = None,
    gpu_memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB", help="Memory of a GPU, 10⁹ bytes. [default: the measured GPU's]"
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(get_args(Precision))}. [default: the GPU's half format, else"
            " the measured one]",
        ),
    ] = None,
    optimizer: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(get_args(Optimizer))}.")
    ] = "adam",
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Start from the curve with TEXT in its name.")
    ] = "",
    gpus_per_node: GpusPerNode = None,
    intra_bandwidth: IntraBandwidth = None,
    inter_bandwidth: InterBandwidth = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.yaml", help="Write the suite that measures the advice."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose how to train a model: strategy, hook, batch, accumulation, precision, checkpoints.

    Memory is computed by formula, and the time of a step by the α-β model that is fitted to a
    scaling curve of FILE. What is modelled is marked; document 004's advice is shown beside it.

    \b
    Exit code:
      0  a plan is recommended, and it reaches the efficiency that the document expects of its use
      4  usage: an argument, or a file that cannot be read
      75  undecided: nothing fits, no plan reaches it, or its time is not modelled
    """
    given = topology_of(gpus_per_node, (intra_bandwidth, inter_bandwidth), NCCL_LATENCIES_US)
    topology = (None if gpus_per_node is not None else topology_in(file)) or given
    for option, count in (
        ("--model-params", model_params),
        ("--measured-params", measured_params),
    ):
        if count is not None and not 1 <= count <= _MOST_PARAMETERS:
            raise ConfigError(f"{option} {count:g}: give a number of parameters, as in 7e9")
    step = _step(file, only, measured_params)
    goal = _goal(file, step, gpus, model_params, gpu_memory, precision, optimizer)
    try:
        model = StepModel(step, goal, topology)
    except ValueError as error:
        why = "; ".join([str(error), *step.curve.left_out])
        raise ResultsError(
            f"{file}: no advice from {step.curve.label}: {why}; measure it again on two numbers of"
            " ranks"
        ) from None
    found = recommend(step, goal, model)
    if output is not None and found.plan is not None:
        _write(output, suite_fragment(found, found.plan))
    if as_json:
        typer.echo(advice_json(found))
    else:
        typer.echo(advice_text(found, shutil.get_terminal_size().columns))
        typer.echo(f"next: {_next(context, found, output)}")
    raise typer.Exit(ExitCode.GREEN if found.reaches else ExitCode.UNDECIDED)


def _step(file: Path, only: str, parameters: float | None) -> MeasuredStep:
    """Return the step of the curve with the most points among those whose name has the text.

    Raises ResultsError if there is none, or if the curve contradicts another one, and ConfigError
    if its parameters are neither stated nor given.
    """
    # The models of a step hold the batch of a rank fixed, and the ranks of a strong curve do not.
    curves = [curve for curve in curves_of(file) if not curve.strong]
    if curves and all(curve.is_script for curve in curves):
        raise ResultsError(
            f"{file}: no advice: a script chooses its strategy and its precision itself;"
            f" ddp-perf predict {file} predicts how it scales"
        )
    curves = [curve for curve in curves if not curve.is_script]
    named = [i for i, one in enumerate(curves) if only in f"{one.where} {one.title}"]
    if not named:
        raise ResultsError(
            f"{file}: no curve{f' with {only!r}' if only else ''}: step times of several world"
            " sizes at one batch per rank are needed"
        )
    clashes = link_clashes(curves)
    sound = [i for i in named if i not in clashes]
    if not sound:
        raise ResultsError(f"{file}: no advice: {clashes[named[0]]}")
    curve: ScalingCurve = curves[max(sound, key=lambda i: len(curves[i].points))]
    return measured_step(curve, _facts(file), parameters)


def _facts(file: Path) -> list[CaseFacts]:
    if is_baseline(file):
        return list(stored_facts(BaselineStore(file.parent).load(file.stem)))
    return [fact for suite in read_results(file).suites for fact in result_facts(suite)]


def _goal(
    file: Path,
    step: MeasuredStep,
    gpus: int,
    parameters: float | None,
    gpu_memory: float | None,
    precision: str | None,
    optimizer: str,
) -> Goal:
    """Return the goal. Raises ConfigError for a value that is none, or that is missing."""
    memory = step.gpu_memory if gpu_memory is None else gpu_memory * _GIGA
    if memory is None:
        raise ConfigError(f"{file} states no memory of a GPU: give --gpu-memory GB, as in 80")
    if not 1 <= gpus <= _MOST_GPUS:
        raise ConfigError(f"--gpus {gpus}: give a number of GPUs, as in 8")
    if not 0 < memory < _MOST_PARAMETERS:
        raise ConfigError(f"--gpu-memory {gpu_memory:g}: give the GB of a GPU, as in 80")
    for option, value, known in (
        ("--precision", precision, get_args(Precision)),
        ("--optimizer", optimizer, get_args(Optimizer)),
    ):
        if value is not None and value not in known:
            raise ConfigError(f"{option} {value}: it is not one of {', '.join(known)}")
    return Goal(
        parameters=step.parameters if parameters is None else parameters,
        gpus=gpus,
        gpu_memory=memory,
        optimizer="sgd" if optimizer == "sgd" else "adam",
        precision=next((one for one in get_args(Precision) if one == precision), None),
    )


def _write(path: Path, suite: str) -> None:
    try:
        replace_file(path, f"{suite}\n".encode())
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None
    typer.echo(f"written: {path}", err=True)


def _next(context: typer.Context, found: Recommendation, output: Path | None) -> str:
    """Return the one command that leads on."""
    if found.plan is None:
        return _again(context, gpus=2 * found.goal.gpus)
    if output is None:
        return _again(context, output=_WRITTEN)
    tier = "'perf and cpu'" if found.step.on_cpu else "gpu"
    return f"pytest -m {tier} --ddp-config={shlex.quote(str(output))} --ddp-json=advised.json"


def _again(context: typer.Context, **changed: object) -> str:
    """Return this command with the options as given, but for the changed ones."""
    values = {**context.params, **changed}
    words = ["ddp-perf", "advise", str(values["file"])]
    for option in context.command.params:
        value = values.get(option.name or "")
        if option.name != "file" and value not in (None, False, option.default):
            words += [option.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
