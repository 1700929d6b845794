"""Batches that no single link can explain are found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.scaling.curves import BatchOverhead, contradiction

SECONDS = st.floats(0, 1)


def overhead(label, overhead_s, slack_s=0.0, hideable_s=0.0):
    return BatchOverhead(label=label, overhead_s=overhead_s, slack_s=slack_s, hideable_s=hideable_s)


def labels(found):
    return tuple(one.label for one in found) if found else None


def test_document_000_contradicts_itself_if_nothing_can_be_hidden():
    """One bucket of the same gradients takes 33.8 ms at batch 256, and 14.5 ms at 4096."""
    small, large = overhead("256", 0.0338, 0.0005), overhead("4096", 0.01447, 0.0021)

    assert labels(contradiction([large, small])) == ("256", "4096")


def test_hideable_communication_removes_the_contradiction():
    small = overhead("256", 0.0338, 0.0005, hideable_s=0.0076)
    large = overhead("4096", 0.01447, 0.0021, hideable_s=0.09977)

    assert contradiction([small, large]) is None


def test_slack_of_both_batches_is_allowed():
    assert contradiction([overhead("a", 0.02, 0.002), overhead("b", 0.017, 0.002)]) is None


def test_single_batch_has_no_contradiction():
    assert contradiction([]) is None
    assert contradiction([overhead("a", -0.1)]) is None


def test_negative_overhead_contradicts_positive_overhead():
    assert labels(contradiction([overhead("a", 0.01), overhead("b", -0.01)])) == ("a", "b")


def test_pair_with_the_largest_difference_is_returned():
    three = [overhead("a", 0.01), overhead("b", 0.02), overhead("c", 0.04)]

    assert labels(contradiction(three)) == ("c", "a")


@given(
    communication_s=SECONDS,
    hidden=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=5),
)
def test_batches_of_one_link_never_contradict(communication_s, hidden):
    overheads = [
        overhead(str(i), max(0.0, communication_s - share * hideable_s), 1e-9, hideable_s)
        for i, (share, hideable_s) in enumerate(hidden)
    ]

    assert contradiction(overheads) is None
