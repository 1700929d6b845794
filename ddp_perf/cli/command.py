"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, TARGETS
from ddp_perf.core.session import TYPICAL_STEP
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import parse_duration


def _checked(rate: float) -> float:
    if not 0 < rate < 0.5:
        raise typer.BadParameter(f"{rate} is not a rate between 0 and 0.5")
    return rate


def budget_seconds(text: str) -> float:
    """Return the seconds of a ``--budget``. Raises ConfigError."""
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--budget: {error}") from None


def _each_acknowledged(metrics: list[str] | None) -> list[str] | None:
    for metric in metrics or ():
        if metric not in _ACKNOWLEDGED:
            raise typer.BadParameter(f"{metric!r} is not one of {', '.join(_ACKNOWLEDGED)}")
    return metrics


def _recorded(metric: str) -> str:
    if metric not in _RECORDED:
        raise typer.BadParameter(f"{metric!r} is not one of {', '.join(_RECORDED)}")
    return metric


RESULTS_HELP = "Written by pytest --ddp-json=FILE; --ddp-report=DIR writes DIR/results.json."
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
BaselineDirectory = Annotated[
    Path, typer.Option("--baselines", metavar="DIR", help="The directory of baseline files.")
]
_METRICS = [metric.name for metric in METRICS]
_RECORDED = [*_METRICS, TYPICAL_STEP]
Metric = Annotated[
    str, typer.Option(metavar="NAME", callback=_recorded, help=f"One of {', '.join(_RECORDED)}.")
]
_ACKNOWLEDGED = [*_METRICS, *EXACT, *(metric.name for metric in TARGETS)]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        callback=_each_acknowledged,
        help=f"One of {', '.join(_ACKNOWLEDGED)}; may be repeated. [default: {STEP_TIME.name}]",
    ),
]
FalseAlarmRate = Annotated[
    float,
    typer.Option(
        "--false-alarm-rate",
        metavar="P",
        callback=_checked,
        help="Probability of any false REGRESSION among all verdicts of a session.",
    ),
]
CurvesFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Results of pytest --ddp-json, or a baseline with or without published tables.",
    ),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="GPUs per node. [default: as measured, else one link for all GPUs]"
    ),
]
IntraBandwidth = Annotated[
    float | None, typer.Option(metavar="GB/s", help="Bandwidth between two GPUs of a node.")
]
InterBandwidth = Annotated[
    float | None, typer.Option(metavar="GB/s", help="Bandwidth of a node, all adapters together.")
]
