"""The causes that changed terms, and the measurements beside them, lead to."""

from __future__ import annotations

from typing import Any

import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.launch import Collective
from ddp_perf.core.verdict import Delta
from ddp_perf.diagnose.causes import Evidence, find_causes
from ddp_perf.stats.step_change import attribute
from tests.builders import make_structure

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995)
GRADIENTS = Collective(kind="all_reduce", dtype="float32", bytes=4_000_000)
HALF = Collective(kind="all_reduce", dtype="float32", bytes=2_000_000)
SCALAR = Collective(kind="all_reduce", dtype="float32", bytes=4)


def rows(**terms):
    each = [{t: terms.get(t, 0.001) * factor for t in TERMS} for factor in JITTER]
    return [{**row, "step": sum(row.values()) + terms.get("elsewhere", 0.0)} for row in each]


def change(name, before, after, uncertainty=1e-6):
    return Delta(name=name, before=before, after=after, uncertainty=uncertainty)


def evidence(**changes):
    fields = {
        "structure_before": make_structure(collectives=(GRADIENTS,)),
        "structure_after": make_structure(collectives=(GRADIENTS,)),
        "structure_changes": (),
        "communication": change("communication", 0.005, 0.005),
        "lag": change("lag", 0.0, 0.005),
        "host_reads": change("host_reads", 0, 0),
        "allocator_retries": change("allocator_retries", 0, 0),
        "control": change("control", 0.002, 0.002),
        "on_gpu": False,
        "sees_communication": True,
        "slowest_rank": 1,
        "slowest_lag_s": 0.005,
        "lagging": (1,),
        "slowest_share": 0.97,
        "slowest_where": "cpu, cores 1, on host",
        "changed": (),
        "disturbance": None,
    }
    return Evidence(**{**fields, **changes})


def causes(terms, **beside):
    found = find_causes("a-case", attribute(rows(**terms), [rows()]), evidence(**beside), 5)
    return [cause.kind for cause in found.causes], found


def test_slower_computation_is_compute_and_names_the_phase():
    kinds, found = causes({"forward": 0.004})
    assert kinds == ["compute"]
    assert found.causes[0].share == pytest.approx(1)
    assert "forward 1.00 ms → 4.00 ms" in found.causes[0].evidence[0]


def test_control_that_slows_down_as_much_makes_the_machine_the_cause():
    slower = {"forward": 0.0012, "backward": 0.0012, "optimizer": 0.0012}
    kinds, found = causes(slower, control=change("control", 0.0020, 0.0024))
    assert kinds == ["machine"]
    assert "+20.0%" in found.causes[0].evidence[0]


def test_small_change_of_the_control_does_not_blame_the_machine():
    kinds, _ = causes({"forward": 0.004}, control=change("control", 0.0020, 0.0021))
    assert kinds == ["compute"]


def test_machine_and_compute_share_the_change_if_both_are_slower():
    slower = {"forward": 0.0021, "backward": 0.0013, "optimizer": 0.0013}
    kinds, found = causes(slower, control=change("control", 0.0020, 0.0026))
    assert kinds == ["machine", "compute"]
    assert sum(cause.change_s for cause in found.causes) == pytest.approx(0.0017)


@pytest.mark.parametrize(("uncertainty", "kind"), [(0.1, "memory"), (0.5, "compute")])
def test_full_gpu_memory_is_separated_from_slow_computation(uncertainty, kind):
    retries = change("allocator_retries", 0, 0.25, uncertainty)
    assert causes({"backward": 0.004}, allocator_retries=retries)[0] == [kind]


def test_same_collectives_that_are_slower_alone_are_slow_communication():
    kinds, found = causes(
        {"exposed": 0.004},
        communication=change("communication", 0.005, 0.008),
        changed=("nccl 2.21 → 2.27",),
    )
    assert kinds == ["communication"]
    assert found.causes[0].evidence[-1] == "nccl 2.21 → 2.27"


def test_same_collectives_that_are_as_fast_alone_have_lost_overlap():
    assert causes({"exposed": 0.004})[0] == ["lost overlap"]


def test_overlap_is_not_reported_lost_without_the_time_of_the_collectives_alone():
    kinds, found = causes({"exposed": 0.004}, communication=None)
    assert kinds == ["communication"]
    assert (
        "the time of all collectives of a step alone was not measured" in found.causes[0].evidence
    )


ONE_MORE: dict[str, Any] = {
    "structure_after": make_structure(collectives=(GRADIENTS, SCALAR)),
    "structure_changes": ("1 all_reduce of 4 bytes (float32) more a step",),
}


def test_additional_collective_is_more_communication():
    alone = change("communication", 0.005, 0.008)
    kinds, found = causes({"exposed": 0.004}, **ONE_MORE, communication=alone)
    assert kinds == ["more communication"]
    assert ONE_MORE["structure_changes"][0] in found.causes[0].evidence


def test_additional_collective_that_explains_little_leaves_lost_overlap():
    alone = change("communication", 0.005, 0.0075)
    kinds, _ = causes({"exposed": 0.006}, **ONE_MORE, communication=alone)
    assert sorted(kinds) == ["lost overlap", "more communication"]


def test_additional_collective_is_reported_even_if_no_term_shows_it():
    kinds, _ = causes({"data": 0.004}, **ONE_MORE)
    assert kinds == ["data", "more communication"]


def test_additional_collective_takes_the_change_of_its_group_even_if_uncertain():
    """The wait differs by as much between sessions, so only the count is certain."""
    sessions = [rows(exposed=seconds) for seconds in (0.001, 0.003, 0.002)]
    attribution = attribute(rows(exposed=0.004, forward=0.009), sessions, known=["unhidden"])
    found = find_causes("a-case", attribution, evidence(**ONE_MORE), 5)
    assert [cause.kind for cause in found.causes] == ["compute", "more communication"]
    assert found.causes[1].change_s == pytest.approx(0.002)
    assert found.causes[1].evidence[-1].startswith("its size is uncertain by ± ")


def test_overlap_is_not_reported_lost_within_the_uncertainty():
    sessions = [rows(exposed=seconds) for seconds in (0.001, 0.005, 0.003)]
    attribution = attribute(rows(exposed=0.007), sessions, known=["unhidden"])
    alone = change("communication", 0.005, 0.0055)
    found = find_causes("a-case", attribution, evidence(**ONE_MORE, communication=alone), 5)
    assert [cause.kind for cause in found.causes] == ["more communication"]


def test_hidden_collective_has_no_share_of_the_change():
    """It may take long alone, but no term of the step shows it."""
    alone = change("communication", 0.005, 0.010)
    kinds, found = causes({"forward": 0.004}, **ONE_MORE, communication=alone)
    assert kinds == ["compute", "more communication"]
    assert found.causes[1].change_s == 0


def test_fewer_buckets_are_lost_overlap_not_more_communication():
    kinds, found = causes(
        {"exposed": 0.004},
        structure_before=make_structure(collectives=(HALF, HALF)),
        structure_changes=("buckets 2 × 2,000,000 → 4,000,000 bytes",),
    )
    assert kinds == ["lost overlap"]
    assert "buckets 2 × 2,000,000 → 4,000,000 bytes" in found.causes[0].evidence


def test_host_read_on_a_gpu_shows_in_the_phases():
    read = change("host_reads", 0, 1)
    assert causes({"forward": 0.004}, on_gpu=True, host_reads=read)[0] == ["host sync"]
    assert causes({"forward": 0.004}, host_reads=read)[0] == ["compute"]


def test_communication_inside_the_phases_is_found_by_the_collectives_alone():
    """FSDP on a GPU waits inside the phases."""
    alone = change("communication", 0.005, 0.008)
    unseen = {"sees_communication": False, "communication": alone}
    assert causes({"backward": 0.004}, **unseen)[0] == ["communication"]
    kinds, found = causes({"backward": 0.004}, **unseen, **ONE_MORE)
    assert kinds == ["more communication"]
    assert found.causes[0].evidence[0].startswith("backward 1.00 ms → 4.00 ms")
    assert causes({"backward": 0.004}, sees_communication=False)[0] == ["compute"]


def test_case_that_is_not_slower_has_no_cause():
    assert causes({"exposed": 0.0001, "data": 0.0015})[0] == []


def test_host_read_is_a_host_sync():
    kinds, found = causes({"exposed": 0.004}, **ONE_MORE, host_reads=change("host_reads", 0, 1))
    assert kinds == ["host sync"]
    assert "1 more value a step" in found.causes[0].evidence[1]


def test_more_buckets_of_the_same_bytes_are_smaller_buckets():
    kinds, _ = causes(
        {"exposed": 0.004},
        structure_after=make_structure(collectives=(HALF, HALF)),
        structure_changes=("buckets 4,000,000 → 2 × 2,000,000 bytes",),
    )
    assert kinds == ["smaller buckets"]


def test_lagging_rank_is_a_straggler_with_its_number_and_place():
    kinds, found = causes({"imbalance": 0.006})
    assert kinds == ["straggler"]
    assert found.causes[0].rank == 1
    assert found.causes[0].evidence == (
        "rank 1 (cpu, cores 1, on host) works 5.00 ms longer than a typical rank (the slowest one"
        " before: 0.00 ms), and is the last one in 97% of the steps",
    )


@pytest.mark.parametrize(
    ("lag", "slowest_lag_s"),
    [
        (change("lag", 0.001, 0.0015), 0.0015),
        (change("lag", 0.0, 0.005), 0.001),  # another rank lags in each launch
        (None, 0.001),
    ],
)
def test_ranks_with_equal_mean_work_are_late_in_turn(lag, slowest_lag_s):
    kinds, found = causes({"imbalance": 0.006}, lag=lag, slowest_lag_s=slowest_lag_s)
    assert kinds == ["host"]
    assert found.causes[0].rank is None


def test_a_node_whose_ranks_all_lag_is_the_cause_and_not_one_of_its_ranks():
    text = "node b, ranks 2, 3: computes 6.0 % (5.0 to 7.0 %) longer than the others, 5 launches"
    kinds, found = causes({"imbalance": 0.006}, slow_node=text, lagging=(2, 3), slowest_rank=2)

    assert kinds == ["slow node"]
    assert found.causes[0].rank is None
    assert text in found.causes[0].evidence


def test_a_node_that_was_as_slow_before_is_no_cause():
    was = {"lag": change("lag", 0.005, 0.005), "slow_node": "node b"}

    assert causes({"imbalance": 0.006}, **was)[0] == ["host"]
    assert causes({"forward": 0.004}, **was)[0] == ["compute"]


def test_straggler_is_found_if_the_baseline_has_no_lag():
    kinds, found = causes({"imbalance": 0.006}, lag=None)
    assert kinds == ["straggler"]
    assert "than a typical rank, and is the last one" in found.causes[0].evidence[0]


def test_other_lagging_ranks_are_named_beside_the_slowest():
    _, found = causes({"imbalance": 0.006}, lagging=(0, 1, 3))
    assert found.causes[0].evidence[1] == "at least half as far behind: 0, 3"


def test_term_that_shrank_is_no_cause():
    """A longer backward hides more communication: overlap is not lost."""
    sessions = [rows(exposed=0.006)]
    found = find_causes("a-case", attribute(rows(backward=0.010), sessions), evidence(), 5)
    assert [cause.kind for cause in found.causes] == ["compute"]


def test_model_with_more_parameters_is_compute():
    changes = ("parameters 808 → 1,010",)
    larger = make_structure(parameters=1010, collectives=(GRADIENTS,))
    kinds, found = causes({"forward": 0.004}, structure_after=larger, structure_changes=changes)
    assert kinds == ["compute"]
    assert changes[0] in found.causes[0].evidence


def test_other_work_is_a_cause_whatever_its_words_are():
    """The structures decide that there is a cause. The words are only shown."""
    words = ("the control, the same matrix product in every session, changed by +20.0%",)
    kinds, _ = causes(
        {"forward": 0.0012, "backward": 0.0012, "optimizer": 0.0012},
        control=change("control", 0.0020, 0.0024),
        structure_after=ONE_MORE["structure_after"],
        structure_changes=words,
    )
    assert kinds == ["machine", "more communication"]


def test_late_batch_is_data():
    assert causes({"data": 0.006})[0] == ["data"]


def test_host_sync_that_leaves_ranks_idle_is_one_cause():
    read = change("host_reads", 0, 1)
    kinds, found = causes({"exposed": 0.004, "idle": 0.003}, host_reads=read)
    assert kinds == ["host sync"]
    assert found.causes[0].change_s == pytest.approx(0.005)


def test_uncertain_cause_as_large_as_the_change_is_marked_likely():
    sessions = [rows(forward=seconds) for seconds in (0.001, 0.003, 0.002)]
    found = find_causes("a-case", attribute(rows(forward=0.005), sessions), evidence(), 5)
    (cause,) = found.causes
    assert (cause.kind, cause.likely) == ("compute", True)
    assert cause.evidence[-1].startswith("chance alone can cause ± ")


def test_change_that_no_term_shows_is_unexplained():
    sessions = [
        rows(forward=f, data=d) for f, d in [(0.001, 0.003), (0.003, 0.001), (0.002, 0.002)]
    ]
    attribution = attribute(rows(forward=0.0045, data=0.0045, exposed=0.002), sessions)
    found = find_causes("a-case", attribution, evidence(), 5)
    assert [cause.kind for cause in found.causes] == ["unexplained", "lost overlap"]
    assert found.causes[0].change_s == pytest.approx(0.005)


def test_rank_without_a_core_is_the_host_or_the_disturbance():
    assert causes({"idle": 0.006})[0] == ["host"]
    kinds, found = causes({"idle": 0.006}, disturbance="5 of 5 launches were disturbed: …")
    assert kinds == ["machine"]
    assert "5 of 5" in found.causes[0].evidence[-1]


def test_unexplained_cause_has_its_size():
    kinds, found = causes({"elsewhere": 0.004})
    assert kinds == ["unexplained"]
    assert found.causes[0].change_s == pytest.approx(0.004)


def test_two_causes_are_both_named_the_larger_first():
    assert causes({"imbalance": 0.006, "data": 0.003})[0] == ["straggler", "data"]


def test_no_change_has_no_cause():
    assert causes({})[0] == []
