"""Changes of collectives: their number, sizes, order, and what can hide them."""

from __future__ import annotations

import pytest

from ddp_perf.work.changes import grows, shrinks, work_changes
from ddp_perf.work.collectives import disagreement
from tests.works import SITE, make_collective, make_step_work


def issuing(*collectives):
    """A step with these collectives; each is the fields that differ."""
    return make_step_work(collectives=tuple(make_collective(**fields) for fields in collectives))


def changes(old, new):
    return [(one.what, one.before, one.after) for one in work_changes(old, new)]


def test_an_added_collective_has_its_bytes_and_its_line():
    (change,) = work_changes(issuing({}), issuing({}, {"kind": "all_gather", "bytes": 512}))
    assert change.what == "all_gather of 512 bytes (float32)"
    assert (change.before, change.after, change.bytes) == (0, 1, 512)
    assert (change.name, change.dtypes, change.group) == ("all_gather", ("float32",), None)
    assert [place.site for place in change.places] == [SITE]


def test_smaller_buckets_are_one_change():
    (change,) = work_changes(issuing({"bytes": 400}), issuing(*[{"bytes": 100}] * 4))
    assert change.what == "all_reduce (float32)"
    assert (change.before, change.after, change.bytes) == (1, 4, 0)
    assert change.detail == "400 → 4 × 100 bytes"
    assert grows(change)


def test_larger_buckets_leave_more_bytes_that_nothing_hides():
    small = [{"bytes": 100}] * 3 + [{"bytes": 100, "flops_after": 0}]
    large = [{"bytes": 400, "flops_after": 0}]
    exposed, fewer = work_changes(issuing(*small), issuing(*large))
    assert exposed.what == "all_reduce (float32) that no computation follows"
    assert (exposed.before, exposed.after, exposed.unit) == (100, 400, "bytes")
    assert grows(exposed)
    assert shrinks(fewer)


def test_other_sizes_of_as_much_are_neither_more_nor_less():
    old, new = [{"bytes": 100}, {"bytes": 300}], [{"bytes": 200}] * 2
    (change,) = work_changes(issuing(*old), issuing(*new))
    assert not grows(change)
    assert not shrinks(change)
    assert change.detail == "100 + 300 → 2 × 200 bytes"


def test_a_collective_that_moved_is_neither_more_nor_less():
    (change,) = work_changes(issuing({}), issuing({"phase": "optimizer"}))
    assert (change.moved_from, change.phase, change.after) == ("backward", "optimizer", 1)


def test_a_smaller_group_is_another_collective():
    found = changes(issuing({}), issuing({"group": 4}))
    assert found == [
        ("all_reduce of 4,096 bytes (float32) in groups of 4 ranks", 0, 1),
        ("all_reduce of 4,096 bytes (float32)", 1, 0),
    ]


def test_a_collective_that_waits_now_is_more():
    (change,) = work_changes(issuing({}), issuing({"asynchronous": False}))
    assert change.what == "synchronous all_reduce of 4,096 bytes (float32)"
    assert grows(change)


def test_fewer_flops_to_hide_a_collective_are_more_cost():
    (change,) = work_changes(issuing({"flops_after": 90}), issuing({"flops_after": 50}))
    assert (change.what, change.before, change.after, change.unit) == (
        "overlap of all_reduce (float32)",
        90,
        50,
        "FLOPs",
    )
    assert grows(change)
    (back,) = work_changes(issuing({"flops_after": 50}), issuing({"flops_after": 90}))
    assert shrinks(back)
    assert not grows(back)


def test_no_flops_left_to_hide_a_collective_are_bytes_that_nothing_hides():
    found = changes(issuing({"flops_after": 90}), issuing({"flops_after": 0}))
    assert found == [("all_reduce (float32) that no computation follows", 0, 4096)]


def test_the_same_collectives_in_another_order():
    one, other = {"kind": "broadcast"}, {}
    assert changes(issuing(one, other), issuing(other, one)) == [("order of the collectives", 2, 2)]


def test_ranks_with_the_same_collectives_agree():
    first, last = issuing({"flops_after": 9}, {}), issuing({"flops_after": 1, "site": 0}, {})
    assert disagreement(first, last) is None


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (
            [{}, {"bytes": 8}],
            "collective 2 of the first rank is all_reduce of 4,096 bytes (float32), and that of the"
            " last rank all_reduce of 8 bytes (float32)",
        ),
        ([{}], "the first rank issues 2 collectives, the last one 1"),
        ([{}, {}, {}], "the first rank issues 2 collectives, the last one 3"),
        (
            [{}, {"kind": "broadcast", "group": 2}],
            "collective 2 of the first rank is all_reduce of 4,096 bytes (float32), and that of the"
            " last rank broadcast of 4,096 bytes (float32) in groups of 2 ranks",
        ),
    ],
    ids=["bytes", "fewer", "more", "kind and group"],
)
def test_ranks_that_would_wait_for_each_other_disagree(last, reason):
    assert disagreement(issuing({}, {}), issuing(*last)) == reason
