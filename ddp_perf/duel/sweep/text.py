"""A sweep as text, as JSON, and as the lines of a suite file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.sweep.halving import SettingResult, SweepResult
from ddp_perf.duel.sweep.settings import LeftOut
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import (
    ABSENT,
    counted,
    describe_duration,
    milliseconds,
    percent_change,
    short_percent,
    to_json,
)
from ddp_perf.stats.paired import PairedRatio

_OWN = "(the suite's own)"
_MOST_REASONS = 5  # lines of what was left out: the JSON file has all of them


def sweep_json(result: SweepResult) -> str:
    """Return the result as JSON."""
    return to_json(result)


def sweep_schema() -> dict[str, Any]:
    """Return the JSON Schema of the result."""
    return msgspec.json.schema(SweepResult)


def setting_lines(changes: dict[str, Any]) -> str:
    """Return the lines of a suite file that make a setting its own."""
    return yaml.safe_dump(changes, sort_keys=False, default_flow_style=False).rstrip()


def sweep_text(result: SweepResult, width: int) -> str:
    """Return the table of settings, the best one with how sure that is, and what to write."""
    width = max(width, NARROWEST)
    paragraphs = [
        wrapped([_head(result)], width),
        _table(result, width),
        wrapped(list(_notes(result)), width),
        wrapped([conclusion_text(result)], width),
    ]
    best = _best(result)
    if best is not None:
        lines = setting_lines(best.changes).splitlines()
        paragraphs.append([f"lines for the file of suite {result.suite}:", *_indented(lines)])
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _head(result: SweepResult) -> str:
    launches = result.base_launches + sum(one.launches for one in result.settings)
    return (
        f"{result.case_id}: {counted(len(result.settings), 'setting')} beside the suite's own,"
        f" {counted(launches, 'launch')} in {describe_duration(result.wall_s)}"
    )


def _table(result: SweepResult, width: int) -> list[str]:
    table = plain_table()
    table.add_column("setting", overflow="fold")
    for heading in (
        "step\nms",
        "change",
        "95 % interval",
        "laun-\nches",
        "dropped\nin rung",
        "best",
    ):
        table.add_column(heading, justify="right")
    own_s = result.base_step_s
    own_step = ABSENT if own_s is None else milliseconds(own_s)
    launches, chance = str(result.base_launches), _chance(result.base_chance)
    table.add_row(_OWN, own_step, ABSENT, ABSENT, launches, ABSENT, chance)
    for one in result.settings:
        table.add_row(
            one.name,
            ABSENT if one.step_s is None else milliseconds(one.step_s),
            ABSENT if one.ratio is None else percent_change(one.ratio.ratio),
            _interval(one.ratio),
            str(one.launches),
            _dropped(one, result),
            _chance(one.chance),
        )
    return rendered(table, width)


def _dropped(one: SettingResult, result: SweepResult) -> str:
    if one.failure is not None:
        return "failed"
    return ABSENT if one.dropped is None else f"{one.dropped} of {result.rungs}"


def _interval(ratio: PairedRatio | None) -> str:
    if ratio is None or ratio.interval is None:
        return ABSENT
    low, high = ratio.interval
    return f"{percent_change(low)} … {percent_change(high)}"


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
    shown: tuple[LeftOut, ...] = result.left_out[:_MOST_REASONS]
    for left in shown:
        yield f"left out: {left.name}: {left.reason}"
    if (more := len(result.left_out) - len(shown)) > 0:
        yield f"left out: {more} more, listed in the JSON file"


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


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
