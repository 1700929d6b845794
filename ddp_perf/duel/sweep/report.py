"""The report of a sweep: its settings, the best one, and the lines that a suite file needs."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.sweep.halving import SettingResult, SweepResult
from ddp_perf.render.model import Cell, Column, Note, Report, Section, Status, Table, notes
from ddp_perf.render.units import (
    ABSENT,
    change_range,
    counted,
    describe_duration,
    milliseconds,
    percent_change,
    short_percent,
)

_OWN = "(the suite's own)"
_MOST_REASONS = 5  # lines of what was left out: the JSON file has all of them
_COLUMNS = (
    Column(title="setting", words=True),
    Column(title="step ms"),
    Column(title="change"),
    Column(title="95 % interval"),
    Column(title="laun\u00adches"),
    Column(title="dropped in rung"),
    Column(title="best"),
)


def build_sweep(result: SweepResult) -> Report:
    """Return what a person reads of a sweep, or of what an interrupted one measured."""
    judged = result.complete and result.verdict is not None
    best = _best(result)
    return Report(
        title="best setting",
        verdict=(result.best or "the suite's own") if judged else "undecided",
        status=Status.GREEN if judged else Status.UNDECIDED,
        about=(Note(text=_measured(result)),),
        headline=conclusion_text(result),
        table=Table(
            label="all settings",
            columns=_COLUMNS,
            rows=tuple(tuple(map(Cell, row)) for row in _rows(result)),
        ),
        notes=notes(_notes(result)),
        sections=() if best is None else (_lines(result, best),),
        option="--json",
    )


def _measured(result: SweepResult) -> str:
    launches = result.base_launches + sum(one.launches for one in result.settings)
    return (
        f"{result.case_id}: {counted(len(result.settings), 'setting')} beside the suite's own,"
        f" {counted(launches, 'launch')} in {describe_duration(result.wall_s)}"
    )


def _rows(result: SweepResult) -> Iterator[tuple[str, ...]]:
    own, launches = _step(result.base_step_s), str(result.base_launches)
    yield (_OWN, own, ABSENT, ABSENT, launches, ABSENT, _chance(result.base_chance))
    for one in result.settings:
        yield (
            one.name,
            _step(one.step_s),
            ABSENT if one.ratio is None else percent_change(one.ratio.ratio),
            change_range(None if one.ratio is None else one.ratio.interval),
            str(one.launches),
            _dropped(one, result),
            _chance(one.chance),
        )


def _step(seconds: float | None) -> str:
    return ABSENT if seconds is None else milliseconds(seconds)


def _dropped(one: SettingResult, result: SweepResult) -> str:
    if one.failure is not None:
        return "failed"
    return ABSENT if one.dropped is None else f"{one.dropped} of {result.rungs}"


def _chance(chance: float | None) -> str:
    return ABSENT if chance is None else f"{100 * chance:.0f} %"


def _notes(result: SweepResult) -> Iterator[str]:
    yield (
        "change: of the step, for as many samples, against the suite's own setting, in launches"
        " side by side; best: the probability that it is the fastest. A setting that was dropped"
        " early has few launches, and looks slower than it is."
    )
    for one in result.settings:
        if one.failure is not None:
            yield f"failed: {one.name}: {one.failure}"
    for left in result.left_out[:_MOST_REASONS]:
        yield f"left out: {left.name}: {left.reason}"
    if (more := len(result.left_out) - _MOST_REASONS) > 0:
        yield f"left out: {more} more, listed in the JSON file"


def _lines(result: SweepResult, best: SettingResult) -> Section:
    """Return the lines of a suite file that make a setting its own."""
    lines = yaml.safe_dump(best.changes, sort_keys=False, default_flow_style=False)
    title = f"lines for the file of suite {result.suite}"
    return Section(title=title, parts=(Note(text=lines, kind="output"),))


def conclusion_text(result: SweepResult) -> str:
    """Return the best setting and how sure that is, as a paragraph."""
    if not result.complete:
        return (
            "Not finished: no setting was judged by launches of its own. Give more time with"
            " --budget, or fewer values."
        )
    verdict, best = result.verdict, _best(result)
    if verdict is None:
        return "Every setting failed, so none was judged against the suite's own."
    by = f"{verdict.outcome.value} in {counted(verdict.pairs, 'pair')} of the last rung"
    if verdict.ratio is not None:
        by += f", {percent_change(verdict.ratio)}"
    if best is None:
        last = result.settings[0].name
        return f"The suite's own setting is the best: {last} is {by}."
    sure = _chance(best.chance)
    if result.is_faster:
        rate = short_percent(result.alpha)
        how = f"It is {by}, which did not choose it; false alarms: at most {rate}"
    elif verdict.outcome is DuelOutcome.EQUIVALENT:
        how = f"It is {by}: within {short_percent(result.tolerance)} of the suite's own setting"
    else:
        how = f"Whether it is faster than the suite's own is open: {by}. A longer --budget decides"
    return f"The best setting is {best.name} (probability {sure}). {how}."


def _best(result: SweepResult) -> SettingResult | None:
    return next((one for one in result.settings if one.name == result.best), None)
