"""Amdahl's law at the end of a run: the serial fraction of each scaling curve, and its limit.

`ddp-perf predict` fits the α-β model, which has more terms, and extrapolates.
"""

from __future__ import annotations

from ddp_perf.core.scaling_key import curve_label
from ddp_perf.render.tables import short_names
from ddp_perf.render.units import counted
from ddp_perf.scaling.cross_checks import amdahl_check
from ddp_perf.scaling.curves import ScalingCurve, measured_series
from ddp_perf.scaling.fit import Band
from ddp_perf.scaling.points import first_invalid_point
from ddp_perf.session.figures import case_figures
from ddp_perf.session.result import SuiteResult


def amdahl_lines(result: SuiteResult) -> list[str]:
    """Return a line for each curve that was measured at two world sizes or more."""
    curves, speedups = measured_series(result), _observed(result)
    names, lines, disturbed = short_names([curve.label for curve in curves]), [], 0
    for curve in curves:
        if first_invalid_point(curve.points) is None and (curve.label, _most(curve)) in speedups:
            lines.append(f"Amdahl's law, {names[curve.label]}: {_line(curve, speedups)}")
        elif curve.left_out:
            disturbed += 1
    if disturbed:
        these = counted(disturbed, "curve")
        lines.append(f"Amdahl's law: {these} not fitted, because launches were disturbed")
    return lines


def _observed(result: SuiteResult) -> dict[tuple[str, int], float]:
    """Return the speed-up of each case that has one, by the label of its curve and its ranks."""
    found = {}
    for case_id, measurement in result.measurements.items():
        figures, ranks = case_figures(result, case_id), measurement.case.world_size
        if figures is not None and figures.scaling is not None:
            found[curve_label(case_id, ranks), ranks] = figures.scaling.speedup
    return found


def _line(curve: ScalingCurve, speedups: dict[tuple[str, int], float]) -> str:
    check, most = amdahl_check(curve.points, (), strong=curve.strong), _most(curve)
    serial = check.parameters["serial fraction"]
    by_law = most / (1 + serial.value * (most - 1))
    observed = speedups[curve.label, most]
    if observed <= 1:
        slower = f"{counted(most, 'rank')} are not faster than one"
        return f"speed-up {observed:.2f} observed, {most} ideal; {slower}, which the law excludes"
    tested = " (2 points: no test of the law)" if len(curve.points) == 2 else ""
    return (
        f"serial fraction {_percents(serial)}, {_limit(check.limit)};"
        f" {counted(most, 'rank')}: speed-up {observed:.2f} observed, {by_law:.2f} by the law,"
        f" {most} ideal{tested}"
    )


def _most(curve: ScalingCurve) -> int:
    return max(point.world_size for point in curve.points)


def _percents(band: Band) -> str:
    value, low, high = (f"{100 * end:.3g}" for end in (band.value, band.low, band.high))
    return f"{value} % (90 % interval: {low} to {high} %)"


def _limit(limit: Band) -> str:
    """Return the limit, or what it is not below if the interval spans more than a decade."""
    if limit.high > 10 * limit.low:
        return f"no limit of the speed-up below {limit.low:.3g}"
    return f"speed-up never over {limit.value:.3g} ({limit.low:.3g} to {limit.high:.3g})"
