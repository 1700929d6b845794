"""The error of a model of times, in the interval of a change."""

from __future__ import annotations

import math
from typing import NamedTuple


class ModelError(NamedTuple):
    """The error of a change, on the log scale, if a model gave the times of its sides."""

    of_change: float = 0.0  # of itself
    of_step: float = 0.0  # whatever changes

    def widened(self, half: float, log: float) -> float:
        """Return half the width of an interval around ``log`` with these independent errors."""
        return math.hypot(half, self.of_change * log, self.of_step)

    def exceeding(self, half: float, chance: float) -> float:
        """Return the log that exceeds half of its own, widened interval by ``chance``.

        It solves log = chance + √(half² + (of_change · log)² + of_step²).
        """
        rest = 1 - self.of_change**2
        fixed = math.hypot(half, self.of_step)
        return (chance + math.hypot(fixed * math.sqrt(rest), self.of_change * chance)) / rest


# Of a step whose collectives take the time that a link's model gives. It was chosen over six cables
# between two hosts of one core. At six others, intervals of five rounds with it contain 52 of 54
# measured changes (benchmarks/emulation).
MODEL_ERROR = ModelError(of_change=0.1, of_step=0.025)
