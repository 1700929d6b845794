"""The figures of a suite that was not judged."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import RankConditions, ScriptFacts
from ddp_perf.report.terminal.unjudged import unjudged_text
from tests.builders import (
    make_cases,
    make_failure,
    make_measurement,
    make_probe,
    make_result,
    with_conditions,
)

ALONE, TWO = make_cases(world_sizes=[1, 2], batch_sizes=[16])
FACTS = ScriptFacts(steps_at="train.py:57", micro_steps=(1, 1), optimizers=1, skipped=0)


@pytest.fixture
def measurements():
    """One rank and two; a step of two takes as long, and communication 3 ms of it."""
    alone = make_probe(exposed=0.0, unsynchronised_backward=(), communication=())
    return [
        make_measurement(ALONE, [0.01, 0.01], probe=alone, script=FACTS),
        make_measurement(TWO, [0.01, 0.01], probe=make_probe(), script=FACTS),
    ]


def text_of(measurements):
    return " ".join(unjudged_text(make_result(measurements), 100).split())


def test_it_has_throughput_efficiency_terms_and_advice_but_no_verdict(measurements):
    text = text_of(measurements)

    assert "ws1 10.00 1,600 – – –" in text
    assert "ws2 10.00 3,200 2.00 100 % 0 %" in text
    assert "ms a step data ward ward ference mizer" in text
    assert "ws2: of a step, backward 40%, exposed 30%, forward 20% (backward: the back" in text
    assert "- a step computes for 7.0 ms and communication adds 3.0 ms" in text
    assert "a step ends at train.py:57 (1 backward pass, 1 optimizer)" in text
    assert "verdict" not in text
    assert "baseline" not in text


def test_a_case_whose_terms_are_of_longer_steps_has_the_reason_in_their_place(measurements):
    faster = make_measurement(TWO, [0.005, 0.005], probe=make_probe(), script=FACTS)

    text = text_of([measurements[0], faster])

    assert "ddp-ws2: no terms, since they are measured on later steps, which took 10.10" in text
    assert "ddp-ws2: no terms, as stated above a step ends" in text
    assert "it was over before" not in text


def test_shares_of_terms_that_exceed_the_timed_step_are_of_their_sum(measurements):
    faster = make_measurement(TWO, [0.0095, 0.0095], probe=make_probe(), script=FACTS)

    text = text_of([measurements[0], faster])

    assert "ws2: of a step, backward 40%, exposed 30%, forward 20% (" in text


def test_it_is_no_wider_than_the_terminal(measurements):
    lines = unjudged_text(make_result(measurements), 80).splitlines()

    assert max(map(len, lines)) <= 80


def test_a_disturbed_case_is_named(measurements):
    busy = RankConditions(foreign=0.4)
    disturbed = with_conditions(measurements[1], busy, busy)

    text = text_of([measurements[0], disturbed])

    assert text.count("its times mean little: ") == 1
    assert "2 of 2 launches were disturbed, because other processes took 40 %" in text


def test_a_script_that_was_over_before_its_terms_were_seen_is_named(measurements):
    text = text_of([measurements[0], make_measurement(TWO, [0.01], script=FACTS)])

    assert "ws1: of a step, backward " in text
    assert "ws2: it was over before further steps could show what a step is made of; let it" in text


def test_a_case_that_failed_has_no_row(measurements):
    failed = make_measurement(TWO, [])
    failed = type(failed)(case=TWO, launches=(), failures=(make_failure(TWO),))

    text = text_of([measurements[0], failed])

    assert "ws1-b16 10.00 1,600" in text
    assert "ws2" not in text
