"""Two machines side by side: the figures of the cases that both measured, and their links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import layout_text
from ddp_perf.scaling.curves import measured_series
from ddp_perf.scaling.fit import CONFIDENCE as FIT_CONFIDENCE
from ddp_perf.scaling.fit import Band
from ddp_perf.scaling.prediction import FittedLink, PredictRequest, predict_all
from ddp_perf.session.compare_sessions import ComparedSession, ComparedSide
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import LinkFinding, SuiteResult
from ddp_perf.stats.interval import (
    CONFIDENCE,
    Estimate,
    EstimatePair,
    mean_estimate,
    ratio_estimate,
)
from ddp_perf.stats.link import Link, Topology, flat
from ddp_perf.stats.summary import efficiency_of

# The links of two machines side by side, each as fitted to a collective or to a scaling curve.


class LinkPair(msgspec.Struct, frozen=True, kw_only=True):
    """The link as fitted on both machines: to a collective's times, or to a scaling curve."""

    name: str
    confidence: float
    latency_s: EstimatePair
    bytes_per_s: EstimatePair  # None on both: the bytes of a step are not known


def link_pairs(old: ComparedSide, new: ComparedSide) -> Iterator[LinkPair]:
    """Yield each link that the results of both sides determine."""
    yield from _collective_links(old, new)
    yield from _curve_links(old, new)


def _collective_links(old: ComparedSide, new: ComparedSide) -> Iterator[LinkPair]:
    """Yield the links that both sides' suites of collectives determine."""
    before, after = (
        {
            (found.kind, found.ranks, found.nodes, tuple(sorted(found.env.items()))): found.fit
            for suite in side.merged()
            for found in find_links(
                suite.measurements,
                suite.summaries,
                Baseline(accelerator=suite.environment.accelerator_key, units={}),
                suite.environment,
            )
        }
        for side in (old, new)
    )
    for key, one in before.items():
        other = after.get(key)
        if one is None or other is None:
            continue
        settings = "".join(f", {name}={value}" for name, value in key[3])
        yield LinkPair(
            name=f"{key[0]}, {layout_text(key[1], key[1] // key[2])} ranks{settings}",
            confidence=CONFIDENCE,
            latency_s=EstimatePair(
                old=Estimate.within(one.link.latency_s, one.latency_s),
                new=Estimate.within(other.link.latency_s, other.latency_s),
            ),
            bytes_per_s=EstimatePair(
                old=Estimate.within(one.link.bytes_per_s, one.bytes_per_s),
                new=Estimate.within(other.link.bytes_per_s, other.bytes_per_s),
            ),
        )


def _curve_links(old: ComparedSide, new: ComparedSide) -> Iterator[LinkPair]:
    """Yield the links that fit the scaling curves of both sides."""
    before, after = (_fitted_links(side) for side in (old, new))
    for name, one in before.items():
        if (other := after.get(name)) is not None:
            yield LinkPair(
                name=name,
                confidence=FIT_CONFIDENCE,
                latency_s=EstimatePair(
                    old=_estimate(one.latency_s), new=_estimate(other.latency_s)
                ),
                bytes_per_s=EstimatePair(
                    old=_estimate(one.bytes_per_s), new=_estimate(other.bytes_per_s)
                ),
            )


def _fitted_links(side: ComparedSide) -> dict[str, FittedLink]:
    curves = [one for suite in side.merged() for one in measured_series(suite)]
    request = PredictRequest(
        world_sizes=(1,), topology=flat(Link(latency_s=1.0, bytes_per_s=1.0)), changes=()
    )
    return {
        f"{one.series.where}: {one.series.title}": one.link
        for one in predict_all(curves, request)
        if one.link is not None
    }


def _estimate(band: Band | None) -> Estimate | None:
    return None if band is None else Estimate.within(band.value, (band.low, band.high))


# Two machines side by side: the figures of the cases that both measured, and their links.
#
# Other GPUs, another link or another host say nothing about the code. So there is no verdict.


FigureName = Literal["step_s", "throughput", "efficiency", "exposed_s"]
LinkKind = Literal["nvlink", "pcie"]
UNNAMED = "unnamed-gpu"  # the baseline of published figures whose GPU is not named


class PublishedEfficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A published efficiency that is about a machine like one of the two, beside its own."""

    side: Literal["A", "B"]
    efficiency: tuple[float, ...]  # one figure, or the ends of a range
    modelled: bool  # its authors expected it
    hardware: str
    document: str
    where: str


class CasePair(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a case on both machines."""

    suite: str
    case_id: str
    world_size: int
    unit: str
    links: tuple[str | None, str | None]  # the slowest link of its GPUs on each machine
    figures: dict[FigureName, EstimatePair]
    published: tuple[PublishedEfficiency, ...] = ()
    disturbed: tuple[str, ...] = ()  # by what, on which machine


class MachinesSideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """Two machines side by side, without a verdict."""

    old: ComparedSide
    new: ComparedSide
    differences: tuple[str, ...]
    cases: tuple[CasePair, ...]
    links: tuple[LinkPair, ...]
    left_out: dict[str, str]  # cases that cannot be set side by side, and why


_Suites = Mapping[tuple[str, str], SuiteResult]  # by name of the suite and id of the case


def side_by_side(
    old: ComparedSide, new: ComparedSide, differences: tuple[str, ...], store: BaselineStore
) -> MachinesSideBySide:
    """Set the cases that both sides have side by side, with the published figures of `store`.

    Raises ResultsError if no case and no link was measured on both.
    """
    before, after = _by_case(old.merged()), _by_case(new.merged())
    left_out = {case_id: f"only in {old.name}" for _, case_id in before.keys() - after.keys()}
    left_out |= {case_id: f"only in {new.name}" for _, case_id in after.keys() - before.keys()}
    cases = []
    for key in [key for key in before if key in after]:
        one, other = (suites[key].measurements[key[1]].case for suites in (before, after))
        if one.work() != other.work():
            left_out[key[1]] = "other work in each file"
        elif not (before[key].summaries.get(key[1]) and after[key].summaries.get(key[1])):
            left_out[key[1]] = "no launch finished on one of the machines"
        else:
            cases.append(_pair(one, (before[key], after[key]), (old, new), store))
    links = tuple(link_pairs(old, new))
    if not cases and not links:
        raise ResultsError(
            f"{Outcome.INCOMPARABLE.value}: {old.name} and {new.name} are of two machines"
            f" ({', '.join(differences)}) and have no measured case in common; measure the same"
            " suite on both"
        )
    return MachinesSideBySide(
        old=old,
        new=new,
        differences=differences,
        cases=tuple(cases),
        links=links,
        left_out=dict(sorted(left_out.items())),
    )


def _by_case(suites: Sequence[SuiteResult]) -> _Suites:
    return {(suite.suite, case_id): suite for suite in suites for case_id in suite.measurements}


def _pair(
    case: Case,
    suites: tuple[SuiteResult, SuiteResult],
    sides: tuple[ComparedSide, ComparedSide],
    store: BaselineStore,
) -> CasePair:
    figures: dict[FigureName, EstimatePair] = {}
    for name, figure in _FIGURES.items():
        old, new = (_values(side, case, figure) for side in sides)
        if old or new:
            figures[name] = EstimatePair(
                old=mean_estimate(old) if old else None,
                new=mean_estimate(new) if new else None,
                ratio=ratio_estimate(old, new) if old and new else None,
            )
    where = [suite.environment for suite in suites]
    reasons = [prevailing_disturbance(case.id, suite.measurements) for suite in suites]
    return CasePair(
        suite=case.suite,
        case_id=case.id,
        world_size=case.world_size,
        unit=suites[0].measurements[case.id].launches[0].unit.name,
        links=(_link_of(where[0], case), _link_of(where[1], case)),
        figures=figures,
        published=tuple(_published(case, where, store)),
        disturbed=tuple(f"{side}: {why}" for side, why in zip("AB", reasons, strict=True) if why),
    )


def _values(side: ComparedSide, case: Case, figure: _Figure) -> list[float]:
    """Return the figure of each launch; of each session, if the side has several."""
    by_session = [list(_of_session(session, case, figure)) for session in side.sessions]
    if len(by_session) == 1:
        return by_session[0]
    return [mean_estimate(values).value for values in by_session if values]


def _of_session(session: ComparedSession, case: Case, figure: _Figure) -> Iterator[float]:
    for suite in session.suites:
        if suite.suite != case.suite or case.id not in suite.summaries:
            continue
        singles = {row.turn: row for row in suite.summaries.get(case.single or "", ())}
        for row in suite.summaries[case.id]:
            value = figure(case, row, singles.get(row.turn))
            if value is not None:
                yield value


_Figure = Callable[[Case, LaunchSummary, LaunchSummary | None], float | None]


def _efficiency(case: Case, row: LaunchSummary, single: LaunchSummary | None) -> float | None:
    """Return the throughput of a rank ÷ that of one rank in the same round."""
    if single is None:
        return None
    return efficiency_of(
        world_size=case.world_size,
        throughput=row.throughput,
        single_throughput=single.throughput,
    )


def _exposed_s(case: Case, row: LaunchSummary, single: LaunchSummary | None) -> float | None:
    terms = row.decomposition
    if terms is None or not terms.sees_communication or case.world_size == 1:
        return None
    return terms.terms["exposed"]


_FIGURES: dict[FigureName, _Figure] = {
    "step_s": lambda case, row, single: row.typical_step_s,
    "throughput": lambda case, row, single: row.throughput,
    "efficiency": _efficiency,
    "exposed_s": _exposed_s,
}


def _link_of(environment: Environment, case: Case) -> str | None:
    if case.run_ranks == 1 or case.nodes > 1:  # the link between nodes is not read
        return None
    return environment.link_of(case.world_size) or environment.interconnect


def _published(
    case: Case, where: Sequence[Environment], store: BaselineStore
) -> Iterator[PublishedEfficiency]:
    """Yield what is published about this case on one of the GPUs, or about GPUs so linked."""
    if case.world_size == 1 or case.tier != "gpu":
        return
    for side, environment in zip("AB", where, strict=True):
        link = _link_of(environment, case)
        kind: LinkKind | None = link and ("nvlink" if link.startswith("NV") else "pcie")  # type: ignore[assignment]
        for table in store.load(environment.accelerator_key).published:
            rows = [row for row in table.rows if row.case == case.id]
            yield from _efficiencies(side, table, rows)
        for table in store.load(UNNAMED).published if kind else ():
            if table.link == kind and table.work.get("workload") == case.workload:
                rows = [row for row in table.rows if _is_of(row, case)]
                yield from _efficiencies(side, table, rows)


def _is_of(row: PublishedRow, case: Case) -> bool:
    return (row.world_size, row.batch_size) == (case.world_size, case.batch_size)


def _efficiencies(
    side: str, table: PublishedTable, rows: Sequence[PublishedRow]
) -> Iterator[PublishedEfficiency]:
    figures = sorted(row.efficiency for row in rows if row.efficiency is not None)
    if figures:
        yield PublishedEfficiency(
            side="A" if side == "A" else "B",
            efficiency=tuple(dict.fromkeys((figures[0], figures[-1]))),
            modelled=table.modelled,
            hardware=table.hardware,
            document=table.document,
            where=table.where,
        )


# The links within and between nodes that a session's suites of collectives determine.


_KIND = "all_reduce"  # the most frequent collective of DDP


def measured_topology(suites: Iterable[SuiteResult]) -> Topology | None:
    """Return the links of the all-reduces, or None if they do not determine both.

    Within a node, that of the most ranks counts; between nodes, that of the most nodes. None as
    well if nodes have several numbers of ranks, or a swept environment makes several links.
    """
    found = [link for suite in suites for link in suite.links if link.kind == _KIND and link.fit]
    across = [link for link in found if link.nodes > 1]
    sizes = {link.ranks // link.nodes for link in across}
    if len(sizes) != 1 or len({str(link.env) for link in found}) != 1:
        return None
    (size,) = sizes
    within = [link for link in found if link.nodes == 1 and link.ranks <= size]
    if not within:
        return None
    return Topology(gpus_per_node=size, intra=_of_most_ranks(within), inter=_of_most_ranks(across))


def _of_most_ranks(links: Iterable[LinkFinding]) -> Link:
    most = max(links, key=lambda link: link.ranks)
    assert most.fit is not None  # the links were chosen by it
    return most.fit.link
