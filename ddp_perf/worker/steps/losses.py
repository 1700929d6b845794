"""The losses of some training steps, kept on the device until the timed steps are over."""

from __future__ import annotations

import math

import torch

_LAST = 32  # later steps are not checked for what rounding changes (docs/correctness.md)


class Losses:
    """The losses of steps 1, 2, 4, 8, 16 and 32, counted from the initial parameters.

    The numbers of these steps do not depend on how many warm-ups a launch had. Most of them are
    early, where rounding has not yet grown. Nothing here waits for the device.
    """

    def __init__(self, *, last: int = _LAST) -> None:
        """Keep none after step ``last``."""
        self._last = last
        self._micro_steps: list[torch.Tensor] = []
        self._kept: dict[int, torch.Tensor] = {}

    def begin_step(self) -> None:
        """Forget the micro-steps of the step before."""
        self._micro_steps = []

    def add(self, loss: torch.Tensor) -> None:
        """Add a micro-step's share of the loss, before any scaling for half precision."""
        self._micro_steps.append(loss.detach())

    def end_step(self, number: int) -> None:
        """Keep the loss of the step if its number is a power of two up to 32.

        The sum is a copy: the next replay of a CUDA graph overwrites the losses of its micro-steps.
        """
        if number <= self._last and number.bit_count() == 1:
            self._kept[number] = torch.stack(self._micro_steps).sum(dtype=torch.float64)

    def read(self) -> dict[str, float | None]:
        """Return the losses by step, None for one that is not finite. It waits for the device."""
        losses = {str(number): loss.item() for number, loss in self._kept.items()}
        return {number: loss if math.isfinite(loss) else None for number, loss in losses.items()}
