"""Advice is given if a measurement supports it, with the throughput it could bring."""

from __future__ import annotations

import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.diagnose.advice import Measured, advise, label
from tests.builders import make_decomposition

MB = 10**6


def measured(*, ranks=2, efficiency=0.9, message_bytes=(25 * MB, 25 * MB), **changes):
    """Return a step of 100 ms of computation; the terms that are given, in ms, replace its own."""
    terms = dict.fromkeys(TERMS, 0.0) | {"forward": 30.0, "backward": 60.0, "optimizer": 10.0}
    terms |= {term: changes.pop(term) for term in TERMS if term in changes}
    step = {term: value / 1e3 for term, value in terms.items()}
    names = ("host_reads", "sees_communication")
    beside = {name: changes.pop(name) for name in names if name in changes}
    fields = {
        "strategy": "ddp",
        "hook": None,
        "accumulation": 1,
        "ranks": ranks,
        "efficiency": efficiency,
        "step": make_decomposition(**step, **beside),
        "message_bytes": message_bytes,
        "peak_memory": 10e9,
        "gpu_memory": None,
        "loads_data": False,
    }
    return Measured(**{**fields, **changes})


def findings(**changes):
    return {advice.finding: advice for advice in advise(measured(**changes))}


def only(**changes):
    (advice,) = advise(measured(**changes))
    return advice


@pytest.mark.parametrize(
    ("efficiency", "ranks", "expected"),
    [
        (0.873, 4, "Excellent"),  # document 003: IMDB
        (0.115, 4, "Negative scaling"),  # document 003: AG News
        (0.75, 2, "Good"),
        (0.60, 2, "Fair"),
        (0.49, 8, "Poor"),
        (0.49, 2, "Negative scaling"),
        (0.50, 2, "Fair"),  # as fast as one
    ],
)
def test_label_follows_the_efficiency_and_the_ranks(efficiency, ranks, expected):
    assert label(efficiency, ranks) == expected


def test_step_that_only_computes_gets_no_advice():
    assert advise(measured()) == []


def test_one_rank_gets_no_advice_on_communication():
    assert advise(measured(ranks=1, efficiency=None, exposed=50)) == []


def test_negative_scaling_states_the_gain_of_one_rank():
    advice = advise(measured(efficiency=0.2))[0]
    assert "0.40 ×" in advice.finding
    assert advice.factor == pytest.approx(2.5)


def test_short_step_gets_the_advice_of_a_larger_batch():
    found = findings(forward=5, backward=10, optimizer=1, exposed=16)
    (advice,) = (one for finding, one in found.items() if "the model or the batch" in finding)
    assert advice.factor == pytest.approx(4 * 32 / (32 + 3 * 16))


def test_many_bytes_get_the_advice_of_half_precision():
    found = findings(exposed=100)
    (advice,) = (
        one for finding, one in found.items() if finding.startswith("the bandwidth limits")
    )
    assert "50 MB" in advice.finding
    assert advice.factor == pytest.approx(200 / 150)


def test_exposed_communication_gets_the_advice_of_accumulation():
    found = findings(exposed=60, interference=40)
    (advice,) = (one for one in found.values() if "accumulation" in one.recommendation)
    assert advice.finding.startswith("50%")
    assert advice.factor == pytest.approx(200 / 125)


def test_many_small_messages_are_latency_bound():
    found = findings(exposed=100, message_bytes=(4096,) * 200)
    assert any(
        finding.startswith("the latency limits it: a step has 200 collectives") for finding in found
    )
    assert not any(finding.startswith("bandwidth") for finding in found)


def test_one_bucket_gets_the_advice_of_smaller_buckets():
    assert any("one bucket" in finding for finding in findings(exposed=100, message_bytes=(MB,)))


def test_imbalance_names_the_slowest_rank():
    advice = only(imbalance=25)
    assert "rank 0" in advice.finding
    assert advice.factor == pytest.approx(125 / 100)


def test_late_batches_get_the_advice_of_workers_if_there_is_a_loader():
    assert "num_workers" in only(data=50, loads_data=True).recommendation
    assert advise(measured(data=50)) == []


@pytest.mark.parametrize(
    ("share", "advised"),
    [(None, "num_workers"), (0.5, "num_workers"), (0.95, "more cores")],
)
def test_more_workers_are_advised_only_if_a_core_is_left_for_them(share, advised):
    """A worker that finds no core takes its CPU time from the ranks and the other workers."""
    advice = only(data=50, loads_data=True, cores_share=share)

    assert advised in advice.recommendation
    assert advice.factor == pytest.approx(150 / 100)


def test_ranks_without_a_core_are_reported():
    assert "no core" in only(idle=50).finding


def test_host_reads_get_advice_on_a_gpu_only():
    assert "3 values" in only(host_reads=3, gpu_memory=80 * 2**30).finding
    assert advise(measured(host_reads=3)) == []


def test_free_memory_is_reported_if_a_larger_batch_would_help():
    assert any("88% of the GPU" in f for f in findings(exposed=100, gpu_memory=80 * 10**9))
    assert not any("memory" in f for f in findings(exposed=100, gpu_memory=15 * 10**9))
    assert advise(measured(gpu_memory=80 * 10**9)) == []


def test_advice_with_the_largest_factor_is_first():
    factors = [one.factor or 1.0 for one in advise(measured(exposed=100, imbalance=30, idle=40))]
    assert factors == sorted(factors, reverse=True)


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"hook": "bf16"}, "the bandwidth limits"),
        ({"strategy": "fsdp"}, "the bandwidth limits"),
        ({"strategy": "fsdp", "message_bytes": (4096,) * 200}, "the latency limits"),
        ({"strategy": "fsdp", "message_bytes": (MB,)}, "one bucket"),
        ({"accumulation": 8}, "of the step is communication"),
        ({"keeps_global_batch": True}, "of the step is communication"),
    ],
    ids=[
        "has a hook",
        "FSDP has none",
        "FSDP has no buckets",
        "nor one",
        "accumulates already",
        "divides a batch",
    ],
)
def test_advice_that_is_in_use_or_impossible_is_not_given(changes, absent):
    assert any(
        absent in finding for finding in findings(exposed=100, **_without_the_option(changes))
    )
    assert not any(absent in finding for finding in findings(exposed=100, **changes))


def _without_the_option(changes):
    return {name: value for name, value in changes.items() if name == "message_bytes"}


def test_unmeasured_communication_supports_no_advice():
    assert advise(measured(exposed=0, sees_communication=False)) == []


def test_advice_on_a_script_names_what_to_change_in_it():
    slow = {"exposed": 60, "data": 40, "loads_data": True, "is_script": True}
    lists = [(25 * MB, 25 * MB), (1000, 1000), (25 * MB,)]
    words = [
        text
        for sizes in lists
        for text in (a.recommendation for a in advise(measured(message_bytes=sizes, **slow)))
    ]

    for option in ("comm_hooks:", "gradient_accumulation:", "ddp: {", "data: {"):
        assert not any(option in text for text in words)
    for call in ("register_comm_hook", "no_sync()", "bucket_cap_mb=", "num_workers="):
        assert any(call in text for text in words)
