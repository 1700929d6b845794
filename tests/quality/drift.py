"""Measure what the detector finds in synthetic histories, beside Apache Otava and asv.

    python tests/quality/drift.py

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
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from ddp_perf.history.segmentation import CONFIRMING, cut
from ddp_perf.history.trend import find_trend
from tests.quality.families import Floats

SERIES, SESSIONS, STEP_AT = 200, 60, 40
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
    noise: Callable[[np.random.Generator], Floats]  # in session sds
    shape: Floats  # log level, by session
    sd: float = 0.01
    place: int | None = None

    def series(self) -> list[list[float]]:
        random = np.random.default_rng(1)
        logs = [self.sd * self.noise(random) + self.shape for _ in range(SERIES)]
        return [np.exp(one).tolist() for one in logs]


def families() -> list[Family]:
    """Return the families. The first ones have no change: what is found is false."""
    session = np.arange(SESSIONS)
    flat, step = np.zeros(SESSIONS), np.where(session >= STEP_AT, np.log(1.03), 0.0)
    drift = np.log(1.005) * session
    late = np.log(1.005) * np.clip(session - STEP_AT + 1, 0, None)
    return [
        Family("quiet, normal sessions", _normal, flat),
        Family("quiet, sessions correlated by 0.3", _correlated, flat),
        Family("quiet, Student's t, 3 df", lambda r: r.standard_t(3, SESSIONS), flat),
        Family("quiet, 5 % of sessions 8 sd off", _outliers, flat),
        Family("quiet, unequal sd (factor 1.8)", _unequal, flat),
        Family("quiet, second half 3 × the sd", _restless, flat),
        Family("quiet, 10 % busy sessions, slower", _busy, flat),
        Family("quiet, last 10 sessions 3 × the sd", _restless_end, flat),
        Family("step of 3 % at session 40, sd 0.5 %", _normal, step, sd=0.005, place=STEP_AT),
        Family("step of 3 % at session 40, sd 1 %", _normal, step, place=STEP_AT),
        Family("step of 3 % at session 40, sd 2 %", _normal, step, sd=0.02, place=STEP_AT),
        Family("0.5 % a session from the first, sd 1 %", _normal, drift, place=1),
        Family("0.5 % a session from session 40, sd 1 %", _normal, late, place=STEP_AT),
    ]


def _normal(random: np.random.Generator) -> Floats:
    return random.normal(size=SESSIONS)


def _correlated(random: np.random.Generator) -> Floats:
    sessions = random.normal(size=SESSIONS)
    for session in range(1, SESSIONS):
        sessions[session] = 0.3 * sessions[session - 1] + np.sqrt(1 - 0.3**2) * sessions[session]
    return sessions


def _outliers(random: np.random.Generator) -> Floats:
    off = (random.random(SESSIONS) < 0.05) * random.normal(0, 8, SESSIONS)
    return random.normal(size=SESSIONS) + off


def _busy(random: np.random.Generator) -> Floats:
    slower = (random.random(SESSIONS) < 0.1) * random.exponential(5, SESSIONS)
    return random.normal(size=SESSIONS) + slower


def _unequal(random: np.random.Generator) -> Floats:
    return random.normal(size=SESSIONS) * np.exp(random.normal(0, 0.6, SESSIONS))


def _restless(random: np.random.Generator) -> Floats:
    return random.normal(size=SESSIONS) * np.where(np.arange(SESSIONS) < SESSIONS / 2, 1, 3)


def _restless_end(random: np.random.Generator) -> Floats:
    return random.normal(size=SESSIONS) * np.where(np.arange(SESSIONS) < SESSIONS - 10, 1, 3)


def main() -> None:
    print(_same_cuts())
    detectors = {"ddp-perf": _own, **_peers()}
    print(f"{SERIES} series of {SESSIONS} sessions each; per cent of series, levels begun a series")
    print(" " * 38 + "".join(f"{name:>24}" for name in detectors))
    for family in families():
        series = family.series()
        cells = [_score(family, detect(series)) for detect in detectors.values()]
        print(f"{family.name:38}" + "".join(f"{cell:>24}" for cell in cells))
        if family.place is not None and "a session" in family.name:
            print(f"{'':6}{_drifts(family, series)}")


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
            search = ruptures.KernelCPD(kernel="linear", min_size=CONFIRMING).fit(sessions[:, None])
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
        return f"alarm {100 * np.mean([bool(places) for places in found]):.1f}"
    right = [any(abs(p - family.place) <= NEAR for p in places) for places in found]
    any_found = 100 * np.mean([bool(places) for places in found])
    return f"{any_found:.0f}, at place {100 * np.mean(right):.0f}; {mean:.1f}"


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
