"""A slow link is separated from slow code: whole sessions on simulated links."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.session.compare_sessions import ComparedSession, compare_sessions, one_side
from ddp_perf.session.gate.links import find_links
from ddp_perf.stats.link import Link, ring_s
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    FakeLauncher,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_launch,
    make_measurement,
    make_session,
    with_conditions,
)
from tests.suites import make_bench, measure_suite

LINK = Link(latency_s=50e-6, bytes_per_s=2e9)
CASES = make_collectives()
# Of the launches of a size, and of sizes, so that there is a scatter to judge by.
JITTER = (1.0, 1.02, 0.97)


def step_times(case, link, number):
    """Return the seconds of a step in each of three launches."""
    one = case.collective.calls * ring_s(
        case.collective.kind, case.collective.payload, case.world_size, link
    )
    return [one * JITTER[(number + i) % 3] * JITTER[number % 3] for i in range(3)]


def measured(link=LINK, cases=CASES):
    return {
        case.id: make_measurement(case, step_times(case, link, number))
        for number, case in enumerate(cases)
    }


def stored(link=LINK, cases=CASES, **changes):
    return make_baseline(
        {
            case.id: make_case_baseline(
                case, make_session(step_times(case, link, number + 1)), structure=None, **changes
            )
            for number, case in enumerate(cases)
        }
    )


def links(measurements, baseline=None, **environment):
    return find_links(
        measurements,
        summaries_of(measurements),
        baseline or make_baseline(),
        make_environment(**environment),
    )


def test_the_fitted_link_of_each_collective_is_the_simulated_one():
    found = links(measured())

    assert [(link.kind, link.ranks) for link in found] == [("all_reduce", 2), ("broadcast", 2)]
    for link in found:
        assert link.fit is not None
        assert link.fit.link.latency_s == pytest.approx(LINK.latency_s, rel=0.05)
        assert link.fit.link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.05)
        assert link.shift is None  # nothing is stored


RING_LOGGED = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}  # the second one is no other link


def test_each_world_size_and_swept_environment_has_its_own_link():
    cases = [
        *make_collectives(collectives=["all_reduce"], world_sizes=[2, 4]),
        *(
            msgspec.structs.replace(case, id=f"{case.id}-ring", env=RING_LOGGED)
            for case in make_collectives(collectives=["all_reduce"])
        ),
    ]

    found = links(measured(cases=cases))

    assert [(link.ranks, link.env) for link in found] == [
        (2, {}),
        (4, {}),
        (2, {"NCCL_ALGO": "Ring"}),
    ]
    assert all(link.fit is not None for link in found)


def test_the_links_within_and_between_nodes_are_never_mixed():
    """Four ranks on one node and on two: other cases, and another link."""
    near = make_collectives(collectives=["all_reduce"], world_sizes=[4])
    far = make_collectives(collectives=["all_reduce"], world_sizes=[4], ranks_per_node=2)
    slow = Link(latency_s=200e-6, bytes_per_s=5e8)

    within, between = links({**measured(cases=near), **measured(slow, cases=far)})

    assert [(link.ranks, link.nodes) for link in (within, between)] == [(4, 1), (4, 2)]
    assert within.fit.link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.05)
    assert between.fit.link.bytes_per_s == pytest.approx(slow.bytes_per_s, rel=0.05)


def test_a_link_between_nodes_is_compared_with_that_between_nodes_only():
    far = make_collectives(collectives=["all_reduce"], world_sizes=[4], ranks_per_node=2)
    slow = Link(latency_s=200e-6, bytes_per_s=5e8)
    near = make_collectives(collectives=["all_reduce"], world_sizes=[4])

    (found,) = links(measured(slow, cases=far), stored(cases=near))
    (same,) = links(measured(slow, cases=far), stored(cases=far))

    assert (found.shift, found.slower) == (None, ())
    assert same.slower == ("latency", "bandwidth")


@pytest.mark.parametrize(
    ("now", "slower"),
    [
        (LINK, ()),
        (Link(latency_s=100e-6, bytes_per_s=2e9), ("latency",)),
        (Link(latency_s=50e-6, bytes_per_s=1e9), ("bandwidth",)),
    ],
)
def test_the_slower_part_of_a_link_is_named(now, slower):
    for link in links(measured(now), stored()):
        assert link.slower == slower
        assert link.baseline_date == "2026-01-01T03:04:05+00:00"


def test_a_link_slower_by_less_than_the_tolerance_is_not_named():
    slow = Link(latency_s=50e-6, bytes_per_s=2e9 / 1.4)
    lenient = make_collectives(tolerances={"step_time": 0.5})

    assert links(measured(slow), stored())[0].slower == ("bandwidth",)
    assert links(measured(slow, lenient), stored(cases=lenient))[0].slower == ()


def test_disturbed_launches_are_left_out_of_the_link():
    taken = RankConditions(foreign=0.5)
    measurements = {
        case_id: with_conditions(measurement, taken, taken, taken)
        for case_id, measurement in measured().items()
    }

    assert [link.fit for link in links(measurements)] == [None, None]


def test_a_link_is_not_compared_with_other_work_or_another_machine():
    other_work = dict.fromkeys(CASES[0].work(), 1)

    assert links(measured(), stored(work=other_work))[0].shift is None
    assert links(measured(), stored(), accelerator_key="other")[0].shift is None


def test_a_suite_that_trains_has_no_link():
    measurements = {case.id: make_measurement(case, [0.01]) for case in make_cases()}

    assert links(measurements) == ()


def test_a_failed_case_leaves_the_other_sizes_in_the_link():
    measurements = measured()
    measurements[CASES[0].id] = make_measurement(CASES[0], [])

    fit = links(measurements)[0].fit

    assert fit is not None
    assert len(fit.points) == 3


def session_on(link, directory, **request):
    """Run a whole session of CASES over the simulated ``link``."""
    numbers = {case.id: number for number, case in enumerate(CASES)}

    def answer(request):
        case = request.case
        step_s = step_times(case, link, numbers[case.id])[request.round]
        return make_launch(case, request.round, step_s=step_s)

    return measure_suite(
        make_bench(directory, FakeLauncher(answer)),
        **{"suite": "links", "cases": tuple(CASES), "explain_budget_s": 60, **request},
    )


SLOW = Link(latency_s=50e-6, bytes_per_s=0.5e9)


def test_a_session_compares_its_link_with_the_stored_session(tmp_path):
    session_on(LINK, tmp_path, save_mode="missing")

    result = session_on(SLOW, tmp_path)

    assert [link.slower for link in result.links] == [("bandwidth",)] * 2
    assert result.links[0].baseline_date is not None
    # Collectives have no phases to look into: no launches are spent on that.
    assert result.explanations == {}
    assert result.explaining == {}
    assert {finding.metric for finding in result.findings} == {"step_time"}


def test_two_results_files_compare_their_links(tmp_path):
    before, after = (session_on(link, tmp_path) for link in (LINK, SLOW))
    old, new = (
        one_side([ComparedSession(name=name, complete=True, suites=(suite,))])
        for name, suite in (("old.json", before), ("new.json", after))
    )

    (judged,) = compare_sessions(old, new).judged

    assert [link.slower for link in judged.links] == [("bandwidth",)] * 2
