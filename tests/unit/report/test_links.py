"""The rows of collectives, and the table and the notes of the links that they measure."""

from __future__ import annotations

import pytest

from ddp_perf.report.links import link_notes, link_table
from ddp_perf.report.session_report import build_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.stats.link import Link, ring_s
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_measurement,
    make_result,
    make_session,
)

CASES = make_collectives(collectives=["all_reduce"], world_sizes=[4])
LINK = Link(latency_s=50e-6, bytes_per_s=2e9)
SLOW = Link(latency_s=50e-6, bytes_per_s=1e9)


def step_s(case, link):
    return case.collective.calls * ring_s("all_reduce", case.collective.payload, 4, link)


def result_of(link, baseline=None, cases=CASES):
    measurements = [make_measurement(case, [step_s(case, link)] * 3) for case in cases]
    by_id = {one.case.id: one for one in measurements}
    found = find_links(by_id, summaries_of(by_id), baseline or make_baseline(), make_environment())
    return make_result(measurements, links=found)


def cells(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_a_collective_shows_call_time_and_both_bandwidths():
    case = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])[0]
    table = build_suite(make_result([make_measurement(case, [0.004])])).table

    # 2^20 bytes in 1 ms; the bus carries 2·3/4 of them.
    shown = {column.title: cell for column, cell in zip(table.columns, *cells(table), strict=True)}
    names = ("call µs", "algbw GB/s", "busbw GB/s")
    assert [shown[name] for name in names] == ["1,000.0", "1.05", "1.57"]
    assert not {"step ms", "samples /s", "speed-\u00adup"} & set(shown)


def test_a_link_has_latency_and_bandwidth_with_intervals():
    result = result_of(LINK)

    assert cells(link_table(result)) == [
        ["all_reduce", "4", "50", "50–50", "2", "2–2", "0%", "–", "–"]
    ]
    assert "links" in [section.title for section in build_suite(result).sections]


@pytest.mark.parametrize(
    ("levels", "sessions"),
    [
        pytest.param([1.0], "it is one session: how sessions differ is unknown", id="one"),
        pytest.param([1.0, 0.9, 1.1], "its sessions: 0.90 to 1.10 ×", id="several"),
    ],
)
def test_a_slower_link_is_named_with_what_is_known_of_its_sessions(levels, sessions):
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

    assert link_notes(result_of(SLOW, stored)) == [
        "SLOWER LINK: all_reduce, 4 ranks: bandwidth 2 GB/s → 1 GB/s, 2.00 × the time of the"
        f" baseline of 2026-01-01 (tolerance 10 %; {sessions}): training over this link may be"
        " slower for this reason alone",
        "network of emulated cases over this link: intra=1.000000-1.000000GB/s,"
        "intra_latency=50.000-50.000us",
    ]


def test_a_link_between_nodes_has_their_layout():
    cases = make_collectives(collectives=["all_reduce"], world_sizes=[4], ranks_per_node=2)

    assert [row[1] for row in cells(link_table(result_of(LINK, cases=cases)))] == ["2×2"]


def test_the_links_of_several_nodes_are_a_network():
    cases = [
        case
        for ranks in (2, 4)
        for case in make_collectives(
            collectives=["all_reduce"], world_sizes=[ranks], ranks_per_node=2
        )
    ]

    *_, note = link_notes(result_of(LINK, cases=cases))
    assert note.startswith("network of emulated cases over this link: gpus_per_node=2,intra=")
    assert ",inter=" in note


def test_a_link_without_a_fit_has_a_note_and_no_row():
    result = result_of(LINK, cases=CASES[:2])

    assert link_table(result).rows == ()
    (note,) = link_notes(result)
    assert note.startswith("no latency and bandwidth of all_reduce, 4 ranks: too few sizes were")
    (links,) = (one for one in build_suite(result).sections if one.title == "links")
    assert [part.text for part in links.parts] == [note]


def test_a_training_suite_has_no_link():
    result = make_result([make_measurement(case, [0.01]) for case in make_cases()])

    assert (link_table(result).rows, link_notes(result)) == ((), [])
