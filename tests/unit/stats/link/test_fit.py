"""Fits to points that were made from given links."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.subject import CollectiveKind
from ddp_perf.stats.link import Link, LinkPoint, ring_s
from ddp_perf.stats.link_fit import compare_links, fit_link

SIZES = [2**10, 2**15, 2**20, 2**24, 2**27, 2**30]
LINK = Link(latency_s=10e-6, bytes_per_s=12e9)
KINDS = get_args(CollectiveKind)


def times(link=LINK, *, kind="all_reduce", ranks=2, sizes=SIZES, noise=0.0, launches=1, seed=0):
    """Return points of the model, each launch off by its own random factor."""
    random = np.random.default_rng(seed)
    return [
        LinkPoint(payload=size, seconds=ring_s(kind, size, ranks, link) * math.exp(off))
        for size in sizes
        for off in random.normal(0, noise, launches)
    ]


def fitted(link=LINK, **changes):
    fit = fit_link(times(link, **changes), kind="all_reduce", ranks=2)
    assert fit is not None
    return fit


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 64),
    latency_s=st.floats(1e-6, 1e-4),
    bytes_per_s=st.floats(1e9, 1e12),
)
def test_fit_link_recovers_the_link_from_points_of_the_model(kind, ranks, latency_s, bytes_per_s):
    link = Link(latency_s=latency_s, bytes_per_s=bytes_per_s)

    fit = fit_link(times(link, kind=kind, ranks=ranks), kind=kind, ranks=ranks)

    assert fit is not None
    assert fit.link.latency_s == pytest.approx(latency_s, rel=1e-5)
    assert fit.link.bytes_per_s == pytest.approx(bytes_per_s, rel=1e-5)
    assert fit.misfit < 1e-6


def test_intervals_contain_the_truth_at_their_nominal_rate():
    held = [0, 0]
    for seed in range(400):
        fit = fitted(noise=0.05, launches=5, seed=seed)
        held[0] += fit.latency_s[0] <= LINK.latency_s <= fit.latency_s[1]
        held[1] += fit.bytes_per_s[0] <= LINK.bytes_per_s <= fit.bytes_per_s[1]

    assert 0.90 <= held[0] / 400 <= 0.985
    assert 0.90 <= held[1] / 400 <= 0.985


def test_two_disturbed_launches_of_five_do_not_change_the_fit():
    points = times(launches=5)
    slow = [
        msgspec.structs.replace(point, seconds=point.seconds * (10 if i % 5 < 2 else 1))
        for i, point in enumerate(points)
    ]

    assert fit_link(slow, kind="all_reduce", ranks=2) == fit_link(
        points, kind="all_reduce", ranks=2
    )


def test_the_order_of_the_points_does_not_matter():
    points = times(noise=0.1, launches=3)

    assert fit_link(points[::-1], kind="all_reduce", ranks=2) == fit_link(
        points, kind="all_reduce", ranks=2
    )


def test_a_model_that_does_not_fit_widens_the_intervals():
    bent = [
        msgspec.structs.replace(point, seconds=point.seconds * factor)
        for point, factor in zip(times(), [1, 1.1, 1.4, 1.2, 0.9, 1], strict=True)
    ]

    fit = fit_link(bent, kind="all_reduce", ranks=2)

    assert fit is not None
    assert fit.misfit > 0.05
    assert fit.latency_s[1] / fit.latency_s[0] > 1.2


@pytest.mark.parametrize(
    ("points", "ranks"),
    [
        ([], 2),
        (times(sizes=SIZES[:1], launches=9), 2),
        (times(sizes=SIZES[:2], launches=9), 2),
        (times(), 1),
        (times(Link(latency_s=1e-12, bytes_per_s=1e9), noise=0.1), 2),  # no latency to see
        (times(Link(latency_s=1e-3, bytes_per_s=1e15), noise=0.1), 2),  # no bandwidth to see
        ([LinkPoint(payload=size, seconds=1 / size) for size in SIZES], 2),  # falling
    ],
)
def test_fit_link_is_none_if_the_points_do_not_determine_both_figures(points, ranks):
    assert fit_link(points, kind="all_reduce", ranks=ranks) is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_an_invalid_time_is_an_error(seconds):
    with pytest.raises(ValueError, match="no time of a call"):
        fit_link([*times(), LinkPoint(payload=8, seconds=seconds)], kind="all_reduce", ranks=2)


@given(latency=st.floats(0.5, 3), per_byte=st.floats(0.5, 3))
def test_latency_and_bandwidth_shifts_are_separated(latency, per_byte):
    worse = Link(latency_s=LINK.latency_s * latency, bytes_per_s=LINK.bytes_per_s / per_byte)

    shift = compare_links(fitted(worse), fitted())

    assert shift is not None
    assert shift.latency.ratio == pytest.approx(latency, rel=1e-5)
    assert shift.bandwidth.ratio == pytest.approx(per_byte, rel=1e-5)


def test_a_misfit_shared_by_both_sides_cancels():
    def bent(link):
        factors = [1, 1.1, 1.4, 1.2, 0.9, 1]
        points = [
            msgspec.structs.replace(point, seconds=point.seconds * factor)
            for point, factor in zip(times(link), factors, strict=True)
        ]
        return fit_link(points, kind="all_reduce", ranks=2)

    before, now = bent(LINK), bent(Link(latency_s=12e-6, bytes_per_s=12e9))
    assert before is not None
    assert now is not None
    shift = compare_links(now, before)

    assert shift is not None
    assert now.latency_s[0] < before.link.latency_s  # by their own intervals: nothing to see
    assert shift.latency.ratio == pytest.approx(1.2, rel=0.05)
    assert shift.slower(0.05) == ["latency"]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (LINK, []),
        (Link(latency_s=20e-6, bytes_per_s=12e9), ["latency"]),
        (Link(latency_s=10e-6, bytes_per_s=8e9), ["bandwidth"]),
        (Link(latency_s=20e-6, bytes_per_s=8e9), ["latency", "bandwidth"]),
        (Link(latency_s=5e-6, bytes_per_s=24e9), []),  # better is not worse
    ],
)
def test_the_part_that_became_slower_is_named(link, expected):
    before, now = (
        fitted(one, noise=0.02, launches=5, seed=seed) for seed, one in enumerate((LINK, link))
    )

    shift = compare_links(now, before)

    assert shift is not None
    assert shift.slower(0.05) == expected


def test_a_link_that_earlier_sessions_reached_by_themselves_is_not_slower():
    """Each session of the link differs by a few per cent in all sizes alike."""

    def session(moved):
        return fitted(
            Link(latency_s=LINK.latency_s * moved, bytes_per_s=LINK.bytes_per_s / moved), noise=0
        )

    before, earlier = session(1.0), [session(moved) for moved in (0.95, 1.0, 1.08)]

    for moved, slower in ((1.06, []), (1.09, ["latency", "bandwidth"])):
        shift = compare_links(session(moved), before, earlier)
        assert shift is not None
        assert shift.latency.sessions == pytest.approx((0.95, 1.08))
        assert shift.slower(0.05) == slower


def test_one_session_has_no_range():
    shift = compare_links(fitted(), fitted(), [fitted()])

    assert shift is not None
    assert shift.bandwidth.sessions is None


def test_equal_points_have_no_shift_and_raise_no_error():
    fit = fitted()

    shift = compare_links(fit, fit)

    assert shift is not None
    assert shift.latency.ratio == pytest.approx(1)
    assert shift.bandwidth.ratio == pytest.approx(1)


def test_fits_without_three_sizes_in_common_are_not_compared():
    small, large = fitted(sizes=SIZES[:4]), fitted(sizes=SIZES[2:])

    assert compare_links(small, large) is None


def test_fits_of_different_collectives_are_not_compared():
    gather = fit_link(times(kind="all_gather"), kind="all_gather", ranks=2)

    assert gather is not None
    assert compare_links(fitted(), gather) is None


@pytest.mark.parametrize(
    ("ranks", "microseconds", "latency_us", "gb_per_s"),
    [
        # Times of an all-reduce by nccl-tests: microsoft/superbench-results v0.2.1, nccl-bw.
        # 2 V100 over PCIe 3.0 x16; the printed bus bandwidth ends at 11.68 GB/s.
        (2, [9.02, 16.82, 103.6, 1447.9, 11495.0, 91945.0], (3.6, 6.5), (9.7, 14.2)),
        # 8 A100 over NVSwitch, 230 GB/s at 1 GiB: NCCL changes its protocol on the way up.
        (8, [36.93, 37.64, 76.13, 256.7, 1157.2, 8164.5], (1.7, 4.2), (143, 349)),
    ],
)
def test_fit_link_gives_the_published_bandwidth_from_published_times(
    ranks, microseconds, latency_us, gb_per_s
):
    sizes = [2**10, 2**15, 2**20, 2**24, 2**27, 2**30]
    points = [
        LinkPoint(payload=size, seconds=time * 1e-6)
        for size, time in zip(sizes, microseconds, strict=True)
    ]

    fit = fit_link(points, kind="all_reduce", ranks=ranks)

    assert fit is not None
    assert [second * 1e6 for second in fit.latency_s] == pytest.approx(latency_us, abs=0.1)
    assert [rate / 1e9 for rate in fit.bytes_per_s] == pytest.approx(gb_per_s, rel=0.01)
    printed = microseconds[-1] * 1e-6 / (2 * (ranks - 1) / ranks * 2**30)
    assert fit.bytes_per_s[0] < 1 / printed < fit.bytes_per_s[1]
