"""The exposed communication of a step equals that of a simulated timeline of the buckets."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.scaling.laws import (
    BACKWARD_SHARE,
    Exchange,
    alpha_beta,
    ddp_shape,
    fsdp_exchanges,
    fsdp_shape,
    in_buckets,
    unknown_shape,
)
from ddp_perf.stats.link import Link, flat, ring_s

ONE = flat(Link(latency_s=1.0, bytes_per_s=1.0))


def timeline_s(sizes, compute_s, link, ranks):
    """Return the step time of buckets that follow each other, each as soon as it is full."""
    backward_s = BACKWARD_SHARE * compute_s
    forward_s, free_s, done = compute_s - backward_s, 0.0, 0.0
    for size in sizes:
        done += size
        ready_s = forward_s + backward_s * done / sum(sizes)
        free_s = max(ready_s, free_s) + ring_s("all_reduce", size, ranks, link)
    return max(compute_s, free_s)


@given(
    sizes=st.lists(st.floats(1.0, 1e3), min_size=1, max_size=8),
    compute_s=st.floats(0.1, 10),
    latency_s=st.floats(0, 0.5),
    second_a_byte=st.floats(1e-6, 1e-2),
    ranks=st.integers(1, 64),
)
def test_ddp_step_equals_the_timeline_of_its_buckets(
    sizes, compute_s, latency_s, second_a_byte, ranks
):
    exchanges = [Exchange(kind="all_reduce", payload=size) for size in sizes]
    law = alpha_beta(ddp_shape(exchanges), ONE, "ring", overlap=1.0)
    terms = np.array([[compute_s], [latency_s], [second_a_byte]])

    step_s = law.step_s(terms, ranks)[0]

    link = Link(latency_s=latency_s, bytes_per_s=1 / second_a_byte)
    assert step_s == pytest.approx(timeline_s(sizes, compute_s, link, ranks))


def test_one_bucket_hides_nothing():
    shape = ddp_shape([Exchange(kind="all_reduce", payload=1e8)])

    assert shape.hideable_s(0.1) == 0
    assert ddp_shape(in_buckets(1e8, 5e7)).hideable_s(0.1) == 0.1
    assert unknown_shape("ddp").hideable_s(0.1) == 0.1  # it is not known


def test_only_the_last_micro_step_hides_communication():
    two = in_buckets(2.0, 1.0)

    assert ddp_shape(two).pieces[0].hideable == pytest.approx(1 / 3)
    assert ddp_shape(two, micro_steps=4).pieces[0].hideable == pytest.approx(1 / 12)


def test_size_of_a_shape_is_linear_in_its_buckets():
    few, many = (len(msgspec.json.encode(ddp_shape(in_buckets(n, 1.0)))) for n in (200, 400))

    assert many < 2.1 * few


def test_fsdp_gathers_twice_and_scatters_once():
    exchanges = fsdp_exchanges([1.0, 2.0])

    assert [(e.kind, e.payload) for e in exchanges] == [
        ("all_gather", 1.0),
        ("all_gather", 2.0),
        ("all_gather", 2.0),
        ("reduce_scatter", 2.0),
        ("all_gather", 1.0),
        ("reduce_scatter", 1.0),
    ]


@pytest.mark.parametrize("ranks", [2, 8, 256])
def test_fsdp_sends_one_and_a_half_times_as_much_as_ddp(ranks):
    """ZeRO-3: 3 ÷ 2 of the volume (Rajbhandari et al. 2020, section 7.2)."""
    bandwidth = np.array([[1.0], [0.0], [1.0]])
    ddp, fsdp = (
        alpha_beta(shape, ONE, "ring").step_s(bandwidth, ranks)[0] - 1.0
        for shape in (ddp_shape(in_buckets(6.0, 2.0)), fsdp_shape(fsdp_exchanges([2.0] * 3)))
    )

    assert fsdp == pytest.approx(1.5 * ddp)


def test_fsdp_hides_all_but_its_first_gather_and_last_scatter():
    shape = fsdp_shape(fsdp_exchanges([1.0, 1.0]))
    slow_compute = np.array([[1e6], [0.0], [1.0]])

    shown = alpha_beta(shape, ONE, "ring", overlap=1.0).step_s(slow_compute, 2)[0] - 1e6

    assert shown == pytest.approx(0.5 + 0.5)


@given(total=st.floats(1, 1e10), size=st.floats(1e8, 1e9))
def test_buckets_contain_all_gradients_and_none_is_too_large(total, size):
    payloads = [exchange.payload for exchange in in_buckets(total, size)]

    assert sum(payloads) == pytest.approx(total)
    assert max(payloads) <= size
