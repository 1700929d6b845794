"""The rows of the matrix that were recorded last."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from tests.faults.matrix import Row

PARTS = ("ranks", "ends", "storage", "inputs", "outsiders", "endurance")
RECORDED = Path(__file__).parents[1] / "data/faults.json"
Recorded: TypeAlias = dict[str, tuple[Row, ...]]
