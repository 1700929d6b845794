"""The slowest node and the slowest link of cases over nodes, from what each rank measured."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import ScriptSuite
from ddp_perf.core.measurement import Measurement
from ddp_perf.report.suite_notes import node_lines, suite_notes
from ddp_perf.session.gate.explanation import explain_case
from ddp_perf.session.gate.nodes import exposed_by_link, slowest_node
from ddp_perf.stats.summary import as_session, summaries_of
from tests.builders import (
    PHASES_S,
    SCRIPT,
    make_case_baseline,
    make_cases,
    make_environment,
    make_launch,
    make_probe,
    make_result,
)

ONE, TWO_BY_TWO = make_cases(world_sizes=[2, 4], ranks_per_node=2)
FORWARD, EXPOSED = PHASES_S["forward"], PHASES_S["exposed"]
NOISE = (1.0, 1.004, 0.997, 1.002, 0.999)


def measured(case, factors=(1.0,) * 4, *, exposed=EXPOSED, hosts=None, launches=5):
    """Launches whose ranks take this many times as long for their forward; the others wait."""
    every = []
    for number in range(launches):
        slowest = max(factors[: case.world_size])
        step_s = sum(PHASES_S.values()) + FORWARD * (slowest - 1)
        launch = make_launch(case, number, step_s=step_s * NOISE[number % 5])
        ranks = []
        for rank, factor in zip(launch.ranks, factors, strict=False):
            forward = FORWARD * factor * NOISE[(number + rank.placement.rank) % 5]
            wait = max(exposed * NOISE[number % 5] + FORWARD * (slowest - factor), 0.0)
            place = rank.placement
            if hosts is not None:
                place = msgspec.structs.replace(place, host=hosts[number % len(hosts)][place.node])
            probe = make_probe(forward=forward, exposed=wait)
            ranks.append(msgspec.structs.replace(rank, probe=probe, placement=place))
        every.append(msgspec.structs.replace(launch, ranks=tuple(ranks)))
    return Measurement(case=case, launches=tuple(every), failures=())


def slowest(measurement):
    return slowest_node(measurement.launches, rows_of(measurement)[measurement.case.id])


def rows_of(*measurements):
    return summaries_of({one.case.id: one for one in measurements})


def test_the_node_whose_ranks_compute_longer_is_named_with_its_interval():
    node = slowest(measured(TWO_BY_TWO, (1.0, 1.0, 1.5, 1.5)))

    own_s = sum(PHASES_S[name] for name in ("data", "forward", "backward", "optimizer"))
    assert (node.node, node.ranks, node.launches) == ("node b", (2, 3), 5)
    assert node.ratio.low < 1 + 0.5 * FORWARD / own_s < node.ratio.high
    assert node.is_slower


def test_no_node_is_called_slower_if_chance_explains_it():
    assert not slowest(measured(TWO_BY_TWO)).is_slower


def test_no_node_is_the_slowest_if_too_few_launches_show_it():
    slow = (1.0, 1.0, 1.5, 1.5)

    assert slowest(measured(TWO_BY_TWO, slow, launches=2)) is None
    assert slowest(measured(TWO_BY_TWO, slow, launches=3)).node == "node b"


def test_launches_that_are_far_apart_show_no_slowest_node():
    factors = (1.0, 3.0, 1.0, 9.0)
    launches = [measured(TWO_BY_TWO, (1.0, 1.0, by, by), launches=1).launches[0] for by in factors]
    rounds = [msgspec.structs.replace(one, round=number) for number, one in enumerate(launches)]

    assert slowest(Measurement(case=TWO_BY_TWO, launches=tuple(rounds), failures=())) is None


def test_a_host_of_one_launch_is_not_compared_with_those_of_several():
    """Its only launch is the slowest of all."""
    often = measured(TWO_BY_TWO, (1.0, 1.0, 1.5, 1.5), hosts=("ab",), launches=4).launches
    once = measured(TWO_BY_TWO, (1.0, 1.0, 3.0, 3.0), hosts=("ac",), launches=1).launches

    node = slowest(Measurement(case=TWO_BY_TWO, launches=(*often, *once), failures=()))

    assert (node.node, node.launches) == ("node b", 4)


def test_one_straggler_does_not_make_its_node_slow():
    assert not slowest(measured(TWO_BY_TWO, (1.0, 1.0, 1.0, 1.5))).is_slower


def test_a_host_is_one_node_whatever_its_number_in_a_launch():
    measurement = measured(TWO_BY_TWO, hosts=("ab", "ba"))
    slow = [
        msgspec.structs.replace(
            launch,
            ranks=tuple(
                msgspec.structs.replace(rank, probe=make_probe(forward=FORWARD * 1.5))
                if rank.placement.host == "b"
                else msgspec.structs.replace(rank, probe=make_probe())
                for rank in launch.ranks
            ),
        )
        for launch in measurement.launches
    ]

    node = slowest(msgspec.structs.replace(measurement, launches=tuple(slow)))

    assert (node.node, node.launches) == ("node b", 5)


def test_two_nodes_on_one_host_are_named_by_their_numbers():
    node = slowest(measured(TWO_BY_TWO, (1.0, 1.0, 1.5, 1.5), hosts=("aa",)))

    assert node.node == "node 1 (a)"


def test_a_case_of_one_node_has_no_slowest_node():
    assert slowest(measured(ONE)) is None


@pytest.mark.parametrize(("across", "is_between"), [(5 * EXPOSED, True), (1.05 * EXPOSED, False)])
def test_what_one_node_does_not_expose_is_due_to_the_link_between_nodes(across, is_between):
    both = measured(ONE), measured(TWO_BY_TWO, exposed=across)
    by_id = {one.case.id: one for one in both}

    link = exposed_by_link(TWO_BY_TWO.id, by_id, rows_of(*both))

    assert link.exposed_s.value == pytest.approx(across, rel=0.01)
    assert link.between_s.value == pytest.approx(across - EXPOSED, rel=0.05)
    assert link.is_mostly_between is is_between
    assert exposed_by_link(ONE.id, by_id, rows_of(*both)) is None
    assert exposed_by_link(TWO_BY_TWO.id, {TWO_BY_TWO.id: both[1]}, rows_of(both[1])) is None


@pytest.mark.parametrize(("samples", "compares"), [("{world_size} * 8", True), (64, False)])
def test_ranks_of_a_script_that_divide_one_batch_are_not_compared_with_those_of_one_node(
    samples, compares
):
    suite = msgspec.convert(
        {**SCRIPT, "world_sizes": [2, 4], "samples_per_step": samples}, ScriptSuite
    )
    cases = cases_of(Variant(suite=suite, ranks_per_node=2))
    found = {case.id: measured(case, (1.0,) * case.world_size) for case in cases}

    link = exposed_by_link(cases[1].id, found, summaries_of(found))

    assert (link is not None) is compares


def test_the_lines_name_the_slowest_node_and_the_slowest_link():
    slow = measured(TWO_BY_TWO, (1.0, 1.0, 1.5, 1.5), exposed=5 * EXPOSED)
    result = make_result([measured(ONE), slow])

    node, link = node_lines(result, TWO_BY_TWO.id)

    assert node.startswith("slowest node: node b, ranks 2, 3: computes 1")
    assert link.startswith(
        "slowest link: between nodes; of 15.01 ms exposed communication, 12.00 ms"
    )
    assert node_lines(result, ONE.id) == []
    assert suite_notes(result) == [f"ws4-2x2: {line}" for line in (node, link)]
    (equal,) = node_lines(make_result([measured(TWO_BY_TWO)]), TWO_BY_TWO.id)
    assert equal.startswith("slowest node: none beyond chance; ")


def test_a_regression_that_one_node_causes_is_explained_by_the_node():
    before = measured(TWO_BY_TWO)
    rows = rows_of(before)[TWO_BY_TWO.id]
    session = as_session(rows, make_environment(), "2026-01-01T03:04:05+00:00")
    stored = make_case_baseline(TWO_BY_TWO, session)
    now = measured(TWO_BY_TWO, (1.0, 1.0, 2.5, 2.5))

    found = explain_case(now, stored, make_environment())

    assert found.causes[0].kind == "slow node"
    assert any("node b, ranks 2, 3: computes" in line for line in found.causes[0].evidence)
