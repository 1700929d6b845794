"""What users see of a script's steps: where they end, and that they are not alike."""

from __future__ import annotations

import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.report.terminal.step_terms import measured_of
from ddp_perf.report.terminal.table import suite_table
from ddp_perf.report.terminal.text import case_summary, script_notes, step_line
from tests.builders import (
    make_measurement,
    make_probe,
    make_result,
    make_script_facts,
    make_scripts,
)

ONE, TWO = make_scripts()
STRONG_ONE, STRONG_TWO = make_scripts(samples_per_step="{batch_size}")


def measurement(case=TWO, step_s=0.01, *, probed=False, **facts):
    rank = {"script": make_script_facts(**facts), "losses": {}}
    if probed:
        rank["probe"] = make_probe()
    return make_measurement(case, [step_s] * 3, **rank)


def notes(**facts):
    return script_notes(make_result([measurement(**facts)]), {TWO.id: "ws2"})


def test_the_line_of_the_script_is_shown_with_what_a_step_consists_of():
    usual, other = measurement(), measurement(micro_steps=(2, 4), optimizers=2)

    assert step_line(usual) == "train.py:25 (1 backward pass, 1 optimizer)"
    assert step_line(other) == "train.py:25 (2 to 4 backward passes, 2 optimizers)"
    rows = make_result([usual]).summaries[TWO.id]
    assert "Step ends at     : train.py:25 (1 b" in case_summary(usual, rows, "cpu-some-2c-host")


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"micro_steps": (1, 4)}, "ws2: a step has 1 to 4 backward passes (train.py:25): its"),
        ({"optimizers": 2}, "ws2: 2 optimizers step; a step is one of the first"),
        ({"skipped": 3}, "ws2: a GradScaler skipped up to 3 steps of a launch"),
    ],
)
def test_steps_that_are_not_alike_have_a_note(facts, note):
    (found,) = notes(**facts)

    assert found.startswith(note)


def test_files_that_the_script_wrote_have_a_note_of_five_names():
    own, changed = notes(own_files=("a", "b"), changed_files=[f"/m/{n}" for n in range(7)])[::-1]

    assert own == "ws2: the script wrote 2 files, removed after the launch: a, b"
    assert changed.startswith("ws2: the script CHANGED 7 files OUTSIDE of its private directory")
    assert ": /m/0, /m/1, /m/2, /m/3, /m/4 and 2 more; switch" in changed


def test_usual_steps_have_no_note():
    assert notes() == []
    assert notes(micro_steps=(4, 4)) == []


def test_no_screen_of_a_script_shows_a_missing_value():
    result = make_result([measurement(ONE), measurement(TWO, 0.0125)])
    texts = [suite_table(result, 80), case_summary(measurement(), result.summaries[TWO.id], "k")]

    assert not any("None" in text for text in texts)


@pytest.mark.parametrize(
    ("cases", "efficiency"), [((ONE, TWO), 0.8), ((STRONG_ONE, STRONG_TWO), 0.4)]
)
def test_the_efficiency_follows_from_the_samples_of_a_step(cases, efficiency):
    result = make_result(
        [measurement(cases[0], 0.01, probed=True), measurement(cases[1], 0.0125, probed=True)]
    )

    found = measured_of(result, cases[1].id)

    assert found.efficiency == pytest.approx(efficiency)
    assert found.keeps_global_batch == (cases[1] is STRONG_TWO)
    assert (found.strategy, found.is_script, found.loads_data) == ("ddp", True, True)
    assert found.step.terms.keys() == set(TERMS)
