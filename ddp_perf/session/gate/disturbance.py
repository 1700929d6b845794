"""Disturbed launches of a case, and their effect on its verdicts.

A limit that the ranks reach by their own use of CPU time or memory is no disturbance, but a part of
the step's cost: a REGRESSION stays one, with a remark. What heat costs a GPU, its clock beside that
of the baseline shows (``gpu_clock``). Heat and clocks that a GPU loses excuse no missed
target: they are what a target is there to find.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import STEP_TIME, metric_spec
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import short_percent

# The description of each disturbance, with its remedy. The share is the median of its launches.
_CAUSES = {
    "foreign": "other processes took {share} of the ranks' cores (find them with top)",
    "stolen": "the hypervisor took {share} of the ranks' cores for other machines",
    "quota": "the CPU quota of the control group held back {share} of its CPU time (raise cpu.max)",
    "memory": "processes waited for memory for {share} of the time (free some)",
    "slow_clock": "the cores' clock was {share} below their base frequency (heat, a power limit)",
    "overheated": "heat throttled the ranks' cores",
    "gpu_slowed": "heat or a weak power supply slowed a GPU down (nvidia-smi -q -d PERFORMANCE)",
    "gpu_shared": "another process computed on a rank's GPU (find it with nvidia-smi)",
    "gpu_errors": "a GPU's memory failed beyond what ECC corrects (nvidia-smi -q -d ECC)",
}
# The description of what the ranks' own use of CPU time or memory did to them.
_OWN_COSTS = {
    "own_quota": "the ranks used up the CPU quota themselves, which held back {share} of the CPU"
    " time",
    "own_memory": "the ranks filled the memory themselves, and waited for it for {share} of the"
    " time",
}
_CLOCKS = ("slow_clock", "overheated")
_OF_THE_MACHINE = ("gpu_slowed",)  # on a shared host others may take a core's clock, not a GPU's
# Beside processes that computed for 14 to 15 % of the time, the level of the clean steps was right
# within 2 %; beside one that copied memory for 21 %, it was 9 % high.
_MOST_FOREIGN = 0.15
# The CPU time of a step grew by 3 to 6 % beside these, and by 10 % where over half was stolen.
_MOST_OF_CPU_TIME = 0.4
_OF_THE_HOST = ("foreign", "stolen", "quota", "memory", "slow_clock", "overheated", *_OWN_COSTS)


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """The number of a case's launches that were disturbed, and the causes."""

    launches: int
    disturbed: int
    harmless: int = 0  # of those: only the host was disturbed, and its GPU never waited for it
    causes: tuple[str, ...]  # in words, the most frequent one first

    @property
    def prevails(self) -> bool:
        """True if at least half of the launches were disturbed: then the typical launch was."""
        return 2 * (self.disturbed - self.harmless) >= self.launches

    @property
    def more_launches(self) -> int:
        """The number of further undisturbed launches that would outweigh the disturbed ones."""
        return 2 * (self.disturbed - self.harmless) - self.launches + 1

    def __str__(self) -> str:
        verb = "was" if self.disturbed == 1 else "were"
        count = f"{self.disturbed} of {self.launches} launches {verb} disturbed"
        text = f"{count}, because {' and '.join(self.causes)}"
        if self.harmless:
            verb = "does" if self.harmless == 1 else "do"
            text += f"; {self.harmless} of them {verb} not count, as no GPU waited for its host"
        return text


def find_disturbance(
    case_id: str,
    measurements: Mapping[str, Measurement],
    metric: str = STEP_TIME.name,
    *,
    apart_from: Collection[str] = (),
) -> Disturbance | None:
    """Return the disturbance of a case for a metric, or None if no launch is known to be disturbed.

    A launch is disturbed if one cause took more than the tolerance of the step time: alone, it
    is as large as the slow-down that the gate must find. Where each step has a witness, other
    processes may take more, as long as enough of its steps are clean. For a metric that compares
    with one rank, what disturbed the one-rank launch of the same round counts as well.
    ``apart_from`` are causes that do not count.
    """
    measurement = measurements[case_id]
    causes = [cause for cause in _causes_of(metric) if cause not in apart_from]
    case, compared = measurement.case, list(_compared(measurement, measurements, metric))
    found: dict[str, list[float]] = {}
    nodes: dict[str, set[str]] = {}  # by cause, of launches with several nodes
    disturbed = harmless = 0
    for launches in compared:
        large = _large(causes, launches, case, metric, nodes=nodes)
        disturbed += bool(large)
        harmless += bool(large) and not _large(causes, launches, case, metric, decisive=True)
        for cause, share in large.items():
            found.setdefault(cause, []).append(share)
    if not disturbed:
        return None
    order = sorted(found, key=lambda cause: (len(found[cause]), max(found[cause])), reverse=True)
    return Disturbance(
        launches=len(measurement.launches),
        disturbed=disturbed,
        harmless=harmless,
        causes=tuple(
            _in_words(_CAUSES[cause], found[cause])
            + _on_nodes(nodes.get(cause, ()))
            + _enough(cause, [*chain(*compared)], case, metric)
            for cause in order
        ),
    )


def _on_nodes(names: Collection[str]) -> str:
    """Return the nodes that a cause disturbed; an empty text if launches have one node."""
    return f" on {' and '.join(sorted(names))}" if names else ""


def _enough(cause: str, launches: Sequence[LaunchResult], case: Case, metric: str) -> str:
    """Return what would be enough: clean steps, or fewer of the cores for others."""
    witnessed = [launch for launch in launches if launch.disturbed]
    if cause != "foreign" or metric_spec(metric).disturbed_by == "clock" or not witnessed:
        return ""
    most, enough = _most_foreign(case, metric), case.schedule.enough_clean
    if all(_foreign(launch) > most for launch in witnessed):  # one level for all metrics
        return f"; up to {short_percent(case.tolerances.step_time)} does no harm"
    counts = [(launch.disturbed.count(False), len(launch.disturbed)) for launch in witnessed]
    lacking = [(clean, steps) for clean, steps in counts if clean < enough]
    if not lacking:
        return ""
    clean, steps = statistics.median_low(lacking)
    return f"; only {clean} of {steps} steps were undisturbed, and {enough} are needed"


def _foreign(launch: LaunchResult) -> float:
    return max(rank.conditions.foreign or 0.0 for rank in launch.ranks)


def _most_foreign(case: Case, metric: str) -> float:
    """Return the share that other processes may take; the mean in the tail contains all of it."""
    tolerance = case.tolerances.step_time
    return tolerance if metric_spec(metric).has_stalls else max(tolerance, _MOST_FOREIGN)


def _causes_of(metric: str) -> Collection[str]:
    """Return the causes that change the metric: CPU time does not contain waits."""
    is_of_cpu = metric_spec(metric).disturbed_by == "clock"
    return (*_CLOCKS, "foreign", "stolen") if is_of_cpu else _CAUSES


def find_own_costs(
    case_id: str, measurements: Mapping[str, Measurement], metric: str = STEP_TIME.name
) -> str | None:
    """Describe the limits that slowed half of a case's launches or more by their own use, or None.

    The limits of a launch whose GPUs never waited for their host are left out. CPU time and memory
    do not contain waits.
    """
    if metric_spec(metric).disturbed_by != "waits":
        return None
    measurement = measurements[case_id]
    found: dict[str, list[float]] = {}
    for compared in _compared(measurement, measurements, metric):
        costs = _large(_OWN_COSTS, compared, measurement.case, metric, decisive=True)
        for cause, share in costs.items():
            found.setdefault(cause, []).append(share)
    typical = [
        _in_words(_OWN_COSTS[cause], shares)
        for cause, shares in found.items()
        if 2 * len(shares) >= len(measurement.launches)
    ]
    return "; ".join(typical) or None


def _compared(
    measurement: Measurement, measurements: Mapping[str, Measurement], metric: str
) -> Iterator[list[LaunchResult]]:
    """Yield each launch, with the one-rank launch of its round if the metric compares with it."""
    with_single = metric_spec(metric).needs_single_rank
    single = measurements.get(measurement.case.single or "") if with_single else None
    beside = {launch.turn: launch for launch in single.launches} if single else {}
    for launch in measurement.launches:
        yield [launch, beside[launch.turn]] if launch.turn in beside else [launch]


def prevailing_disturbance(
    case_id: str, measurements: Mapping[str, Measurement], metric: str = STEP_TIME.name
) -> str | None:
    """Describe the disturbance of at least half of a case's launches, or return None.

    None as well for a metric that nothing disturbs.
    """
    if metric_spec(metric).disturbed_by is None:
        return None
    found = find_disturbance(case_id, measurements, metric)
    return str(found) if found is not None and found.prevails else None


def _large(
    causes: Collection[str],
    launches: Sequence[LaunchResult],
    case: Case,
    metric: str,
    *,
    decisive: bool = False,
    nodes: dict[str, set[str]] | None = None,
) -> dict[str, float]:
    """Return the largest share that each of the causes took on any rank, if it does harm.

    ``decisive`` leaves out what the host lost if its GPUs never waited for it. ``nodes`` receives
    the names of the nodes of these ranks, by cause, if their launch has several nodes.
    """
    worst: dict[str, float] = {}
    for launch in launches:
        ahead = launch.host_bound is False
        for rank in launch.ranks:
            for cause, share in msgspec.structs.asdict(rank.conditions).items():
                harmless = decisive and ahead and cause in _OF_THE_HOST
                if cause not in causes or share is None or harmless:
                    continue
                if share > _harmless_share(cause, launch, case, metric):
                    worst[cause] = max(worst.get(cause, 0.0), float(share))
                    if nodes is not None and launch.has_several_nodes:
                        nodes.setdefault(cause, set()).add(rank.placement.node_name)
    return worst


def _harmless_share(cause: str, launch: LaunchResult, case: Case, metric: str) -> float:
    """Return the share that a cause may take without harm to the metric of the launch."""
    tolerance = case.tolerances.step_time
    if metric_spec(metric).disturbed_by == "clock" and cause not in _CLOCKS:
        return _MOST_OF_CPU_TIME
    if cause == "foreign" and launch.disturbed.count(False) >= case.schedule.enough_clean:
        return _most_foreign(case, metric)
    return tolerance


def _in_words(text: str, shares: Sequence[float]) -> str:
    percent = 100 * statistics.median(shares)
    return text.format(share=f"{percent:.{0 if percent >= 10 else 1}f} %")


def with_disturbance(
    finding: Finding, measurements: Mapping[str, Measurement], *, where: str = ""
) -> Finding:
    """Add the disturbance of the compared launches to a finding.

    The finding becomes INVALID if disturbed launches prevail, because neither a REGRESSION nor
    a PASS can be trusted then. Otherwise it is only noted, and also if the ranks' own use slowed
    them, or if a target is missed and only the machine's heat and clocks disturbed it.
    ``where`` names the session of the launches, if it is not the judged one.
    """
    metric = finding.metric
    if metric_spec(metric).disturbed_by is None or not finding.verdict.outcome.is_compared:
        return finding
    disturbance = find_disturbance(finding.case_id, measurements, metric)
    if disturbance is not None:
        what = f"{where}{disturbance}"
        if not disturbance.prevails or _is_missed_by_the_machine(finding, measurements):
            finding = finding.noted(NoteKind.PARTLY_DISTURBED, what)
        else:
            kind, more = NoteKind.DISTURBED, disturbance.more_launches
            finding = finding.noted(kind, what, outcome=Outcome.INVALID, more_launches=more)
    own_costs = find_own_costs(finding.case_id, measurements, metric)
    own_use = f"{where}{own_costs}"
    return finding if own_costs is None else finding.noted(NoteKind.OWN_USE, own_use)


def _is_missed_by_the_machine(finding: Finding, measurements: Mapping[str, Measurement]) -> bool:
    """Return whether a target is missed, and nobody else disturbed half of the launches."""
    if finding.verdict.outcome is not Outcome.MISSES_TARGET:
        return False
    others = find_disturbance(
        finding.case_id, measurements, finding.metric, apart_from=_OF_THE_MACHINE
    )
    return others is None or not others.prevails
