"""The score of recorded sessions: what is right, what is only likely, and what is wrong."""

from __future__ import annotations

import gzip

import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.explanation import Cause, Delta, Explanation
from ddp_perf.core.verdict import Outcome
from tests.builders import make_case, make_environment, make_measurement, make_probe, make_result
from tests.quality.attribution_causes import BY_NAME, CAUSES, Effect
from tests.quality.attribution_effects import edited
from tests.quality.attribution_score import (
    Answered,
    Grade,
    answer_all,
    answer_of,
    grade,
    read_recordings,
    report,
)
from tests.quality.attribution_session import read_recording, write_recording

CASE = make_case()
JITTER = (1.0, 1.004, 0.996)


def explained(*causes, **grown_s):
    """Return an explanation with these causes; ``grown_s`` are the changes of terms."""
    terms = [
        Delta(name=name, before=0.01, after=0.01 + grown_s.get(name, 0), uncertainty=0.0)
        for name in TERMS
    ]
    return Explanation(
        case_id=CASE.id, step_change_s=0.002, causes=causes, terms=tuple(terms), launches=5
    )


def cause(kind, **changes):
    return Cause(**{"kind": kind, "change_s": 0.002, "share": 1.0, "evidence": (), **changes})


def session(late_s=0.0, session=0):
    """Return a session whose batch is late by ``late_s``; sessions differ a little."""
    steps = [(0.0101 + late_s) * factor * (1 + 0.001 * session) for factor in JITTER]
    measurement = make_measurement(CASE, steps, probe=make_probe(data=0.0001 + late_s))
    return make_result([measurement], explaining={CASE.id: measurement.launches})


@pytest.fixture
def folder(tmp_path):
    """Return recordings of five base sessions, a data loader that got slower, and no change."""
    for number in range(5):
        write_recording(tmp_path / f"00{number}.base.one.json.gz", session(session=number % 3))
    write_recording(tmp_path / "005.slow-transform.large.json.gz", session(0.005))
    write_recording(tmp_path / "006.slow-link.small.json.gz", session(0.005))
    write_recording(tmp_path / "007.unchanged.one.json.gz", session(session=1))
    return tmp_path


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ([cause("data")], Grade.RIGHT),
        ([cause("data", likely=True)], Grade.LIKELY_RIGHT),
        ([cause("host")], Grade.WRONG),
        ([cause("host", likely=True)], Grade.LIKELY_WRONG),
        ([cause("unexplained")], Grade.UNEXPLAINED),
        ([cause("unexplained", likely=True)], Grade.UNEXPLAINED),
        ([], Grade.UNEXPLAINED),
        ([cause("host"), cause("data")], Grade.WRONG),
    ],
)
def test_only_the_first_cause_counts(causes, expected):
    assert grade(explained(*causes), ("data",)) is expected


def test_computation_is_named_with_its_phase_and_a_straggler_with_its_rank():
    grown = explained(cause("compute"), forward=0.001, backward=0.002, data=0.003)
    assert answer_of(grown) == "compute: backward"
    assert grade(grown, ("compute: forward",)) is Grade.WRONG
    assert answer_of(explained(cause("straggler", rank=1))) == "straggler of rank 1"
    assert answer_of(explained()) == "nothing"


def test_recordings_are_judged_and_explained_as_the_product_does(folder):
    data, link, unchanged = answer_all(read_recordings(folder))
    assert (data.outcome, data.first, data.grade) == (Outcome.REGRESSION, "data", Grade.RIGHT)
    assert data.change == pytest.approx(0.5, abs=0.01)
    assert (link.outcome, link.grade) == (Outcome.REGRESSION, Grade.WRONG)
    assert unchanged.outcome is not Outcome.REGRESSION


def test_the_report_has_each_rate_with_its_trials_and_its_interval(folder):
    lines = list(report(answer_all(read_recordings(folder))))
    assert "judged REGRESSION: 2 of 2 (95 %: 16 to 100 %)" in lines
    assert "    right: 1 of 2 (95 %: 1 to 99 %)" in lines
    assert "    wrong: 1 of 2 (95 %: 1 to 99 %)" in lines
    assert "    causes that are right in most sessions: 1 of 2 (95 %: 1 to 99 %)" in lines
    assert "unchanged, and judged REGRESSION: 0 of 1 (95 %: 0 to 98 %)" in lines


def test_a_session_that_is_not_red_counts_apart():
    answered = [
        Answered(
            cause="slow-transform",
            size="small",
            outcome=outcome,
            change=0.05,
            explanation=explained(cause("data")),
        )
        for outcome in (Outcome.REGRESSION, Outcome.UNDECIDED, Outcome.INVALID)
    ]
    lines = list(report(answered))
    assert "judged REGRESSION: 1 of 3 (95 %: 1 to 91 %)" in lines
    assert lines.count("    right: 1 of 1 (95 %: 3 to 100 %)") == 2  # red, and not red
    assert (
        "slow-transform small (+5, +5, +5 %; right: data):"
        " INVALID 1, REGRESSION → data (right) 1, UNDECIDED → data (right) 1"
    ) in lines
    assert "judged INVALID: 1; 0 of them name what was done" in lines


def test_invalid_is_right_only_if_it_names_what_was_done():
    said = {"busy-core": "other processes took 20 %", "cpu-quota": "other processes took 20 %"}
    answered = [
        Answered(
            cause=cause,
            size="large",
            outcome=Outcome.INVALID,
            change=0.2,
            disturbance=disturbance,
            explanation=explained(),
        )
        for cause, disturbance in said.items()
    ]
    assert "judged INVALID: 2; 1 of them name what was done" in list(report(answered))


def test_too_few_base_sessions_are_said(folder):
    for path in sorted(folder.glob("*.base.*"))[2:]:
        path.unlink()
    with pytest.raises(SystemExit, match="2 base sessions can be a baseline, and 3 are needed"):
        answer_all(read_recordings(folder))


def test_a_recording_has_no_mark_of_its_cause_and_no_host(folder):
    path = folder / "005.slow-transform.large.json.gz"
    assert b"slow-transform" not in gzip.decompress(path.read_bytes())
    recorded = read_recording(path)
    environment = recorded.environment
    assert environment == make_environment(
        accelerator_key="cpu", host="host", os="Linux", commit=None
    )
    assert list(recorded.explaining) == [CASE.id]


@pytest.mark.parametrize("name", BY_NAME)
def test_each_edit_applies_to_the_workload_and_is_python(name):
    unchanged = edited(Effect())
    for effect in BY_NAME[name].sizes.values():
        source = edited(effect)
        compile(source, name, "exec")
        assert (source != unchanged) == bool(effect.edits)
        assert effect != Effect()
    assert len(BY_NAME) == len(CAUSES)


def test_an_edit_that_does_not_apply_is_an_error():
    with pytest.raises(ValueError, match="is there 0 times, not once"):
        edited(Effect(edits=(("no such line", ""),)))
