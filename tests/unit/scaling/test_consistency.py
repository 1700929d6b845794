"""Whether one link can have made two batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.scaling.consistency import Exposure, contradiction

SECONDS = st.floats(0, 1)


def exposure(label, overhead_s, slack_s=0.0, hideable_s=0.0):
    return Exposure(label=label, overhead_s=overhead_s, slack_s=slack_s, hideable_s=hideable_s)


def labels(found):
    return tuple(one.label for one in found) if found else None


def test_document_000_contradicts_itself_where_nothing_can_hide():
    """33.8 ms at batch 256, 14.5 ms at 4096, one bucket of the same gradients."""
    small, large = exposure("256", 0.0338, 0.0005), exposure("4096", 0.01447, 0.0021)

    assert labels(contradiction([large, small])) == ("256", "4096")


def test_it_would_not_if_its_backward_could_hide_the_rest():
    small = exposure("256", 0.0338, 0.0005, hideable_s=0.0076)
    large = exposure("4096", 0.01447, 0.0021, hideable_s=0.09977)

    assert contradiction([small, large]) is None


def test_slack_is_allowed_on_both_sides():
    assert contradiction([exposure("a", 0.02, 0.002), exposure("b", 0.017, 0.002)]) is None


def test_one_batch_contradicts_nothing():
    assert contradiction([]) is None
    assert contradiction([exposure("a", -0.1)]) is None


def test_less_time_than_one_rank_is_no_communication_at_all():
    assert labels(contradiction([exposure("a", 0.01), exposure("b", -0.01)])) == ("a", "b")


def test_the_pair_furthest_apart_is_named():
    three = [exposure("a", 0.01), exposure("b", 0.02), exposure("c", 0.04)]

    assert labels(contradiction(three)) == ("c", "a")


@given(
    communication_s=SECONDS,
    hidden=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=5),
)
def test_what_one_link_did_is_never_called_a_contradiction(communication_s, hidden):
    exposures = [
        exposure(str(i), max(0.0, communication_s - share * hideable_s), 1e-9, hideable_s)
        for i, (share, hideable_s) in enumerate(hidden)
    ]

    assert contradiction(exposures) is None
