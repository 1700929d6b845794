"""The self-test as text and as JSON."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.render.tables import plain_table, rendered, wrapped
from ddp_perf.render.units import counted, describe_duration, short_percent, to_json
from ddp_perf.selftest.curve import (
    LEAST_TRIALS,
    FalseAlarms,
    Point,
    PowerCurve,
    SelftestOutcome,
)
from ddp_perf.selftest.power import SlowDown, trials_to_show
from ddp_perf.stats.share import Share

SCHEMA_VERSION = 1
_NARROWEST = 80
_REMEDY = "More launches, a quieter machine or a larger case may help"
# Outcomes of the other trials, by column of the table.
_OTHERS = (
    (Outcome.SUSPECT,),
    (Outcome.UNDECIDED, Outcome.INVALID),
    (Outcome.PASS, Outcome.IMPROVEMENT),
)


class SelftestFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file ``selftest.json``."""

    schema_version: int = SCHEMA_VERSION
    conclusion: SelftestOutcome
    sentence: str
    smallest_found: Point | None = None
    curve: PowerCurve


def selftest_json(curve: PowerCurve) -> bytes:
    """Return the JSON of the curve, with the conclusion as a sentence."""
    file = SelftestFile(
        conclusion=curve.conclusion,
        sentence=conclusion_of(curve),
        smallest_found=curve.smallest_found,
        curve=curve,
    )
    return f"{to_json(file)}\n".encode()


def selftest_text(curve: PowerCurve, width: int) -> str:
    """Return the table of points, notes that explain it, and the conclusion."""
    width = max(width, _NARROWEST)
    table = plain_table()
    for heading in (
        "injected\n%",
        "observed\n%",
        "laun-\nches",
        "found\n",
        "95 % in-\nterval %",
        "sus-\npect",
        "unde-\ncided",
        "passed\n",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve.points:
        table.add_row(*_row(point))
    lines = [
        *wrapped([_what(curve), _how(curve)], width),
        "",
        *rendered(table, width),
        *wrapped(_notes(curve), width),
        "",
        *wrapped([f"{conclusion_of(curve)}."], width),
    ]
    return "\n".join(lines)


def conclusion_of(curve: PowerCurve) -> str:
    """Return the conclusion in one sentence, without its full stop."""
    match curve.conclusion:
        case SelftestOutcome.FALSE_ALARMS:
            return f"This gate raises too many false alarms here: {_alarms(curve.false_alarms)}"
        case SelftestOutcome.TOO_SHORT:
            return _too_short(curve)
        case SelftestOutcome.CANNOT_GATE:
            return _cannot_gate(curve)
        case SelftestOutcome.CAN_GATE:
            return _finds(curve)


def interval_text(share: Share) -> str:
    """Return the 95 % interval as text, in per cent."""
    low, high = share.interval
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _finds(curve: PowerCurve) -> str:
    point = curve.smallest_found
    assert point is not None  # else the conclusion is another
    assert point.slow_down is not None  # the gate found it, so it was measured
    alarms = curve.false_alarms.share
    return (
        f"On this machine, with {counted(curve.launches, 'launch')}, this gate finds a slow-down of"
        f" {_size(point.slow_down)} % or more in at least {100 * point.found.interval[0]:.0f} % of"
        f" sessions ({point.percent} % injected: found {_times(point.found)}); {alarms.found} of"
        f" {alarms.trials} unslowed sessions raised a REGRESSION ({interval_text(alarms)}). This"
        " does not include the variance between sessions"
    )


def _cannot_gate(curve: PowerCurve) -> str:
    largest = curve.points[-1]
    return (
        f"This machine cannot gate: even {largest.percent} % is found only"
        f" {_times(largest.found)}. {_REMEDY}"
    )


def _too_short(curve: PowerCurve) -> str:
    trials = min(point.found.trials for point in curve.points)
    if trials >= LEAST_TRIALS:
        largest = curve.points[-1]
        return (
            f"Too short: {largest.percent} % is found {_times(largest.found)}, which may be more or"
            f" less than half; run the command again to continue. {_REMEDY}"
        )
    more = curve.missing_launches
    time = f", {describe_duration(more * curve.launch_s)}" if curve.launch_s else ""
    return (
        f"Too short: a slow-down has only {trials} trials, and {LEAST_TRIALS} are needed. About"
        f" {more} more launches are needed{time}; run the command again to continue"
    )


def _times(share: Share) -> str:
    return f"{share.found} of {share.trials} times, 95 % interval {interval_text(share)}"


def _what(curve: PowerCurve) -> str:
    return (
        f"{curve.case_id} of {curve.suite} on {curve.environment.accelerator}:"
        f" step time of {counted(curve.measured, 'launch')}, some of them slowed on purpose"
    )


def _how(curve: PowerCurve) -> str:
    return (
        f"A session is {counted(curve.launches, 'launch')}, judged against the"
        f" {curve.sessions} unslowed sessions before it; tolerance"
        f" {short_percent(curve.tolerance)}, {short_percent(curve.false_alarm_rate)}"
        " false alarms per session,"
        f" {100 * curve.alpha:.2g} % for each verdict of the suite"
    )


def _row(point: Point) -> list[str]:
    others = [sum(point.outcomes.get(o, 0) for o in outcomes) for outcomes in _OTHERS]
    found = point.found
    return [
        str(point.percent),
        _size(point.slow_down) if point.slow_down else "–",
        str(point.launches),
        f"{found.found} of {found.trials}" if found.trials else "–",
        interval_text(found).removesuffix(" %") if found.trials else "–",
        *map(str, others),
    ]


def _size(slow_down: SlowDown) -> str:
    low, high = slow_down.interval
    return f"{100 * slow_down.value:.1f} ± {50 * (high - low):.1f}"


def _notes(curve: PowerCurve) -> list[str]:
    notes = []
    below = [p.percent for p in curve.points if 0 < p.percent / 100 < curve.tolerance]
    if below:
        notes.append(
            f"A slow-down of up to {max(below)} % is below the tolerance of"
            f" {short_percent(curve.tolerance)}; the gate is not meant to find it."
        )
    notes.append(f"False alarms: {_alarms(curve.false_alarms)}{_unshown(curve.false_alarms)}.")
    notes.append(
        "The sessions of one run are minutes apart, so the points do not include the variance"
        ' between sessions; "min. det." of a pytest session with three or more stored ones does.'
        " They share unslowed sessions, so they are not fully independent."
    )
    return notes


def _alarms(alarms: FalseAlarms) -> str:
    metrics = ", ".join(f"{name} {count}" for name, count in alarms.by_metric.items())
    return (
        f"{alarms.share.found} of {alarms.share.trials} unslowed sessions raised a REGRESSION"
        + (f" ({metrics})" if metrics else "")
        + f", 95 % interval {interval_text(alarms.share)}; the promised"
        f" rate is {100 * alarms.promised:.2g} %"
    )


def _unshown(alarms: FalseAlarms) -> str:
    low, high = alarms.share.interval
    if not low <= alarms.promised < high:
        return ""
    needed = trials_to_show(alarms.promised)
    return f", which takes {needed:,} sessions without an alarm to show"
