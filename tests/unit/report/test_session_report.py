"""The report of a session: its table, what is not green with its reason, once, and what else."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.launch import Unit
from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Cause, Explanation, Outcome, Settled
from ddp_perf.render.terminal import report_text
from ddp_perf.report.case_text import why_slower
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_report import build_session, build_suite
from tests.builders import (
    make_acknowledgement,
    make_cases,
    make_culprit,
    make_excuse,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)

ONE, TWO, FOUR = make_cases(world_sizes=[1, 2, 4])
CULPRIT = make_culprit(
    name="5" * 40, author="A", ratio=1.2, interval=(1.1, 1.3), launches=9, seconds=30.0
)


@pytest.fixture
def result():
    """Two ranks take 12.5 ms where one takes 10: 1.6 times as fast, efficiency 80 %."""
    steps = [(ONE, 0.01), (TWO, 0.0125), (FOUR, 0.0125)]
    return make_result([make_measurement(case, [step] * 3) for case, step in steps])


def with_findings(result, *findings, **changes):
    return msgspec.structs.replace(result, findings=findings, **changes)


def row_of(result, name):
    lines = [line.split() for line in report_text(build_suite(result), 120).splitlines()]
    return next(cells for cells in lines if cells and cells[0].startswith(name))


def sections_of(result):
    """Return the headings and the texts of the sections that a terminal shows."""
    sections = (one for one in build_suite(result).sections if one.media == "all")
    return {one.heading: [part.text for part in one.parts] for one in sections}


# The table.


def test_the_table_shows_step_time_throughput_and_efficiency(result):
    none = ["none-ws1", "NOT", "JUDGED", "–", "10.00", "6,400", *"–––"]
    ddp = ["ddp-ws2", "NOT", "JUDGED", "–", "12.50", "10,240", "1.60", "80", "%", "–"]
    assert row_of(result, "none") == none
    assert row_of(result, "ddp-ws2") == ddp


def test_throughput_is_in_the_workloads_unit():
    unit = Unit(name="tokens", per_sample=512)
    tokens = make_result([make_measurement(ONE, [0.01], unit=unit)])

    assert "samples" not in report_text(build_suite(tokens), 80)
    assert row_of(tokens, "mlp")[5] == "3,276,800"  # 512 × 64 ÷ 10 ms


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_of_cpu_quick_fits_80_columns_with_whole_names(width):
    cases = make_cases(batch_sizes=[64, 128])
    undecided = {"reason": "busy", "minimum_detectable": 0.1234}
    quick = make_result(
        [make_measurement(case, [0.0298765]) for case in cases],
        findings=tuple(make_finding(case, Outcome.UNDECIDED, **undecided) for case in cases),
    )

    table = report_text(build_suite(quick), width)

    assert max(map(len, table.splitlines())) <= 80
    assert table.count("≥ 12 %") == 4
    for name in ("none-ws1-b64", "ddp-ws2-b64", "none-ws1-b128", "ddp-ws2-b128"):
        assert f"\n{name} " in table


@pytest.mark.parametrize("launches", [0, 3])
def test_a_failed_case_has_no_figures_for_any_number_of_launches(launches):
    measured = make_measurement(TWO, [0.01] * launches)
    failed = msgspec.structs.replace(measured, failures=(make_failure(TWO),))
    result = make_result([make_measurement(ONE, [0.01]), failed])

    assert row_of(result, "ddp")[:3] == ["ddp-ws2", "FAILED", "–"]


def test_energy_has_a_column_if_any_launch_has_a_reading(result):
    """10 J of each of two ranks over 12 steps of 128 samples; the other case has none."""
    measurements = [make_measurement(ONE, [0.01]), make_measurement(TWO, [0.0125], energy_j=10.0)]
    read = make_result(measurements)

    assert "J a" not in report_text(build_suite(result), 80)
    assert row_of(read, "none")[-2:] == [*"––"]
    assert row_of(read, "ddp")[-2:] == ["0.013", "–"]


# What is not green.


def test_only_what_is_not_green_has_its_reason_the_red_ones_first(result):
    result = with_findings(
        result,
        make_finding(ONE, Outcome.UNDECIDED, reason="too noisy"),
        make_finding(TWO, Outcome.PASS, reason="all well"),
        make_finding(FOUR, Outcome.REGRESSION, reason="twice as slow"),
    )

    assert [*sections_of(result).items()] == [
        (f"{FOUR.id}: REGRESSION", ["step time: twice as slow"]),
        (f"{ONE.id}: UNDECIDED", ["step time: too noisy"]),
    ]


@pytest.mark.parametrize(
    ("reasons", "headings"),
    [
        (("a", "a", "b"), ["none-ws1 and ddp-ws2: INVALID", f"{FOUR.id}: INVALID"]),
        (
            ("2 of 3: top", "3 of 3: top", "5 of 5: top"),
            ["all 3 cases (figures of none-ws1): INVALID"],
        ),
        (("a", "b", "c"), [f"{case.id}: INVALID" for case in (ONE, TWO, FOUR)]),
    ],
)
def test_cases_with_one_reason_but_for_its_figures_share_a_section(result, reasons, headings):
    cases = zip((ONE, TWO, FOUR), reasons, strict=True)
    found = [make_finding(case, Outcome.INVALID, reason=reason) for case, reason in cases]

    sections = sections_of(with_findings(result, *found))

    assert list(sections) == headings
    assert next(iter(sections.values())) == [f"step time: {reasons[0]}"]


def test_the_reason_is_of_the_worst_verdict_and_others_as_bad_are_named(result):
    tail, cpu = (
        make_finding(TWO, outcome, metric=metric, reason="hidden")
        for metric, outcome in (("tail", Outcome.INVALID), ("cpu_time", Outcome.UNDECIDED))
    )
    worst = make_finding(TWO, Outcome.INVALID, reason="no", notes=make_excuse("3 of 3: heat"))

    assert sections_of(with_findings(result, worst, tail, cpu)) | {} == {
        "none-ws1 and ddp-ws4: NOT JUDGED": [
            "the session ended before it judged this case; run it again"
        ],
        f"{TWO.id}: INVALID": [
            "step time: 3 of 3: heat",
            "also INVALID: tail (mean step ÷ its level)",
        ],
    }


def test_the_sections_of_several_suites_name_their_suite(result):
    red = with_findings(result, *(make_finding(c, Outcome.REGRESSION) for c in (ONE, TWO, FOUR)))
    suites = [red, msgspec.structs.replace(red, suite="other")]

    report = build_session(suites, report_summary(suites, complete=True), None)

    titles = [section.title for section in report.sections]
    assert titles[::2] == [f"{name}: all 3 cases" for name in ("quick", "other")]
    assert titles[1::2] == ["quick: scaling", "other: scaling"]


def stored(*cases, mode="missing"):
    saved = Saved(path="cpu.json", mode=mode)
    return {"saved": {case.id: saved for case in cases}, "save_mode": mode}


def test_a_new_case_that_was_stored_needs_no_reason(result):
    new = [make_finding(case, Outcome.NO_BASELINE, reason="new") for case in (ONE, TWO, FOUR)]

    sections = sections_of(with_findings(result, *new, **stored(TWO, FOUR)))

    assert sections == {
        f"{ONE.id}: NO_BASELINE": ["new"],
        "notes": ["ddp-ws2 and ddp-ws4: stored in cpu.json"],
    }


def test_an_accepted_regression_keeps_its_reason(result):
    red = make_finding(ONE, Outcome.REGRESSION, reason="slower")
    result = with_findings(make_result([make_measurement(ONE, [0.01])]), red)
    result = msgspec.structs.replace(result, **stored(ONE, mode="accept"))

    assert sections_of(result) == {
        f"{ONE.id}: REGRESSION (stored)": ["step time: slower"],
        "notes": [f"{ONE.id}: accepted as the new level in cpu.json"],
    }


def test_what_was_refused_and_where_structures_are_is_among_the_notes(result):
    passed = [make_finding(case, Outcome.PASS) for case in (ONE, TWO, FOUR)]
    refused = dict.fromkeys([TWO.id, FOUR.id], Refused(reason="too noisy"))
    changes = {**stored(ONE, mode="append"), "not_saved": refused}
    result = with_findings(result, *passed, saved_structures={ONE.id: "quick.json"}, **changes)

    assert sections_of(result)["notes"] == [
        "none-ws1: appended to cpu.json; the structure is stored in quick.json",
        "ddp-ws2 and ddp-ws4: not stored: too noisy",
    ]


def test_a_case_that_lacked_nothing_has_no_note_on_what_is_missing(result):
    refused = dict.fromkeys([ONE.id, TWO.id], Refused(reason="stored already"))
    found = [make_finding(ONE, Outcome.PASS), make_finding(TWO, Outcome.PASS)]
    found.append(make_finding(TWO, Outcome.NO_BASELINE, metric="energy"))
    result = with_findings(result, *found, save_mode="missing", not_saved=refused)

    assert sections_of(result)["notes"] == ["ddp-ws2: not stored: stored already"]


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (("expected",), "REGRESSION (known)"),
        (("expected", None), "REGRESSION"),
        (("over",), "REGRESSION"),
    ],
)
def test_only_a_case_whose_regressions_are_all_expected_is_marked_as_known(states, verdict):
    entry = make_acknowledgement(TWO)
    found = [
        make_finding(
            TWO, Outcome.REGRESSION, known=state and Known(acknowledgement=entry, state=state)
        )
        for state in states
    ]
    (row,) = build_suite(
        with_findings(make_result([make_measurement(TWO, [0.01])]), *found)
    ).table.rows

    assert row[1].text == verdict


def test_the_causes_are_the_commit_what_the_code_does_otherwise_and_the_explanation(result):
    cause = Cause(kind="data", change_s=0.002, share=1.0, evidence=("late",))
    why = Explanation(case_id=TWO.id, step_change_s=0.002, causes=(cause,), terms=(), launches=5)
    settled = Settled(reference=None, culprit=CULPRIT, causes=("2 more calls",))
    changes = {"explanations": {TWO.id: why}, "settled": {TWO.id: settled}}
    found = with_findings(result, make_finding(TWO, Outcome.REGRESSION), **changes)

    lines = [line.strip() for line in why_slower(found, TWO.id)]

    assert lines == [
        'commit 555555555555 "Fuse the loss" by A (98 %): +20.0 % (10.0 to 30.0 %)',
        "2 more calls",
        "where the +2.00 ms of a step went:",
        "data +2.00 ms: late",
    ]
    text = report_text(build_suite(found), 80)
    assert [line in text for line in lines] == [True] * 4
    assert report_summary([found], complete=True).rows[1].cause == "; ".join([*lines[:2], lines[3]])


# What a reader of a green suite should know.


def notes_of(*findings, **changes):
    result = make_result([make_measurement(TWO, [0.01])], findings=findings, **changes)
    assert build_suite(result).verdict == "GREEN"
    return sections_of(result).get("notes", [])


def test_a_green_suite_has_no_section():
    assert notes_of(make_finding(TWO, Outcome.PASS, reason="as fast")) == []


def test_an_improvement_a_drift_and_an_acknowledgement_that_is_over_are_notes():
    over = Known(acknowledgement=make_acknowledgement(TWO), state="over")
    better, ended = notes_of(
        make_finding(TWO, Outcome.IMPROVEMENT, reason="faster", drift=0.8),
        make_finding(TWO, Outcome.PASS, metric="tail", reason="as fast", known=over),
    )

    assert better.startswith(f"{TWO.id}: step time: IMPROVEMENT; faster; drift since the first")
    assert better.endswith("0.800 ×")
    assert "the regression is over" in ended
    assert "as fast" not in ended


@pytest.mark.parametrize(
    ("settled", "text"),
    [
        ({"unchanged": True, "machine": ("host a → b",)}, "those of L; the machine: host a → b"),
        (
            {"pairs": 8, "seconds": 60.0},
            "settled by 8 pairs of launches of today's code and that of L in 60 s",
        ),
        (
            {"pairs": 8, "seconds": 60.0, "problem": "ended"},
            "8 pairs of launches of today's code and that of L in 60 s; ended",
        ),
        ({"problem": "no time"}, "not settled: no time"),
    ],
)
def test_a_green_case_that_was_settled_has_a_note(settled, text):
    note = Settled(reference="2026-01-01", label="L", **settled)

    (shown,) = notes_of(make_finding(TWO, Outcome.PASS), settled={TWO.id: note})

    assert shown.endswith(text)


def test_an_open_case_that_was_settled_names_what_changed_and_what_it_takes():
    note = Settled(
        reference="2026-01-01", label="L", pairs=4, changed=("model.py",), needed_s=300.0
    )
    open_ = make_finding(TWO, Outcome.UNDECIDED, reason="settled beside L: 4 pairs")
    result = make_result([make_measurement(TWO, [0.01])], findings=(open_,))

    assert sections_of(msgspec.structs.replace(result, settled={TWO.id: note})) == {
        f"{TWO.id}: UNDECIDED": [
            "step time: settled beside L: 4 pairs",
            "changed since L: model.py; about 5 min would be enough",
        ]
    }
