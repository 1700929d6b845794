"""Model FLOPs utilisation (MFU): the share of a GPU's dense peak that a step uses."""

from __future__ import annotations


def mfu(flops: int, step_s: float, peak: float) -> float:
    """Return the FLOPs of one rank's step as a share of its GPU's peak (PaLM, appendix B).

    ``peak`` is in FLOP/s. The FLOPs are counted operations: with activation checkpointing they
    contain the recomputed ones too, so the result is then the hardware FLOPs utilisation.
    """
    return flops / (step_s * peak)
