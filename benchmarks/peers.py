"""The answers of other tools, by their own code, on the newest stored session and this one.

Each tool is given what it compares: two sets of values, of all launches of a session.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from scipy import stats

from benchmarks.families import Floats

Says = Callable[[Floats, Floats], bool]  # launches × values: current, newest stored


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another tool. ``slower`` is None if it is not installed; ``remedy`` then installs it."""

    name: str
    slower: Says | None
    remedy: str = ""


def all_peers() -> Iterator[Peer]:
    """Return the tools, and the two rules that need none."""
    yield _peer("pytest-benchmark mean:5%", "pytest_benchmark.utils", _pytest_benchmark)
    yield _peer("asv, factor 1.1", "asv._stats", lambda module: _asv(module, 1.1))
    yield _peer("asv, factor 1.03", "asv._stats", lambda module: _asv(module, 1.03))
    yield _peer("pyperf t test", "pyperf._utils", _pyperf)
    yield Peer(name="google/benchmark U test", slower=_google_benchmark)
    yield Peer(name="5 % on one launch", slower=_one_launch)


def _peer(name: str, module: str, make: Callable[[object], Says]) -> Peer:
    package = module.split(".")[0].replace("_", "-")
    try:
        return Peer(name=name, slower=make(importlib.import_module(module)))
    except ImportError:
        return Peer(name=name, slower=None, remedy=f"pip install {package}")


def _pytest_benchmark(module: object) -> Says:
    check = module.parse_compare_fail("mean:5%")  # type: ignore[attr-defined]

    def slower(current: Floats, stored: Floats) -> bool:
        return bool(check.fails({"mean": current.mean()}, {"mean": stored.mean()}))

    return slower


def _asv(module: object, factor: float) -> Says:
    """Judge as `asv compare`: the medians differ by the factor, and the samples by the U test."""

    def slower(current: Floats, stored: Floats) -> bool:
        new, old = current.ravel().tolist(), stored.ravel().tolist()
        if not np.median(new) > factor * np.median(old):
            return False  # asked first, for the U test in pure Python is slow
        return bool(module.is_different(old, new, {}, {}))  # type: ignore[attr-defined]

    return slower


def _pyperf(module: object) -> Says:
    def slower(current: Floats, stored: Floats) -> bool:
        new, old = current.ravel().tolist(), stored.ravel().tolist()
        significant, _ = module.is_significant(old, new)  # type: ignore[attr-defined]
        return bool(significant) and bool(np.mean(new) > np.mean(old))

    return slower


def _google_benchmark(current: Floats, stored: Floats) -> bool:
    """Judge as `compare.py`: a two-sided U test at 0.05 on the repetitions of one launch a side."""
    new, old = current[0], stored[-1]
    p_value = stats.mannwhitneyu(new, old, alternative="two-sided").pvalue
    return bool(p_value < 0.05 and np.median(new) > np.median(old))


def _one_launch(current: Floats, stored: Floats) -> bool:
    return bool(np.median(current[0]) > 1.05 * np.median(stored[-1]))
