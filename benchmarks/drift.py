"""Measure what the detector finds in synthetic histories, beside Apache Otava and asv.

One look at a finished series, which other tools can do as well, and a report after every session,
as users read it: in how many series any of the successive reports shows a change, and how many
sessions after a true step it is shown. Shares have their exact 95 % intervals. The rules were tuned
with seed 1; these are the series of seed 2.

    python benchmarks/drift.py

asv, and ruptures for the segmentation alone, are compared where they are installed (extra
``peers``). Otava pins an old numpy: give it a
virtual environment of its own (pip install apache-otava) and name its interpreter in
DDP_OTAVA_PYTHON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.families import Floats
from ddp_perf.history.trend import LEAST_LEVEL, Trend, cut, find_trend
from ddp_perf.stats.interval import share_found

SEED, SERIES, SESSIONS, STEP_AT = 2, 200, 60, 40
FIRST_REPORT, LAST_REPORT = 7, 120  # the sessions of a series that is reported after each of them
REPORTED, CASES = 400, 100  # series; cases of a report
NEAR = 2  # sessions beside the true one that still count as the right place
Places = list[list[int]]  # for each series the sessions that begin a new level
Detector = Callable[[Sequence[Sequence[float]]], Places]

OTAVA = """
import json, sys
from otava.analysis import compute_change_points
found = [compute_change_points(series)[0] for series in json.load(sys.stdin)]
print(json.dumps([[int(point.index) for point in points] for points in found]))
"""


class Family(msgspec.Struct, frozen=True):
    """Histories of one kind. ``place`` is where the change begins, or None if there is none."""

    name: str
    noise: Callable[[np.random.Generator, int], Floats]  # in session sds
    sd: float = 0.01
    step: float = 0.0  # log level from `place` on
    drift: float = 0.0  # log level a session from `place` on
    place: int | None = None

    def series(self, count: int = SERIES, sessions: int = SESSIONS) -> list[list[float]]:
        random = np.random.default_rng(SEED)
        after = np.clip(np.arange(sessions) - (self.place or 0) + 1, 0, None)
        shape = self.step * (after > 0) + self.drift * after
        logs = [self.sd * self.noise(random, sessions) + shape for _ in range(count)]
        return [np.exp(one).tolist() for one in logs]


def quiet_families() -> list[Family]:
    """Return the families without a change: what is found there is false."""
    return [
        Family("quiet, normal sessions", _normal),
        Family("quiet, sessions correlated by 0.3", _correlated),
        Family("quiet, Student's t, 3 df", lambda r, n: r.standard_t(3, n)),
        Family("quiet, 5 % of sessions 8 sd off", _outliers),
        Family("quiet, unequal sd (factor 1.8)", _unequal),
        Family("quiet, second half 3 × the sd", _restless),
        Family("quiet, 10 % busy sessions, slower", _busy),
        Family("quiet, last 10 sessions 3 × the sd", _restless_end),
    ]


def stepped_families() -> list[Family]:
    return [
        Family(
            f"step of 3 % at session {STEP_AT}, sd {100 * sd:g} %",
            _normal,
            sd=sd,
            step=np.log(1.03),
            place=STEP_AT,
        )
        for sd in (0.005, 0.01, 0.02)
    ]


def drifting_families() -> list[Family]:
    slope = np.log(1.005)
    return [
        Family("0.5 % a session from the first, sd 1 %", _normal, drift=slope, place=1),
        Family(
            f"0.5 % a session from session {STEP_AT}, sd 1 %", _normal, drift=slope, place=STEP_AT
        ),
    ]


def families() -> list[Family]:
    return [*quiet_families(), *stepped_families(), *drifting_families()]


def _normal(random: np.random.Generator, sessions: int) -> Floats:
    return random.normal(size=sessions)


def _correlated(random: np.random.Generator, sessions: int) -> Floats:
    levels = random.normal(size=sessions)
    for session in range(1, sessions):
        levels[session] = 0.3 * levels[session - 1] + np.sqrt(1 - 0.3**2) * levels[session]
    return levels


def _outliers(random: np.random.Generator, sessions: int) -> Floats:
    off = (random.random(sessions) < 0.05) * random.normal(0, 8, sessions)
    return random.normal(size=sessions) + off


def _busy(random: np.random.Generator, sessions: int) -> Floats:
    slower = (random.random(sessions) < 0.1) * random.exponential(5, sessions)
    return random.normal(size=sessions) + slower


def _unequal(random: np.random.Generator, sessions: int) -> Floats:
    return random.normal(size=sessions) * np.exp(random.normal(0, 0.6, sessions))


def _restless(random: np.random.Generator, sessions: int) -> Floats:
    return random.normal(size=sessions) * np.where(np.arange(sessions) < sessions / 2, 1, 3)


def _restless_end(random: np.random.Generator, sessions: int) -> Floats:
    return random.normal(size=sessions) * np.where(np.arange(sessions) < sessions - 10, 1, 3)


def main() -> None:
    print(_same_cuts())
    detectors = {"ddp-perf": _own, **_peers()}
    print(f"{SERIES} series of {SESSIONS} sessions each; per cent of series, levels begun a series")
    print(" " * 38 + "".join(f"{name:>52}" for name in detectors))
    for family in families():
        series = family.series()
        cells = [_score(family, detect(series)) for detect in detectors.values()]
        print(f"{family.name:38}" + "".join(f"{cell:>52}" for cell in cells))
        if family.drift:
            print(f"{'':6}{_drifts(family, series)}")
    _successive_reports()


def _successive_reports() -> None:
    """Print what the reports show that are read after each session."""
    reports = LAST_REPORT - FIRST_REPORT + 1
    print(
        f"{REPORTED} series, a report after each of the sessions {FIRST_REPORT} to {LAST_REPORT}:"
    )
    print(
        "  a false change, and a false 'slower than the first': in the last report, in any of the"
    )
    print(f"  {reports} (per cent of series); mean number in one report of {CASES} cases")
    with ProcessPoolExecutor() as pool:
        for family in quiet_families():
            series = family.series(REPORTED, LAST_REPORT)
            found = np.array(list(pool.map(_false_findings, series, chunksize=20)))
            cells = [_rates(found[:, :, which]) for which in (0, 1)]
            print(f"{family.name:38}" + "".join(f"{cell:>50}" for cell in cells), flush=True)
        print(f"the step is shown (within {NEAR} sessions of its place) so many sessions after it:")
        for family in stepped_families():
            series = family.series(SERIES, STEP_AT + 50)
            after = np.array(list(pool.map(_shown_after, series, chunksize=20)))
            middle, late = np.quantile(after, (0.5, 0.9), method="higher")
            shares = ", ".join(f"{_share(after <= n)} after {n}" for n in (10, 20, 50))
            print(f"{family.name:38} median {middle:.0f}, 9 of 10 {late:.0f}; {shares}", flush=True)


def _reports(series: Sequence[float], first: int) -> Iterator[Trend]:
    """Yield the trend after each session from session `first` on, which is counted from 1."""
    for sessions in range(first, len(series) + 1):
        yield find_trend(series[:sessions])


def _false_findings(series: Sequence[float]) -> list[tuple[bool, bool]]:
    """Return for each report whether it shows a change, and the distance as slower."""
    return [
        (bool(trend.changes), trend.distance is not None and trend.distance.slower)
        for trend in _reports(series, FIRST_REPORT)
    ]


def _shown_after(series: Sequence[float]) -> float:
    """Return how many sessions there are from the step on when it is shown first, or infinity."""
    for number, trend in enumerate(_reports(series, STEP_AT + 1), start=1):
        if any(c.first - NEAR <= STEP_AT <= c.last + NEAR for c in trend.changes):
            return number
    return float("inf")


def _rates(found: npt.NDArray[np.bool_]) -> str:
    """Return the shares of series, of which each row has the findings of all reports."""
    mean = CASES * float(found.mean())
    return f"{_share(found[:, -1])}, {_share(found.any(axis=1))}; {mean:.2f}"


def _share(found: npt.NDArray[np.bool_]) -> str:
    share = share_found(int(found.sum()), len(found))
    low, high = share.interval
    return f"{100 * share.found / share.trials:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def _same_cuts() -> str:
    """Compare the segmentation with that of ruptures, on every series below.

    Both claim to find the least cost; the pruning of ruptures at times misses it.
    """
    try:
        ruptures = importlib.import_module("ruptures")
    except ImportError:
        return "the segmentation is not compared with that of ruptures: pip install ruptures"
    penalty, same, better, total = 14.0, 0, 0, 0
    for family in families():
        for one in family.series():
            sessions = (np.log(one) - np.mean(np.log(one))) / family.sd
            search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_LEVEL)
            search.fit(sessions[:, None])
            ours, theirs = cut(sessions, penalty), [0, *search.predict(pen=penalty)]
            same += ours == theirs
            better += _cost(sessions, ours, penalty) < _cost(sessions, theirs, penalty)
            total += 1
    return (
        f"the segmentation is that of ruptures in {same} of {total} series, and of less cost in"
        f" {better} of the others"
    )


def _cost(sessions: Floats, bounds: Sequence[int], penalty: float) -> float:
    stretches = [sessions[start:end] for start, end in itertools.pairwise(bounds)]
    return sum(float(np.square(s - s.mean()).sum()) + penalty for s in stretches)


def _score(family: Family, found: Places) -> str:
    mean = np.mean([len(places) for places in found])
    if family.place is None:
        return f"alarm {_share(np.array([bool(places) for places in found]))}"
    right = [any(abs(p - family.place) <= NEAR for p in places) for places in found]
    any_found = _share(np.array([bool(places) for places in found]))
    return f"{any_found}, at place {_share(np.array(right))}; {mean:.1f}"


def _drifts(family: Family, series: Sequence[Sequence[float]]) -> str:
    """Return the line about drifts, which only a detector with a drift model has."""
    trends = [find_trend(one) for one in series]
    drifts = [t.changes[0] for t in trends if len(t.changes) == 1 and t.changes[0].is_drift]
    far = np.mean([t.distance is not None and t.distance.slower for t in trends])
    return (
        f"ddp-perf calls it one drift in {100 * len(drifts) / len(trends):.0f} %: from session"
        f" {np.median([d.first for d in drifts]):.0f} to"
        f" {np.median([d.last for d in drifts]):.0f} (medians), a session"
        f" {100 * (np.median([d.per_session for d in drifts]) - 1):+.2f} %; slower than the first"
        f" sessions in {100 * far:.0f} %"
    )


def _own(series: Sequence[Sequence[float]]) -> Places:
    return [[change.first for change in find_trend(one).changes] for one in series]


def _peers() -> dict[str, Detector]:
    """Return the peers that are installed. Print the others, with what installs them."""
    peers: dict[str, Detector] = {}
    if python := os.environ.get("DDP_OTAVA_PYTHON"):
        peers["Apache Otava"] = lambda series: _otava(python, series)
    else:
        print("Apache Otava is not compared: DDP_OTAVA_PYTHON names no interpreter that has it")
    try:
        detect = importlib.import_module("asv.step_detect").detect_steps
        peers["asv"] = lambda series: [[s[0] for s in detect(list(one))[1:]] for one in series]
    except ImportError:
        print("asv is not compared: pip install asv")
    return peers


def _otava(python: str, series: Sequence[Sequence[float]]) -> Places:
    done = subprocess.run(
        [python, "-c", OTAVA], input=json.dumps(series), capture_output=True, text=True, check=True
    )
    places: Places = json.loads(done.stdout.splitlines()[-1])
    return places


if __name__ == "__main__":
    main()
