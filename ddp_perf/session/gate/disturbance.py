"""What disturbed the launches of a case, and what follows for its verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import is_timed, needs_single_rank
from ddp_perf.core.verdict import Outcome

_NOT_COMPARED = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE)
# What each condition is called, and what to do about it. The share is that of its launches.
_CAUSES = {
    "foreign": "other processes took {share} of the ranks' cores (find them with top)",
    "stolen": "the hypervisor took {share} of the ranks' cores for other machines",
    "quota": "the CPU quota of the control group held back {share} of its CPU time (raise cpu.max)",
    "memory": "processes waited for memory for {share} of the time (free some)",
    "slow_clock": "the cores' clock was {share} below their base frequency (heat, a power limit)",
    "overheated": "heat throttled the ranks' cores",
    "gpu_heat": "heat held the clocks of a GPU down for {share} of the time (cool it)",
    "gpu_slowed": "heat or a weak power supply slowed a GPU down (nvidia-smi -q -d PERFORMANCE)",
    "gpu_shared": "another process computed on a rank's GPU (find it with nvidia-smi)",
    "gpu_errors": "a GPU's memory failed beyond what ECC corrects (nvidia-smi -q -d ECC)",
}


_OF_THE_HOST = ("foreign", "stolen", "quota", "memory", "slow_clock", "overheated")


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a case's launches were disturbed, and by what."""

    launches: int
    disturbed: int
    harmless: int = 0  # of those: the host alone was, and its GPU never waited for it
    causes: tuple[str, ...]  # in words, the most frequent one first

    @property
    def prevails(self) -> bool:
        """From half on: the typical launch is not free of it then."""
        return 2 * (self.disturbed - self.harmless) >= self.launches

    @property
    def more_launches(self) -> int:
        """How many more, undisturbed, would outweigh those that were: a neighbour may go."""
        return 2 * (self.disturbed - self.harmless) - self.launches + 1

    def __str__(self) -> str:
        verb = "was" if self.disturbed == 1 else "were"
        count = f"{self.disturbed} of {self.launches} launches {verb} disturbed"
        text = f"{count}: {', '.join(self.causes)}"
        if self.harmless:
            verb = "does" if self.harmless == 1 else "do"
            text += f"; {self.harmless} of them {verb} not count: no GPU waited for its host"
        return text


def find_disturbance(
    case_id: str, measurements: Mapping[str, Measurement], *, with_single: bool
) -> Disturbance | None:
    """None where no launch of the case was disturbed, as far as is known.

    A launch is disturbed when one cause took more than the tolerance of the step time: by
    itself it is as large then as what the gate looks for. ``with_single``: also by what
    disturbed the one-rank launch of its round, with which it makes one figure of scaling.
    """
    measurement = measurements[case_id]
    tolerance = measurement.case.tolerances.step_time
    single = measurements.get(measurement.case.single or "") if with_single else None
    beside = {launch.round: launch for launch in single.launches} if single else {}
    found: dict[str, list[float]] = {}
    disturbed = harmless = 0
    for launch in measurement.launches:
        legs = [launch, *([beside[launch.round]] if launch.round in beside else [])]
        large = {cause: share for cause, share in _losses(legs).items() if share > tolerance}
        disturbed += bool(large)
        decisive = _losses(legs, decisive=True)
        harmless += bool(large) and not any(share > tolerance for share in decisive.values())
        for cause, share in large.items():
            found.setdefault(cause, []).append(share)
    if not disturbed:
        return None
    causes = sorted(found, key=lambda cause: (len(found[cause]), max(found[cause])), reverse=True)
    return Disturbance(
        launches=len(measurement.launches),
        disturbed=disturbed,
        harmless=harmless,
        causes=tuple(_in_words(cause, found[cause]) for cause in causes),
    )


def prevailing_disturbance(
    case_id: str, measurements: Mapping[str, Measurement], *, with_single: bool
) -> str | None:
    """What made the case's launches worth nothing, in words; None where most were left alone."""
    found = find_disturbance(case_id, measurements, with_single=with_single)
    return str(found) if found is not None and found.prevails else None


def _losses(launches: Sequence[LaunchResult], *, decisive: bool = False) -> dict[str, float]:
    """Return the share that each known cause took, at worst: the slowest rank decides.

    ``decisive``: without what the host lost where its GPUs never waited for it.
    """
    worst: dict[str, float] = {}
    for launch in launches:
        ahead = launch.host_bound is False
        for rank in launch.ranks:
            for cause, share in msgspec.structs.asdict(rank.conditions).items():
                harmless = decisive and ahead and cause in _OF_THE_HOST
                if share is not None and not harmless:
                    worst[cause] = max(worst.get(cause, 0.0), float(share))
    return worst


def _in_words(cause: str, shares: Sequence[float]) -> str:
    percent = 100 * statistics.median(shares)
    return _CAUSES[cause].format(share=f"{percent:.{0 if percent >= 10 else 1}f} %")


def qualified(
    finding: Finding, measurements: Mapping[str, Measurement], *, where: str = ""
) -> Finding:
    """The finding with what disturbed the launches that it compared: INVALID where disturbed
    ones prevail, whatever the figures say, or the same with a remark.

    Such launches yield no REGRESSION that anyone should believe, and no PASS either.
    ``where``: of what session they are, if it is not the one that is judged.
    """
    if not is_timed(finding.metric) or finding.verdict.outcome in _NOT_COMPARED:
        return finding
    with_single = needs_single_rank(finding.metric)
    disturbance = find_disturbance(finding.case_id, measurements, with_single=with_single)
    if disturbance is None:
        return finding
    verdict, what = finding.verdict, f"{where}{disturbance}"
    if not disturbance.prevails:
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason}. {what}")
        return msgspec.structs.replace(finding, verdict=verdict)
    said = f"{what}; the figures said {verdict.outcome.value}: {verdict.reason}"
    verdict = msgspec.structs.replace(
        verdict, outcome=Outcome.INVALID, reason=said, more_launches=disturbance.more_launches
    )
    return msgspec.structs.replace(finding, verdict=verdict, disturbance=what)
