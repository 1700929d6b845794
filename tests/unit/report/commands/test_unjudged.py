"""The figures of a suite that was not judged."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions, ScriptFacts
from ddp_perf.render.terminal import text_of
from ddp_perf.report.commands.unjudged import unjudged_parts
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


def two(*step_s, **changes):
    return make_measurement(
        TWO, list(step_s), **{"probe": make_probe(), "script": FACTS, **changes}
    )


def shown(measured):
    """Return the text of one rank beside two, whose step takes as long, 3 ms for communication."""
    probe = make_probe(exposed=0.0, unsynchronised_backward=(), communication=())
    alone = make_measurement(ALONE, [0.01, 0.01], probe=probe, script=FACTS)
    return text_of(unjudged_parts(make_result([alone, measured])), 80)


def test_the_text_has_no_verdict_and_is_no_wider_than_the_terminal(file_regression):
    text = shown(two(0.01, 0.01))

    assert max(map(len, text.splitlines())) <= 80
    file_regression.check(text, extension=".txt", encoding="utf-8")


FAILED = msgspec.structs.replace(two(), failures=(make_failure(TWO),))
BUSY = with_conditions(two(0.01, 0.01), *[RankConditions(foreign=0.4)] * 2)


@pytest.mark.parametrize(
    ("measured", "sentence", "other"),
    [
        pytest.param(
            two(0.005, 0.005),
            "ddp-ws2: no terms, as stated above a step ends",
            "it was over before",
            id="terms of longer steps",
        ),
        pytest.param(
            two(0.0095, 0.0095),  # the terms exceed the timed step
            "ws2: of a step, backward 40%, exposed 30%, forward 20% (",
            "no terms",
            id="shares of the sum of terms",
        ),
        pytest.param(
            BUSY,
            "2 of 2 launches were disturbed, because other processes took 40 %",
            "no terms",
            id="disturbed",
        ),
        pytest.param(
            two(0.01, probe=None),
            "ws2: it was over before further steps could show what a step is made of; let it",
            "no terms",
            id="over before its terms were seen",
        ),
        pytest.param(FAILED, "ws1-b16 10.00 1,600", "ws2", id="failed"),
    ],
)
def test_a_case_with_fewer_figures_has_the_reason_in_their_place(measured, sentence, other):
    text = " ".join(shown(measured).split())

    assert sentence in text
    assert other not in text
