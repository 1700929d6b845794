"""The table of collectives, and the link under it."""

from __future__ import annotations

import pytest

from ddp_perf.report.terminal.table import suite_table
from ddp_perf.session.gate.links import find_links
from ddp_perf.stats.link import Link, ring_s
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_failure,
    make_measurement,
    make_result,
    make_session,
)

CASES = make_collectives(collectives=["all_reduce"], world_sizes=[4])
LINK = Link(latency_s=50e-6, bytes_per_s=2e9)
SLOW = Link(latency_s=50e-6, bytes_per_s=1e9)


def step_s(case, link):
    return case.collective.calls * ring_s("all_reduce", case.collective.payload, 4, link)


def result_of(link, baseline=None):
    measurements = [make_measurement(case, [step_s(case, link)] * 3) for case in CASES]
    by_id = {one.case.id: one for one in measurements}
    found = find_links(by_id, summaries_of(by_id), baseline or make_baseline(), make_environment())
    return make_result(measurements, links=found)


def rows_of(text, name):
    return [line.split() for line in text.splitlines() if line.startswith(name)]


def test_a_collective_shows_call_time_and_both_bandwidths():
    case = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])[0]
    text = suite_table(make_result([make_measurement(case, [0.004])]), 80)

    # 2^20 bytes in 1 ms; the bus carries 2·3/4 of them.
    (row,) = rows_of(text, "all_reduce-ws4-1MiB")
    assert row[3:6] == ["1,000.0", "1.05", "1.57"]
    for absent in ("samples", "effi-", "speed"):
        assert absent not in text


def test_a_failed_collective_has_no_figures():
    case = CASES[0]
    failed = make_measurement(case, [])
    failed = type(failed)(case=case, launches=(), failures=(make_failure(case),))

    (row,) = rows_of(suite_table(make_result([failed]), 80), case.id)
    assert row[1:] == ["FAILED", "–"]


def test_link_lines_show_latency_and_bandwidth_with_intervals():
    text = suite_table(result_of(LINK), 80)

    (row,) = rows_of(text, "all_reduce  ")
    assert row[1:] == ["4", "50", "50–50", "2", "2–2", "0%", "–", "–"]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("levels", "sessions"),
    [
        pytest.param([1.0], "it is one session: how sessions differ is unknown", id="one"),
        pytest.param([1.0, 0.9, 1.1], "its sessions: 0.90 to 1.10 ×", id="several"),
    ],
)
def test_link_notes_name_a_slower_link_with_what_is_known_of_its_sessions(levels, sessions):
    stored = make_baseline(
        {
            case.id: make_case_baseline(
                case,
                *(
                    make_session([step_s(case, LINK) * level] * 3, day=day)
                    for day, level in enumerate(levels, 1)
                ),
                structure=None,
            )
            for case in CASES
        }
    )

    text = " ".join(suite_table(result_of(SLOW, stored), 80).split())

    assert (
        "SLOWER LINK: all_reduce, 4 ranks: bandwidth 2 GB/s → 1 GB/s, 2.00 × the time of the"
        f" baseline of 2026-01-01 (tolerance 10 %; {sessions}): training over this link may be"
        " slower for this reason alone" in text
    )
    assert "latency 50" not in text


def test_a_link_between_nodes_has_their_layout():
    cases = make_collectives(collectives=["all_reduce"], world_sizes=[4], ranks_per_node=2)
    measurements = [make_measurement(case, [step_s(case, LINK)] * 3) for case in cases]
    by_id = {one.case.id: one for one in measurements}
    seen = by_id, summaries_of(by_id), make_baseline(), make_environment()

    text = suite_table(make_result(measurements, links=find_links(*seen)), 80)

    assert rows_of(text, "all_reduce  ")[-1][1] == "2×2"


def test_link_notes_name_a_link_without_a_fit():
    measurements = [make_measurement(case, [0.01]) for case in CASES[:2]]
    by_id = {one.case.id: one for one in measurements}
    found = find_links(by_id, summaries_of(by_id), make_baseline(), make_environment())

    text = suite_table(make_result(measurements, links=found), 200)

    assert "no latency and bandwidth of all_reduce, 4 ranks: too few sizes were measured" in text
    assert "ring model" not in text


def test_a_training_suite_shows_no_link():
    text = suite_table(make_result([make_measurement(case, [0.01]) for case in make_cases()]), 80)

    assert "samples" in text
    assert "ring model" not in text
