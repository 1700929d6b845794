"""How well a sum of variances is known (Satterthwaite, "An approximate distribution of estimates
of variance components", Biometrics Bulletin 2(6), 1946).
"""

from __future__ import annotations


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each given with its own; 1 where all are 0."""
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / df for variance, df in parts)
    return total**2 / spent if spent else 1.0
