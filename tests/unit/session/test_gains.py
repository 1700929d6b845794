"""What each technique gains, by launches of the same rounds."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import Collective
from ddp_perf.session.gains import gains_of
from tests.builders import (
    SUITE,
    make_cases,
    make_failure,
    make_measurement,
    make_probe,
    make_result,
    make_structure,
)

TECHNIQUES = {
    "accumulate4": {"gradient_accumulation": 4},
    "fp16-wire": {"comm_hook": {"kind": "fp16"}},
}
HALF = make_structure(collectives=(Collective(kind="all_reduce", dtype="float16", bytes=1616),))


def measured(case, step_s, *, exposed=0.003, **rank):
    return make_measurement(case, step_s, probe=make_probe(exposed=exposed), **rank)


@pytest.fixture
def session():
    """Two ranks: the base, accumulation with a step four times as long, and half of the bytes."""
    base, accumulated, half = make_cases(techniques=TECHNIQUES, world_sizes=[2])
    return make_result(
        [
            measured(base, [0.010, 0.012, 0.020], peak_memory=1000),
            measured(accumulated, [0.032, 0.0384, 0.064], peak_memory=1500),
            measured(half, [0.005, 0.006, 0.010], exposed=0.001, peak_memory=900, structure=HALF),
        ]
    )


def test_each_technique_is_compared_with_its_base(session):
    (table,) = gains_of(session)
    half = table.gains[1]

    assert (table.suite, table.base, table.ranks) == ("quick", "mlp-ddp-fp32-ws2-b64", 2)
    assert [gain.technique for gain in table.gains] == ["accumulate4", "fp16-wire"]
    assert (half.case_id, half.pairs) == ("mlp-ddp-fp32-ws2-b64-fp16-wire", 3)
    assert half.speedup.ratio == pytest.approx(2.0)
    assert half.speedup.interval == pytest.approx((2.0, 2.0))  # rounds differ, pairs do not
    assert half.memory.ratio == pytest.approx(0.9)
    assert (half.sent_bytes, half.sent_ratio) == (1616, 0.5)


def test_communication_is_what_it_adds_to_a_step(session):
    """The exposed part of 3 ms and of 1 ms; nothing is slowed down beside it."""
    (table,) = gains_of(session)
    half = table.gains[1]

    assert table.communication_s == pytest.approx(0.003)
    assert half.communication_s == pytest.approx(0.001)
    assert half.communication.ratio == pytest.approx(1 / 3)


def test_steps_of_more_samples_are_compared_for_as_many(session):
    """Four micro-steps take 3.2 times as long, and synchronise once."""
    accumulated = gains_of(session)[0].gains[0]

    assert accumulated.speedup.ratio == pytest.approx(4 / 3.2)
    assert accumulated.communication.ratio == pytest.approx(1 / 4)
    assert accumulated.communication_s == pytest.approx(0.003 / 4)
    assert (accumulated.sent_bytes, accumulated.sent_ratio) == (3232 / 4, 1 / 4)
    assert accumulated.memory.ratio == pytest.approx(1.5)  # of a rank, not of a step


def test_only_launches_of_the_same_round_are_compared():
    base, other = make_cases(techniques={"bf16": {"precision": "bf16"}}, world_sizes=[2])
    later = measured(other, [0.1, 0.005])
    result = make_result([measured(base, [0.02, 0.01, 0.9]), later])

    (gain,) = gains_of(result)[0].gains

    assert gain.pairs == 2
    assert gain.speedup.ratio == pytest.approx(math.sqrt(0.2 * 2.0))


def test_one_rank_has_no_communication_to_reduce():
    cases = make_cases(techniques={"bf16": {"precision": "bf16"}}, world_sizes=[1])
    (table,) = gains_of(make_result([measured(case, [0.01, 0.01]) for case in cases]))

    assert table.communication_s is None
    assert (table.gains[0].communication, table.gains[0].communication_s) == (None, None)


def test_communication_that_cannot_be_seen_is_not_compared():
    base, fsdp = make_cases(techniques={"fsdp": {"strategy": "fsdp"}}, world_sizes=[2])
    hidden = make_measurement(fsdp, [0.01] * 2, probe=make_probe(sees_communication=False))

    (table,) = gains_of(make_result([measured(base, [0.01] * 2), hidden]))

    assert table.communication_s is not None
    assert (table.gains[0].communication, table.gains[0].communication_s) == (None, None)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_case_without_a_launch_is_not_compared(missing):
    cases = make_cases(techniques={"bf16": {"precision": "bf16"}}, world_sizes=[2])
    measurements = [measured(case, [0.01] * 2) for case in cases]
    measurements[missing] = msgspec.structs.replace(
        measurements[missing], launches=(), failures=(make_failure(cases[missing]),)
    )

    assert gains_of(make_result(measurements)) == []


def test_swept_values_are_compared_side_by_side(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text(json.dumps({**SUITE, "world_sizes": [2]}))
    env = (("OMP_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "2"), ("OMP_NUM_THREADS", "4"))
    cases = load_cases([path], Overrides(env=env))
    steps = [0.03, 0.02, 0.01]

    (table,) = gains_of(
        make_result([measured(case, [s, s]) for case, s in zip(cases, steps, strict=True)])
    )

    assert [(gain.technique, round(gain.speedup.ratio, 9)) for gain in table.gains] == [
        ("OMP_NUM_THREADS=2", 1.5),
        ("OMP_NUM_THREADS=4", 3.0),
    ]


def test_a_session_without_techniques_has_no_table():
    assert gains_of(make_result([measured(case, [0.01]) for case in make_cases()])) == []
