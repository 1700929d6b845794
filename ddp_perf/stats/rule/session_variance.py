"""The between-session variance, moderated by the other cases of the machine.

With three sessions the variance of one case has two degrees of freedom, and a t test at 0.1 % finds
nothing under 20 %. The cases of a machine share its conditions, so their variances are squeezed
towards a common value: Smyth, "Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments", SAGMB 3(1), 2004; the ``squeezeVar`` of limma.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats

# Assumed while there are only one or two sessions, and neither the machine's other cases nor the
# caller have anything better: sessions that differ by 3 %, as on a shared machine, with four
# degrees of freedom.
WIDE_DEFAULT = SessionPrior(sd=0.03, degrees_of_freedom=4.0, assumed=True)
_TREND_LEVEL = 1e-5  # a drift of the sessions needs strong evidence; see `detrend`
_CONFLICT_LEVEL = 0.01
_LEAST_SHARE = 0.25  # of the variance of levels


def squeeze_session_variance(variances: Sequence[float], dfs: Sequence[float]) -> SessionPrior:
    """Estimate the prior that the cases of one machine share (Smyth 2004, section 6.2).

    ``variances`` are one for each case, on the log scale, and ``dfs`` their degrees of freedom, as
    ``s² ~ s0² F(d, d0)``. With ``e = ln s² − ψ(d/2) + ln(d/2)`` over n cases::

        ψ'(d0/2) = mean[(e − ē)² n/(n−1) − ψ'(d/2)]
        s0²      = exp(ē + ψ(d0/2) − ln(d0/2))

    If the left-hand side is not positive, the cases differ by no more than chance: d0 is infinite,
    and s0² is their mean, weighted by degrees of freedom. A single case is no evidence of how cases
    differ: d0 is 0. Zeros are raised to 1e-5 of the median, as in limma.

    Raises ValueError if no usable variance is given.
    """
    s2, d = np.asarray(variances, dtype=float), np.asarray(dfs, dtype=float)
    if s2.shape != d.shape or s2.ndim != 1:
        raise ValueError("one number of degrees of freedom is needed for each variance")
    usable = np.isfinite(s2) & (s2 >= 0) & np.isfinite(d) & (d > 0)
    s2, d = s2[usable], d[usable]
    if s2.size == 0:
        raise ValueError("no finite variance with degrees of freedom was given")
    if s2.size == 1 or not s2.any():
        sd = math.sqrt(float(s2.mean()))
        return SessionPrior(sd=sd, degrees_of_freedom=0.0)
    middle = float(np.median(s2)) or float(s2[s2 > 0].min())
    s2 = np.maximum(s2, 1e-5 * middle)
    e = np.log(s2) - special.digamma(d / 2) + np.log(d / 2)
    spread = float(e.var(ddof=1)) - float(special.polygamma(1, d / 2).mean())
    if spread <= 0:
        return SessionPrior(
            sd=math.sqrt(float(np.average(s2, weights=d))), degrees_of_freedom=np.inf
        )
    half = trigamma_inverse(spread)
    s0_squared = math.exp(float(e.mean() + special.digamma(half)) - math.log(half))
    return SessionPrior(sd=math.sqrt(s0_squared), degrees_of_freedom=2 * half)


def sessions_alone(prior: SessionPrior, launch_noise: float) -> SessionPrior:
    """Remove the launches' part of the variance from a prior for the levels of sessions.

    At least a quarter of the variance is left to the sessions, however much the launches explain.
    """
    total = prior.sd**2
    sessions = max(total - launch_noise, _LEAST_SHARE * total)
    return msgspec.structs.replace(prior, sd=math.sqrt(sessions))


def trigamma_inverse(x: float) -> float:
    """Return y with ψ'(y) = x > 0, by Newton's method on 1/ψ', which is nearly linear.

    Source: Smyth 2004, appendix.
    """
    if x > 1e7:
        return 1 / math.sqrt(x)
    if x < 1e-6:
        return 1 / x
    y = 0.5 + 1 / x
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / x) / float(special.polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


class SessionSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of one session's level, its precision, and the correlation of sessions."""

    variance: float
    degrees_of_freedom: float
    correlation: float = 0.0  # of successive sessions, shrunken; at least 0
    assumed_sd: float | None = None  # of an assumed prior, for want of data

    def independent_sessions(self, sessions: int) -> float:
        """Return the effective number of independent sessions in a mean: n (1 − r) ÷ (1 + r)."""
        return max(1.0, sessions * (1 - self.correlation) / (1 + self.correlation))


def detrend(levels: Floats) -> tuple[Floats, int]:
    """Return the residuals of the sessions around their line or mean, and the residual df.

    A line is fitted only on strong evidence: an F test of the slope at 1e-5, its F reduced by the
    correlation of the sessions. A few correlated sessions look like a trend, and subtracting it
    hides most of their spread: at 0.1 % that tripled the false alarms.
    """
    n = len(levels)
    centred = levels - levels.mean()
    total = float(centred @ centred)
    if n < 4 or total == 0.0:
        return centred, n - 1
    time = np.arange(n) - (n - 1) / 2
    residual = centred - time * float(time @ centred) / float(time @ time)
    left, correlation = float(residual @ residual), session_correlation(residual)
    explained = max(0.0, total - left) * (1 - correlation) / (1 + correlation)
    # The upper tail of F by its beta form, which a line without noise does not break.
    p = float(special.betainc((n - 2) / 2, 0.5, left / (left + explained)))
    return (residual, n - 2) if p < _TREND_LEVEL else (centred, n - 1)


def session_correlation(residual: Floats) -> float:
    """Estimate the lag-one correlation of successive sessions, shrunken towards 0.

    Its bias of −1/n is corrected. n sessions count against eight sessions without correlation,
    because eight sessions estimate it only to ± 0.35.
    """
    n = len(residual)
    total = float(residual @ residual)
    if n < 4 or total == 0.0:
        return 0.0
    lag_one = float(residual[1:] @ residual[:-1]) / total + 1 / n
    return min(0.8, max(0.0, lag_one * n / (n + 8)))


def session_spread(residual: Floats, degrees_of_freedom: int) -> SessionSpread:
    """Estimate the spread from the residuals of the sessions around their mean or line.

    Correlated sessions lie closer to their own mean than to the next session; the factor ``(1 −
    1/n) ÷ (1 − 1/n_eff)`` corrects that.
    """
    n = len(residual)
    if degrees_of_freedom < 1:
        return SessionSpread(variance=0.0, degrees_of_freedom=0.0)
    raw = SessionSpread(
        variance=float(residual @ residual) / degrees_of_freedom,
        degrees_of_freedom=float(degrees_of_freedom),
        correlation=session_correlation(residual),
    )
    independent = max(1.5, raw.independent_sessions(n))
    corrected = raw.variance * (1 - 1 / n) / (1 - 1 / independent)
    return msgspec.structs.replace(raw, variance=corrected)


def moderate(
    spread: SessionSpread, prior: SessionPrior | None, *, launch_noise: float
) -> SessionSpread:
    """Combine a case's spread with the prior: ``(d0 s0² + d s²) ÷ (d0 + d)`` on d0 + d df.

    Source: Smyth 2004, equation 5. A prior describes the sessions alone. So ``launch_noise``, the
    variance of a session's level from its launches, is added to it; it also bounds the case's own
    variance from below. A prior that the case's own sessions contradict (F test at 1 %) is not
    used: it would raise an alarm for every session of a noisy case (Phipson et al. 2016, on
    hypervariable genes).
    """
    own = max(spread.variance, launch_noise)
    d = spread.degrees_of_freedom
    if prior is None or prior.degrees_of_freedom == 0:
        prior = WIDE_DEFAULT
    if prior.assumed and d >= 2:
        return msgspec.structs.replace(spread, variance=own)
    s0, d0 = prior.sd**2 + launch_noise, prior.degrees_of_freedom
    if d > 0 and _contradicted(own, d, s0, d0):
        return msgspec.structs.replace(spread, variance=own)
    variance = s0 if math.isinf(d0) else (d0 * s0 + d * own) / (d0 + d)
    return msgspec.structs.replace(
        spread,
        variance=variance,
        degrees_of_freedom=d0 + d,
        assumed_sd=prior.sd if prior.assumed else None,
    )


def _contradicted(own: float, d: float, s0: float, d0: float) -> bool:
    if s0 == 0.0:
        return own > 0.0
    if math.isinf(d0):
        return float(special.chdtrc(d, d * own / s0)) < _CONFLICT_LEVEL
    return float(special.fdtrc(d, d0, own / s0)) < _CONFLICT_LEVEL
