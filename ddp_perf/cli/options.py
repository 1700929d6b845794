"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer


def _checked(rate: float) -> float:
    if not 0 < rate < 0.5:
        raise typer.BadParameter(f"{rate} is no rate between 0 and 0.5")
    return rate


FalseAlarmRate = Annotated[
    float,
    typer.Option(
        "--false-alarm-rate",
        metavar="P",
        callback=_checked,
        help="Chance of any false REGRESSION, over all verdicts of a session.",
    ),
]
