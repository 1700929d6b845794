"""The self-test as text and as JSON."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.render.tables import plain_table, rendered, wrapped
from ddp_perf.render.units import counted, describe_duration, short_percent, to_json
from ddp_perf.selftest.curve import (
    LEAST_SESSIONS,
    LEAST_TRIALS,
    FalseAlarms,
    Modelled,
    Point,
    PowerCurve,
    SelftestOutcome,
)
from ddp_perf.selftest.power import Share

SCHEMA_VERSION = 2
_NARROWEST = 80
# Outcomes of the other trials, by column of the table.
_OTHERS = (
    (Outcome.SUSPECT,),
    (Outcome.INCONCLUSIVE, Outcome.INVALID),
    (Outcome.PASS, Outcome.IMPROVEMENT),
)


class SelftestFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file ``selftest.json``."""

    schema_version: int = SCHEMA_VERSION
    conclusion: SelftestOutcome
    sentence: str
    curve: PowerCurve


def selftest_json(curve: PowerCurve) -> bytes:
    """Return the JSON of the curve, with its models and the conclusion as a sentence."""
    file = SelftestFile(conclusion=curve.conclusion, sentence=conclusion_of(curve), curve=curve)
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
        "mod-\nelled %",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve.points:
        table.add_row(*_row(point, curve))
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
            return _sees(curve)


def interval_text(share: Share) -> str:
    """Return the 95 % interval as text, in per cent."""
    low, high = share.interval
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def model_text(modelled: Modelled) -> str:
    """Return the launches and sessions of a dashed line as text."""
    launches = counted(modelled.launches, "launch")
    if modelled.stored:
        return f"{launches}, spread of the {modelled.sessions} stored sessions"
    return f"{launches}, spread of this run"


def _sees(curve: PowerCurve) -> str:
    point = curve.sees
    assert point is not None  # else the conclusion is another
    assert point.slow_down is not None  # the gate found it, so it was measured
    found, rate = point.found, short_percent(curve.false_alarm_rate)
    return (
        f"On this machine, with {counted(curve.launches, 'launch')}, this gate sees ≥"
        f" {100 * point.slow_down.value:.1f} % with 90 % power at {rate} false alarms per session"
        f" ({point.percent} % injected: found {found.found} of {found.trials} times, 95 % interval"
        f" {interval_text(found)}); {_of_sessions(curve)}"
    )


def _of_sessions(curve: PowerCurve) -> str:
    for modelled in curve.modelled:
        if modelled.stored:
            return f"modelled with the spread of stored sessions, {_detectable(modelled)}"
    return "this does not include the variance between sessions"


def _cannot_gate(curve: PowerCurve) -> str:
    largest = curve.points[-1]
    return (
        f"This machine cannot gate: even {largest.percent} % is found only {largest.found.found}"
        f" of {largest.found.trials} times. More launches, a quieter machine or a larger case"
        " may help"
    )


def _too_short(curve: PowerCurve) -> str:
    trials = min(point.found.trials for point in curve.points)
    more = curve.missing_launches
    time = f", {describe_duration(more * curve.launch_s)}" if curve.launch_s else ""
    return (
        f"Too short: a slow-down has only {trials} trials, and {LEAST_TRIALS} are needed. About"
        f" {more} more launches are needed{time}; run the command again to continue"
    )


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


def _row(point: Point, curve: PowerCurve) -> list[str]:
    others = [sum(point.outcomes.get(o, 0) for o in outcomes) for outcomes in _OTHERS]
    found = point.found
    return [
        str(point.percent),
        _slower(point),
        str(point.launches),
        f"{found.found} of {found.trials}" if found.trials else "–",
        interval_text(found).removesuffix(" %") if found.trials else "–",
        *map(str, others),
        _modelled_at(point, curve),
    ]


def _slower(point: Point) -> str:
    if point.slow_down is None:
        return "–"
    low, high = point.slow_down.interval
    return f"{100 * point.slow_down.value:.1f} ± {50 * (high - low):.1f}"


def _modelled_at(point: Point, curve: PowerCurve) -> str:
    if not curve.modelled:
        return "–"
    slow_down = point.slow_down.value if point.slow_down else point.percent / 100
    return f"{100 * curve.modelled[0].power_at(slow_down):.1f}"


def _notes(curve: PowerCurve) -> list[str]:
    notes = []
    below = [p.percent for p in curve.points if 0 < p.percent / 100 < curve.tolerance]
    if below:
        notes.append(
            f"A slow-down of up to {max(below)} % is below the tolerance of"
            f" {short_percent(curve.tolerance)}; the gate is not meant to find it."
        )
    notes.append(f"False alarms: {_alarms(curve.false_alarms)}.")
    notes += [f"Modelled: {_describe_model(modelled)}." for modelled in curve.modelled]
    notes.append(
        "The sessions of one run are minutes apart, so the points do not include the variance"
        " between sessions. They share unslowed sessions, so they are not fully independent."
    )
    if curve.stored_sessions < LEAST_SESSIONS:
        notes.append(
            f"Stored sessions of this case: {curve.stored_sessions};"
            f" {LEAST_SESSIONS} are needed to model the variance between sessions"
            " (pytest --save-baseline=append)."
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


def _describe_model(modelled: Modelled) -> str:
    spread = modelled.spread
    kind = "stored sessions" if modelled.stored else "sessions of this run"
    return (
        f"{model_text(modelled)} (launches differ by {100 * spread.launch:.1f} %, {kind} by"
        f" {100 * spread.session:.1f} % beyond that): {_detectable(modelled)}"
    )


def _detectable(modelled: Modelled) -> str:
    if modelled.detectable is None:
        return "not even a slow-down of 100 % is found 9 times in 10"
    return f"a slow-down of {100 * modelled.detectable:.1f} % is found 9 times in 10"
