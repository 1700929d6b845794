"""``ddp-perf predict`` and ``ddp-perf advise``: more ranks, other changes, and other machines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, get_args

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import AsJson, CurvesFile, parse_ranks, print_result
from ddp_perf.config.network import NETWORK_FORM, OF_EMULATION, parse_network
from ddp_perf.core.strategy import Precision
from ddp_perf.errors import ConfigError, ExitCode, ResultsError
from ddp_perf.scaling.advice.choice import Goal, Recommendation, StepModel, recommend
from ddp_perf.scaling.advice.facts import (
    CaseFacts,
    MeasuredStep,
    measured_step,
    result_facts,
    stored_facts,
)
from ddp_perf.scaling.advice.text import advice_file, advice_parts, suite_fragment
from ddp_perf.scaling.curves import (
    ScalingCurve,
    link_clashes,
    measured_series,
    published_series,
    stored_series,
)
from ddp_perf.scaling.fit import parse_change
from ddp_perf.scaling.machines import measured_topology
from ddp_perf.scaling.prediction import Prediction, PredictRequest, predict_all
from ddp_perf.scaling.text import PredictionFile, prediction_parts
from ddp_perf.session.result import read_results
from ddp_perf.stats.hardware import Optimizer
from ddp_perf.stats.link import Link, Topology, flat
from ddp_perf.system.files import replace_file

_GIGA = 1e9

# ``--network`` of both: the nodes, and the links in and between them.


Network = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The links between two GPUs of a node and between nodes (all adapters together):"
        f" {NETWORK_FORM}. [default: as measured, else one link for all GPUs]",
    ),
]


def _links(network: str | None, file: Path) -> tuple[Topology, bool]:
    """Return the links given, else those of the file, else one; and whether the file has them."""
    if network is not None:
        return _given(network), False
    measured = None if is_baseline(file) else measured_topology(read_results(file).suites)
    # One link: the fit finds its values.
    return measured or flat(Link(latency_s=1.0, bytes_per_s=1.0)), measured is not None


def _given(text: str) -> Topology:
    network = parse_network(text, "--network")
    if network.is_uncertain or not network.ranges.keys().isdisjoint(OF_EMULATION):
        raise ConfigError(
            f"--network {text}: ranges, {' and '.join(OF_EMULATION)} are those of emulated cases;"
            " give one value each"
        )
    return network.topology


# ``ddp-perf predict FILE``: predictions from scaling curves, for more ranks and for changes.


def predict(
    file: CurvesFile,
    world_sizes: Annotated[
        str, typer.Option(metavar="N,N,…", help="Numbers of ranks to predict.")
    ] = "16,32,256,1024,16384",
    fit: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="World sizes to fit on. [default: all measured]"),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Predict only curves with TEXT in their name.")
    ] = "",
    network: Network = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="Predict the effect of a change: batch:N, accumulate:N, bucket:MB, fp16, fsdp,"
            " bandwidth:FACTOR or latency:FACTOR; may be repeated. [default: some of each]",
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option("--price-per-gpu-hour", metavar="PRICE", help="Price. [default: the suite's]"),
    ] = None,
    samples: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Samples (not tokens) of a whole training, to find the best world size.",
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS", help="Find the cheapest world size that meets this deadline."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="COST", help="Find the fastest world size within this budget."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Also draw the curves.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit scaling laws to a curve of step times, and predict more ranks with 90 % bands.

    The α-β model of the step gives the prediction. Amdahl's law is shown for comparison. A curve
    that contradicts another one of the same work is reported, not fitted. If the results have
    all-reduces on one node and on several, the links within and between nodes are theirs.

    \b
    Exit code:
      0  every curve was predicted
      4  usage: an argument, or a file that cannot be read
      75  undecided: some curves were not, each with its reason
    """
    topology, measured = _links(network, file)
    request = PredictRequest(
        world_sizes=parse_ranks("--world-sizes", world_sizes),
        fit_world_sizes=parse_ranks("--fit", fit) if fit is not None else None,
        topology=topology,
        measured_links=measured,
        changes=tuple(map(parse_change, change)) if change else None,
        price_per_gpu_hour=_positive("--price-per-gpu-hour", price),
        samples=_positive("--samples", samples),
        deadline_h=_positive("--deadline", deadline),
        budget=_positive("--budget", budget),
    )
    _check_cost(request)
    predictions = _predictions(file, request, only)
    written = PredictionFile(predictions=tuple(predictions))
    print_result(written, prediction_parts(predictions), as_json=as_json)
    if plot is not None:
        _draw(plot, predictions)
    refused = any(one.refusal is not None for one in predictions)
    raise typer.Exit(ExitCode.UNDECIDED if refused else ExitCode.GREEN)


def _predictions(file: Path, request: PredictRequest, only: str) -> list[Prediction]:
    """Return the predictions of the curves whose name contains ``only``.

    Raises ResultsError if there is no such curve.
    """
    # All curves are predicted, since one may contradict another.
    predictions = [
        one
        for one in predict_all(curves_of(file), request)
        if only in f"{one.series.where} {one.series.title}"
    ]
    if not predictions:
        raise ResultsError(
            f"{file}: no curve{f' with {only!r}' if only else ''}: step times of several world"
            " sizes at one batch are needed"
        )
    return predictions


def curves_of(file: Path) -> list[ScalingCurve]:
    """Return the scaling curves of a results file or a baseline."""
    if not is_baseline(file):
        return [one for suite in read_results(file).suites for one in measured_series(suite)]
    store = BaselineStore(file.parent)
    baseline, structures = store.load(file.stem), store.work.structures_by_case()
    published = [one for table in baseline.published for one in published_series(table, structures)]
    return [*stored_series(baseline), *published]


def is_baseline(file: Path) -> bool:
    """Return whether the file is meant as a baseline. The reader checks it."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "accelerator" in content


def _positive(option: str, value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise ConfigError(f"{option} {value}: it must be above 0")
    return value


def _check_cost(request: PredictRequest) -> None:
    limited = request.deadline_h is not None or request.budget is not None
    if limited and request.samples is None:
        raise ConfigError("--deadline and --budget need --samples, the samples of a whole training")


def _draw(plot: Path, predictions: list[Prediction]) -> None:
    # Imported here: charts take a third of a second, and most commands draw none.
    from ddp_perf.render.chart import image
    from ddp_perf.scaling.chart import prediction_chart

    try:
        replace_file(plot, image(prediction_chart(predictions), plot.suffix))
    except OSError as error:
        raise ResultsError(f"{plot}: cannot be written: {error.strerror}") from None
    typer.echo(f"written: {plot}", err=True)


# ``ddp-perf advise FILE``: how to train a model on a number of GPUs.


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
    network: Network = None,
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
    topology, _ = _links(network, file)
    for option, count in (
        ("--model-params", model_params),
        ("--measured-params", measured_params),
    ):
        if count is not None and not 1 <= count <= _MOST_PARAMETERS:
            raise ConfigError(f"{option} {count:g}: give a number of parameters, as in 7e9")
    step = _step(file, only, measured_params)
    goal = _goal(
        step.parameters if model_params is None else model_params,
        gpus,
        gpu_memory=_memory(file, step, gpu_memory),
        precision=precision,
        optimizer=optimizer,
    )
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
    print_result(advice_file(found), advice_parts(found), as_json=as_json)
    if not as_json:
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


def _memory(file: Path, step: MeasuredStep, gpu_memory: float | None) -> float:
    """Return the bytes of a GPU. Raises ConfigError if they are not known, or not possible."""
    memory = step.gpu_memory if gpu_memory is None else gpu_memory * _GIGA
    if memory is None:
        raise ConfigError(f"{file} states no memory of a GPU: give --gpu-memory GB, as in 80")
    if not 0 < memory < _MOST_PARAMETERS:
        raise ConfigError(f"--gpu-memory {gpu_memory:g}: give the GB of a GPU, as in 80")
    return memory


def _goal(
    parameters: float,
    gpus: int,
    *,
    gpu_memory: float,
    precision: str | None,
    optimizer: str,
) -> Goal:
    """Return the goal. Raises ConfigError for a value that is none."""
    if not 1 <= gpus <= _MOST_GPUS:
        raise ConfigError(f"--gpus {gpus}: give a number of GPUs, as in 8")
    for option, value, known in (
        ("--precision", precision, get_args(Precision)),
        ("--optimizer", optimizer, get_args(Optimizer)),
    ):
        if value is not None and value not in known:
            raise ConfigError(f"{option} {value}: it is not one of {', '.join(known)}")
    return Goal(
        parameters=parameters,
        gpus=gpus,
        gpu_memory=gpu_memory,
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
