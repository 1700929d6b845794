"""The plan of a fleet as text and as JSON, with the source of each assumption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import rich.table

from ddp_perf.baselines.thin import INFORMING
from ddp_perf.plan.fleet_file import Aim, FleetFile
from ddp_perf.plan.noise import Noise, Source
from ddp_perf.plan.schedule import (
    MONTH,
    WEEK,
    FleetPlan,
    FoundCode,
    FoundNode,
    NightlySession,
)
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import ABSENT, counted, percent, short_percent, to_json
from ddp_perf.stats.rule.comparison import POWER

SCHEMA_VERSION = 1
_REACHED = "reached: everything that was asked"
_SCHEDULER = (
    "your scheduler chooses these nodes and gives them to the gate: the next ones of the turn, with"
    " those that the session before called SUSPECT or BAD NODE; and for several nodes always the"
    " same"
)
_NOISE = {
    "launch": "launches of a node differ by",
    "session": "nights differ, for all nodes alike, by",
    "node": "nodes differ, for good, by",
    "visit": "each node by itself differs from night to night by",
}


class FleetPlanFile(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a fleet for programs."""

    schema_version: int = SCHEMA_VERSION
    plan: FleetPlan
    gpu_minutes_per_night: float
    cost_per_night: float | None
    reached: bool  # everything that the file asks for is found, within its budget


def fleet_plan_json(plan: FleetPlan) -> str:
    """Return the plan as JSON."""
    return to_json(
        FleetPlanFile(
            plan=plan,
            gpu_minutes_per_night=plan.gpu_minutes,
            cost_per_night=plan.cost,
            reached=not plan.missed,
        )
    )


def fleet_plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of the plan."""
    return msgspec.json.schema(FleetPlanFile)


def fleet_plan_text(plan: FleetPlan, width: int) -> str:
    """Return the recommendation, what it finds and costs, and what it rests on."""
    width = max(width, NARROWEST)
    paragraphs = [
        wrapped(list(_asked(plan.file)), width),
        wrapped([_recommendation(plan), _SCHEDULER], width),
        rendered(_code_table(plan), width),
        rendered(_node_table(plan), width),
        wrapped(list(_totals(plan)), width),
        wrapped([f"not reached: {why}" for why in plan.missed] or [_REACHED], width),
        wrapped(list(_assumptions(plan)), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs)


def _asked(file: FleetFile) -> Iterator[str]:
    fleet, find, alarms = file.fleet, file.find, file.false_alarms_per_month
    yield (
        f"{fleet.gpus:,} GPUs ({fleet.accelerator}): {fleet.nodes:,} nodes of"
        f" {fleet.gpus_per_node}; a night may take {fleet.gpu_minutes_per_night:,.0f} GPU-minutes"
    )
    yield (
        f"asked: find code that is {short_percent(find.code.slower)} slower within"
        f" {counted(find.code.nights, 'night')}, and a node that is"
        f" {short_percent(find.node.slower)} slower within {counted(find.node.nights, 'night')},"
        f" with probability {find.probability:.0%}; false alarms a month: {alarms.code:g} of the"
        f" code, {alarms.node:g} of a node"
    )


def _recommendation(plan: FleetPlan) -> str:
    sample = plan.sample
    turn = "night" if sample.every == 1 else f"{sample.every} nights"
    parts = [
        f"RECOMMENDED: every night {sample.nodes:,} of {plan.file.fleet.nodes:,} nodes by"
        f" themselves, in turn (each node every {turn}), {counted(sample.launches, 'launch')} of"
        " each case"
    ]
    for when, nights in (("night", 1), ("week", WEEK)):
        groups = [_group(plan, found) for found in plan.across if found.every == nights]
        if groups:
            parts.append(f"every {when}, on the same nodes, {', '.join(groups)}")
    return "; ".join(parts)


def _group(plan: FleetPlan, found: FoundCode) -> str:
    layout = f"{found.nodes}×{plan.file.fleet.gpus_per_node}"
    return f"{counted(found.figures, 'launch')} of {found.case} on {layout}"


def _code_table(plan: FleetPlan) -> rich.table.Table:
    aim, asked = plan.file.find.code, plan.file.find.probability
    table = plain_table()
    table.add_column("the code\n", overflow="fold")
    headings = (
        *("GPUs\n", "launches\n", "every\n", "GPU-min\na session"),
        f"found by one\nsession ({POWER:.0%})",
        *_found_headings(aim, asked),
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for found in (*plan.sample.code, *plan.across):
        table.add_row(
            found.case,
            f"{found.nodes}×{plan.file.fleet.gpus_per_node}",
            f"{found.figures}×{found.launches}" if found.nodes == 1 else str(found.figures),
            "night" if found.every == 1 else "week",
            f"{found.gpu_minutes:,.0f}",
            f"+{percent(found.smallest)}",
            *_found_cells(found),
        )
    return table


def _node_table(plan: FleetPlan) -> rich.table.Table:
    aim, asked, node = plan.file.find.node, plan.file.find.probability, plan.sample.node
    table = plain_table()
    table.add_column("each node, by\n", overflow="fold")
    smallest = (
        f"found by two\nvisits ({asked:.0%})",
        f"found in {aim.nights}\nnights ({asked:.0%})",
    )
    for heading in (*smallest, *_found_headings(aim, asked)):
        table.add_column(heading, justify="right", no_wrap=True)
    found = (ABSENT if one is None else f"+{percent(one)}" for one in (node.at_once, node.in_time))
    table.add_row(node.case, *found, *_found_cells(node))
    return table


def _found_headings(aim: Aim, asked: float) -> list[str]:
    return [
        f"+{short_percent(aim.slower)} in\n{counted(aim.nights, 'night')}",
        "half by\nnight",
        f"{asked:.0%} by\nnight",
    ]


def _found_cells(found: FoundCode | FoundNode) -> list[str]:
    nights = [ABSENT if one is None else str(one) for one in (found.half_night, found.most_night)]
    return [f"{100 * found.within:.0f} %", *nights]


def _totals(plan: FleetPlan) -> Iterator[str]:
    cost, sample = plan.cost, plan.sample
    price = plan.file.fleet.price_per_gpu_hour
    night = "" if cost is None else f", {cost:,.0f} at {price:g} a GPU-hour"
    month = "" if cost is None else f", {MONTH * cost:,.0f}"
    yield (
        f"a night: {plan.gpu_minutes:,.0f} GPU-minutes{night} ({short_percent(plan.share)} of the"
        f" fleet's time); a month: {MONTH * plan.gpu_minutes / 60:,.0f} GPU-hours{month}"
    )
    yield (
        f"each node that is slow is measured every night until it is mended:"
        f" {sample.gpu_minutes / sample.nodes:,.0f} GPU-minutes more a night"
    )
    hours = sample.gpu_minutes / plan.file.fleet.gpus_per_node / 60
    yield (
        f"each_node launches on one node after the other, {hours:.1f} hours a night; a node"
        " that waits in an allocation is not counted"
    )
    code, node = (MONTH * sum(one.false_alarm_rate for one in plan.sessions[:n]) for n in (2, 1))
    yield (
        f"false alarms a month, at most: code {code:.2g}, node {node:.2g};"
        f" {' and '.join(map(_session, plan.sessions))}"
    )


def _session(session: NightlySession) -> str:
    where = "with each_node" if session.each_node else "over several nodes"
    return (
        f"--ddp-false-alarm-rate {session.false_alarm_rate:.2g} {where}"
        f" ({counted(session.verdicts, 'verdict')} on the code, alpha {session.alpha:.2g} each)"
    )


def _assumptions(plan: FleetPlan) -> Iterator[str]:
    for name, noise in plan.noises.items():
        yield f"{name}: {'; '.join(_sources(noise))}"
    case = "; ".join(f"{one.name} {one.launch_s:g} s" for one in plan.file.cases)
    yield f"a launch takes: {case} (stated)"
    yield (
        "modelled: normal noise; a launch on several nodes is as noisy as one on one node; of each"
        f" case the baseline has {INFORMING} sessions, as many as it keeps"
    )


def _sources(noise: Noise) -> Iterator[str]:
    for name, text in _NOISE.items():
        source: Source = noise.sources[name]
        where = f" by {noise.note}" if source == "measured" else ""
        yield f"{text} {short_percent(getattr(noise, name))} ({source}{where})"
