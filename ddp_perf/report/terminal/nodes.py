"""The nodes of a case in words: the slowest one, and the link that the ranks wait for."""

from __future__ import annotations

from ddp_perf.render.units import counted, milliseconds
from ddp_perf.session.gate.nodes import (
    ExposedByLink,
    NodeCompute,
    exposed_by_link,
    slowest_node,
)
from ddp_perf.session.result import SuiteResult


def node_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return the lines of a case of several nodes; none of another case, or without terms."""
    measurement, rows = result.measurements[case_id], result.summaries.get(case_id, ())
    if measurement.case.nodes == 1 or not rows:
        return []
    node = slowest_node(measurement.launches, rows)
    link = exposed_by_link(case_id, result.measurements, result.summaries)
    return [
        *([_of_node(node)] if node is not None else []),
        *([_of_link(link)] if link is not None else []),
    ]


def node_notes(result: SuiteResult, names: dict[str, str]) -> list[str]:
    """Return the lines of each case of several nodes, with its name."""
    return [
        f"{name}: {line}" for case_id, name in names.items() for line in node_lines(result, case_id)
    ]


def _of_node(node: NodeCompute) -> str:
    return f"slowest node: {'' if node.is_slower else 'none beyond chance; '}{node}"


def _of_link(link: ExposedByLink) -> str:
    where = {True: "between nodes", False: "within a node", None: "not certain"}
    part = link.between_s
    ends = ""
    if part.low is not None and part.high is not None:
        ends = f" ({milliseconds(part.low)} to {milliseconds(part.high)})"
    return (
        f"slowest link: {where[link.is_mostly_between]}; of {milliseconds(link.exposed_s.value)} ms"
        f" exposed communication, {milliseconds(part.value)} ms{ends} are more than on one node,"
        f" {counted(link.launches, 'launch')}"
    )
