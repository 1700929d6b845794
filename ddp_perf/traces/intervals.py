"""Unions and lengths of intervals of time, which may nest, overlap and have any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddp_perf.stats.robust import Floats


class Intervals(NamedTuple):
    """Starts and ends of intervals, in one unit. Intervals may overlap."""

    start: Floats
    end: Floats

    @property
    def lengths(self) -> Floats:
        """The length of each interval."""
        return self.end - self.start

    @property
    def length(self) -> float:
        """The sum of all lengths. Overlaps count several times, unless the intervals are merged."""
        return float(self.lengths.sum())

    def where(self, chosen: NDArray[np.bool_]) -> Intervals:
        """Return the intervals for which `chosen` is true."""
        return Intervals(self.start[chosen], self.end[chosen])


def merged(intervals: Intervals) -> Intervals:
    """Return the union of the intervals: disjoint, in order, touching ones joined."""
    if not len(intervals.start):
        return intervals
    order = np.argsort(intervals.start, kind="stable")
    start, end = intervals.start[order], intervals.end[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(start[first], reached[last])


def union(*several: Intervals) -> Intervals:
    """Return the union of several sets of intervals."""
    return merged(
        Intervals(
            np.concatenate([one.start for one in several]),
            np.concatenate([one.end for one in several]),
        )
    )


def covered(intervals: Intervals, by: Intervals) -> Floats:
    """Return how much of each interval lies in `by`, which must be merged.

    It is the difference of a piecewise linear function: the length of `by` up to a time.
    """
    if not len(by.start):
        return np.zeros(len(intervals.start))
    times = np.stack([by.start, by.end], axis=1).ravel()
    before = np.concatenate([[0.0], np.cumsum(by.lengths)])
    lengths = np.stack([before[:-1], before[1:]], axis=1).ravel()
    inside: Floats = np.interp(intervals.end, times, lengths)
    inside -= np.interp(intervals.start, times, lengths)
    return inside
