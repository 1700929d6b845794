"""What users see of a script's steps: where they end, and that they are not alike."""

from __future__ import annotations

import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.report.case_text import case_summary, step_line
from ddp_perf.report.step_terms import measured_of
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


def test_the_line_of_the_script_is_shown_with_what_a_step_consists_of():
    usual, other = measurement(), measurement(micro_steps=(2, 4), optimizers=2)

    assert step_line(usual) == "train.py:25 (1 backward pass, 1 optimizer)"
    assert step_line(other) == "train.py:25 (2 to 4 backward passes, 2 optimizers)"
    rows = make_result([usual]).summaries[TWO.id]
    assert "Step ends at     : train.py:25 (1 b" in case_summary(usual, rows, "cpu-some-2c-host")


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
