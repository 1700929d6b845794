"""The audit of a baseline file's own measurements: figures that cannot be true together.

Launches differ, so two figures contradict each other only if no pair of launches of a session
agrees. Throughput is not stored: it would be batch ÷ step time again. Computation hides
communication, so the exposed part determines no bandwidth; but all communication must fit into the
step.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline, CaseBaseline, Session
from ddp_perf.core.case import RANKS, RANKS_AND_STRATEGY, samples_of, work_without
from ddp_perf.core.metric import EFFICIENCY, STEP_TIME
from ddp_perf.stats.hardware import largest_peak, mfu
from ddp_perf.stats.plausibility import ROUNDING, Contradiction, least_bytes, link_peak
from ddp_perf.stats.summary import ideal_share

_STORED_DIGITS = 2e-6  # figures are stored to seven digits, and three make up a ratio


class CaseContradiction(Contradiction, frozen=True, kw_only=True):
    """Two different figures for the same thing, of one case in one session."""

    case_id: str
    date: str

    @property
    def label(self) -> str:
        return f"{self.case_id}, session of {self.date[:10]}"


class CasesAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The contradictions in the measured cases of one file."""

    file: str
    cases: int
    contradictions: tuple[CaseContradiction, ...]


class _Leg(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one session."""

    case_id: str
    case: CaseBaseline
    session: Session

    @property
    def steps(self) -> list[float]:
        """Seconds of a step, of each launch."""
        return self.session.values(STEP_TIME.name)

    @property
    def ranks(self) -> int:
        return int(self.case.work["world_size"])

    @property
    def samples(self) -> int:
        """The samples of a step over all ranks."""
        return samples_of(self.case.work)

    def ideal_share(self, single: _Leg) -> float:
        """Return the ideal step as a share of that of one rank: see ``stats.scaling``."""
        return ideal_share(
            world_size=self.ranks,
            samples=self.samples,
            single_samples=single.samples,
        )

    def contradiction(
        self, what: str, stated: float, computed: float, how: str
    ) -> CaseContradiction:
        return CaseContradiction(
            case_id=self.case_id,
            date=self.session.date,
            what=what,
            stated=stated,
            computed=computed,
            how=how,
        )


def audit_cases(baseline: Baseline) -> list[CaseContradiction]:
    """Return every measured figure that another one, or the hardware, rules out."""
    sessions: dict[str, list[_Leg]] = {}
    found: list[CaseContradiction] = []
    for case_id, case in baseline.cases.items():
        if case.source != "measured" or "collective.kind" in case.work:  # no batch, no scaling
            continue
        for session in case.sessions:
            leg = _Leg(case_id=case_id, case=case, session=session)
            if leg.steps:
                sessions.setdefault(session.date, []).append(leg)
    for legs in sessions.values():
        for leg in legs:
            singles = [one for one in legs if one.ranks == 1 < leg.ranks and _alike(one, leg)]
            for checks in (_first(leg), _scaling(leg, singles), _limits(leg)):
                found += checks
        for fewer, more in itertools.permutations(legs, 2):
            found += _of_pair(fewer, more)
    return found


def _first(leg: _Leg) -> Iterator[CaseContradiction]:
    """Check the recorded medians of the first session while that session is still stored."""
    if leg.case.log or leg.session is not leg.case.sessions[0]:
        return
    for name, stated in leg.case.first.items():
        values = leg.session.values(name)
        if values and not _near(stated, statistics.median(values)):
            computed = statistics.median(values)
            yield leg.contradiction(f"first {name}", stated, computed, "its launches' median")


def _scaling(leg: _Leg, singles: Sequence[_Leg]) -> Iterator[CaseContradiction]:
    """Check the stored ratio step ÷ ideal step against the two step times, and the efficiency."""
    launches = [launch for launch in leg.session.launches if EFFICIENCY.name in launch]
    for launch in launches:
        step_s, cost = launch[STEP_TIME.name], launch[EFFICIENCY.name]
        ranges = [
            (step_s / (share * max(one.steps)), step_s / (share * min(one.steps)))
            for one in singles
            for share in [leg.ideal_share(one)]
        ]
        if ranges and not any(_within(cost, low, high) for low, high in ranges):
            how = f"step time ÷ the ideal of any of {singles[0].case_id}"
            nearest = min(ranges[0], key=lambda bound: abs(bound - cost))
            yield leg.contradiction("step ÷ ideal step", cost, nearest, how)
            break
    least = max((launch[EFFICIENCY.name] for launch in launches), default=math.inf)
    if least < 1 - ROUNDING:
        yield leg.contradiction("efficiency", 1 / least, 1.0, "the best there can be")


def _limits(leg: _Leg) -> Iterator[CaseContradiction]:
    """Check the typical step against the peaks of the GPU and of its link."""
    environment, work = leg.session.environment, leg.case.work
    key, step_s = environment.accelerator_key, statistics.median(leg.steps)
    peak = largest_peak(key)  # a model chooses the format of its parameters, whatever the case's
    if leg.case.flops and peak and (share := mfu(leg.case.flops, step_s, peak)) > 1:
        how = f"the largest dense peak of {peak / 1e12:g} TFLOP/s"
        yield leg.contradiction("MFU", share, 1.0, how)
    if int(work.get("nodes", 1)) > 1:
        return  # the peak of a link between nodes is unknown
    link = environment.link_of(leg.ranks)
    rate = link_peak(key, link)
    if leg.case.structure is None or rate is None or work.get("fsdp.cpu_offload"):
        return
    needed = least_bytes(leg.case.structure.collectives) / step_s
    if needed > rate:
        what = "GB/s of its collectives"
        yield leg.contradiction(what, needed / 1e9, rate / 1e9, f"the peak of {key} over {link}")


def _of_pair(fewer: _Leg, more: _Leg) -> Iterator[CaseContradiction]:
    """Check two numbers of ranks: more ranks at the same batch each cannot be faster.

    At the same global batch they are faster by their number at most. On a CPU they may be faster
    than that, because their caches add up too.
    """
    if not (fewer.ranks < more.ranks and _alike(fewer, more, but=("batch_size",))):
        return
    many = more.ranks / fewer.ranks
    if fewer.samples * more.ranks == more.samples * fewer.ranks and fewer.ranks > 1:
        slowest, least = max(more.steps), min(fewer.steps)
        if slowest < least * (1 - ROUNDING):
            how = f"{fewer.ranks} ranks, which take no longer"
            yield more.contradiction("step ms", slowest * 1e3, least * 1e3, how)
    is_strong = fewer.samples == more.samples
    speedup = min(fewer.steps) / max(more.steps)
    if is_strong and more.case.work["tier"] == "gpu" and speedup > many * (1 + ROUNDING):
        how = f"{more.ranks} ranks for {fewer.ranks} at the same global batch (strong scaling)"
        yield more.contradiction("speedup", speedup, many, how)


def _alike(one: _Leg, other: _Leg, but: Sequence[str] = ()) -> bool:
    """Return whether both legs have the same work per rank.

    The number of ranks is ignored, and, if one leg has one rank, the strategy too.
    """
    has_single = 1 in (one.ranks, other.ranks)
    ignored = {*but, *(RANKS_AND_STRATEGY if has_single else RANKS)}
    return work_without(one.case.work, ignored) == work_without(other.case.work, ignored)


def _within(value: float, low: float, high: float) -> bool:
    return low * (1 - _STORED_DIGITS) <= value <= high * (1 + _STORED_DIGITS)


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_STORED_DIGITS)
