"""Each law equals its closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.scaling.laws import (
    OVERLAPS,
    alpha_beta,
    alpha_beta_laws,
    amdahl,
    amdahl_limit,
    ddp_shape,
    in_buckets,
    unknown_shape,
)
from ddp_perf.stats.link import Link, Topology, flat

ONE = flat(Link(latency_s=1.0, bytes_per_s=1.0))
RANKS = st.integers(1, 100_000)


def terms(*values):
    return np.array(values, float)[:, None]


def speedup(law, of, ranks):
    return ranks * law.step_s(of, 1)[0] / law.step_s(of, ranks)[0]


@given(serial=st.floats(0, 1), ranks=RANKS)
def test_amdahls_law_equals_its_closed_form(serial, ranks):
    expected = 1 / (serial + (1 - serial) / ranks)

    assert speedup(amdahl(), terms(1.0, serial, 0.0), ranks) == pytest.approx(expected)


@given(serial=st.floats(0, 1), ranks=RANKS)
def test_amdahls_law_of_strong_scaling_is_his_own(serial, ranks):
    """The serial part takes as long on any number of ranks, and the rest is shared."""
    law, of = amdahl(strong=True), terms(1.0, 0.0, 0.0, serial)

    assert law.step_s(of, ranks)[0] == pytest.approx(serial + (1 - serial) / ranks)
    assert law.speedup(of, ranks)[0] == pytest.approx(1 / (serial + (1 - serial) / ranks))


@given(ranks=RANKS, fixed=st.floats(0, 1), latency=st.floats(0, 1), transfer=st.floats(0, 1))
def test_strong_scaling_shares_all_compute_but_its_fixed_part(ranks, fixed, latency, transfer):
    law = alpha_beta(unknown_shape("ddp"), ONE, "ring", strong=True)

    step_s = law.step_s(terms(1.0, latency, transfer, fixed), ranks)[0]

    assert step_s == pytest.approx(
        fixed + (1 - fixed) / ranks + 2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * transfer
    )


def test_no_more_is_hidden_than_the_shared_compute_allows():
    law = alpha_beta(ddp_shape(in_buckets(100.0, 50.0)), ONE, "ring", 1.0, strong=True)
    of = terms(1.0, 0.0, 1.0, 0.0)  # half of 100 s of transfer could be hidden by much compute

    hidden = [-law.parts(of, ranks)[3, 0] for ranks in (2, 4)]

    assert hidden == pytest.approx([1 / 3 / 2, 1 / 3 / 4])  # half of a backward, of a share


def test_amdahls_limit_is_the_inverse_of_the_serial_fraction():
    assert amdahl_limit(0.01) == pytest.approx(100)
    assert amdahl_limit(0) == math.inf


@given(ranks=RANKS, latency=st.floats(0, 1), transfer=st.floats(0, 1))
def test_ring_over_one_link_equals_its_closed_form(ranks, latency, transfer):
    law = alpha_beta(unknown_shape("ddp"), ONE, "ring")

    step_s = law.step_s(terms(1.0, latency, transfer), ranks)[0]

    assert step_s == pytest.approx(
        1 + 2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * transfer
    )


@given(ranks=RANKS, serial=st.floats(0, 1))
def test_latency_of_a_ring_is_a_serial_fraction(ranks, serial):
    ring = alpha_beta(unknown_shape("ddp"), ONE, "ring")

    assert ring.step_s(terms(1.0, serial / 2, 0.0), ranks)[0] == pytest.approx(
        amdahl().step_s(terms(1.0, serial, 0.0), ranks)[0]
    )


def test_law_depends_only_on_the_ratio_of_the_links():
    """A link twice as good within and between nodes gives the same law."""
    laws = [
        alpha_beta(
            unknown_shape("ddp"),
            Topology(
                gpus_per_node=8,
                intra=Link(latency_s=factor * 1e-6, bytes_per_s=factor * 100e9),
                inter=Link(latency_s=factor * 1e-5, bytes_per_s=factor * 10e9),
            ),
            "hierarchical",
        )
        for factor in (1, 2)
    ]

    assert laws[0].rows(64).tolist() == laws[1].rows(64).tolist()
    assert laws[0].rows(64)[0].tolist() == pytest.approx(
        [14 + 14 * 10, 2 * 7 / 8 + 2 * 7 / 8 * 10, 0]
    )


def test_parts_add_up_to_the_step_and_hidden_is_at_most_communication():
    law = alpha_beta(ddp_shape(in_buckets(4.0, 1.0)), ONE, "ring", overlap=1.0)

    compute, latency, bandwidth, hidden = law.parts(terms(100.0, 0.0, 0.1), 2)[:, 0]

    assert (compute, latency) == (100, 0)
    assert -hidden <= bandwidth
    assert law.step_s(terms(100.0, 0.0, 0.1), 2)[0] == compute + latency + bandwidth + hidden


def test_unknown_overlap_is_tried_at_several_values():
    known = alpha_beta_laws(ddp_shape(in_buckets(4.0, 1.0)), ONE)

    assert [(law.name, law.overlap) for law in known] == [
        (name, share) for name in ("ring", "tree") for share in OVERLAPS
    ]
    assert [law.overlap for law in alpha_beta_laws(unknown_shape("ddp"), ONE)] == [0, 0]
    assert [law.overlap for law in alpha_beta_laws(unknown_shape("ddp"), ONE, 0.7)] == [0.7, 0.7]
