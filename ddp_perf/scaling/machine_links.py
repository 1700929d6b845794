"""The links of two machines side by side, each as fitted to a collective or to a scaling curve."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.render.units import layout_text
from ddp_perf.scaling.curves import measured_series
from ddp_perf.scaling.fit import CONFIDENCE as FIT_CONFIDENCE
from ddp_perf.scaling.fit import Band
from ddp_perf.scaling.prediction import FittedLink, PredictRequest, predict_all
from ddp_perf.session.compared_side import ComparedSide
from ddp_perf.session.gate.links import find_links
from ddp_perf.stats.interval import CONFIDENCE, Estimate, EstimatePair
from ddp_perf.stats.link.model import Link, flat


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
