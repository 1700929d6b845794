"""The links of a machine: beside its baseline, and slower than they could be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import is_comparable
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.render.units import counted
from ddp_perf.session.gate.comparability import other_machine
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import LinkFinding
from ddp_perf.stats.link import LinkFit, LinkPoint
from ddp_perf.stats.link_fit import compare_links, fit_link

# The link of a suite of collectives: the fit of this session compared with the baseline's.
#
# If a training case regresses while the link got slower, the case may not have changed itself.


def find_links(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    baseline: Baseline,
    environment: Environment,
) -> tuple[LinkFinding, ...]:
    """Fit one link for each collective, layout and environment of the ranks.

    On one node it is the link within a node. Over several nodes a ring has the pace of its slowest
    link, so it is the link between nodes.
    """
    groups: dict[tuple[CollectiveKind, int, int, tuple[tuple[str, str], ...]], list[Case]] = {}
    for measurement in measurements.values():
        case = measurement.case
        if case.collective is not None:
            env = tuple(sorted(case.working_env.items()))
            key = case.collective.kind, case.world_size, case.nodes, env
            groups.setdefault(key, []).append(case)
    findings = []
    for (kind, ranks, nodes, env), cases in groups.items():
        now = fit_link(_measured(cases, measurements, summaries), kind=kind, ranks=ranks)
        finding = LinkFinding(kind=kind, ranks=ranks, nodes=nodes, env=dict(env), fit=now)
        stored = _stored(cases, baseline, environment)
        findings.append(_compared(finding, stored, cases[0].tolerances.step_time))
    return tuple(findings)


def _compared(
    finding: LinkFinding, stored: Mapping[str, Sequence[LinkPoint]], tolerance: float
) -> LinkFinding:
    """Compare the link with that of all stored sessions together, whose points are by date."""

    def fitted(points: Iterable[LinkPoint]) -> LinkFit | None:
        return fit_link(list(points), kind=finding.kind, ranks=finding.ranks)

    before = fitted(itertools.chain.from_iterable(stored.values()))
    if finding.fit is None or before is None:
        return finding
    sessions = [fit for points in stored.values() if (fit := fitted(points)) is not None]
    shift = compare_links(finding.fit, before, sessions)
    if shift is None:
        return finding
    return msgspec.structs.replace(
        finding,
        baseline_date=min(stored),
        before=before.link,
        shift=shift,
        tolerance=tolerance,
        slower=tuple(shift.slower(tolerance)),
    )


def _measured(
    cases: Sequence[Case],
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
) -> list[LinkPoint]:
    """Return one point for each launch of the cases that were not disturbed."""
    points: list[LinkPoint] = []
    for case in cases:
        if prevailing_disturbance(case.id, measurements) is None:
            points += _points(case, [row.values[STEP_TIME.name] for row in summaries[case.id]])
    return points


def _stored(
    cases: Sequence[Case], baseline: Baseline, environment: Environment
) -> dict[str, list[LinkPoint]]:
    """Return the points of the comparable reference sessions, by the date of the session."""
    points: dict[str, list[LinkPoint]] = {}
    for case in cases:
        stored = baseline.cases.get(case.id)
        if stored is None or not is_comparable(stored, case):
            continue
        if other_machine(stored, environment, world_size=case.world_size, nodes=case.nodes):
            continue
        for session in stored.reference(STEP_TIME.name):
            of_session = _points(case, session.values(STEP_TIME.name))
            points.setdefault(session.date, []).extend(of_session)
    return points


def _points(case: Case, step_s: Sequence[float]) -> Iterator[LinkPoint]:
    assert case.collective is not None  # the cases were grouped by it
    for seconds in step_s:
        yield LinkPoint(payload=case.collective.payload, seconds=seconds / case.collective.calls)


# Warnings of a machine that is slower than it could be, whatever the verdicts: its links.


_STATES = {
    "power_limit_w": "power limit (W)",
    "sm_clock_mhz": "application clock (MHz)",
    "gpu_memory": "memory (bytes)",
    "ecc": "ECC",
    "links": "links",
    "peer_access": "peer access",
    "networks": "networks for RDMA",
}


def machine_warnings(
    measurements: Iterable[Measurement], environment: Environment
) -> tuple[str, ...]:
    """Return what slows the links of these launches, and in what their nodes differ."""
    found: dict[str, None] = {}
    for measurement in measurements:
        found |= dict.fromkeys(_transport_warnings(measurement, environment))
        for launch in measurement.launches:
            found |= dict.fromkeys(_differences(launch.node_hardware, launch.hosts))
    return tuple(found)


def _transport_warnings(measurement: Measurement, environment: Environment) -> Iterator[str]:
    case = measurement.case
    used = {name for launch in measurement.launches for name in launch.transports}
    if case.nodes > 1 and any(name.startswith("NET/Socket") for name in used):
        seen = environment.networks
        why = f"although the nodes have {seen}" if seen else "and no network for RDMA is visible"
        yield (
            f"{case.ranks_text}: NCCL sends between the nodes over TCP sockets (NET/Socket), {why};"
            " a container needs the devices in /dev/infiniband and IPC_LOCK, EFA its plugin"
        )
    access = environment.peer_access_of(case.ranks_per_node)
    if access == "yes" and any(name.startswith("SHM") for name in used):
        yield (
            f"{case.ranks_text}: NCCL sends through the host's memory (SHM), although the GPUs"
            " can access each other's; see NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"
        )


def _differences(states: tuple[NodeHardware, ...], hosts: tuple[str, ...]) -> Iterator[str]:
    for name, words in _STATES.items():
        each = [getattr(state, name) for state in states]
        if len(set(each) - {None}) > 1:
            values = ", ".join(f"{host} {one}" for host, one in zip(hosts, each, strict=False))
            nodes = counted(len(states), "node")
            yield f"the {nodes} differ in {words} ({values}): the slowest decides"
