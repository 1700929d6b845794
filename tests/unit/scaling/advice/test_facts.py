"""What results, baselines and published tables show of a step."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.errors import ConfigError
from ddp_perf.scaling.advice.facts import measured_step, result_facts, stored_facts
from ddp_perf.scaling.curves import measured_series, stored_series
from tests.builders import (
    changed_case,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_measurement,
    make_result,
    make_session,
    make_structure,
)


def results_of(cases, peak_of, **changes):
    measurements = [
        make_measurement(
            case,
            [0.01 * case.world_size, 0.0101 * case.world_size],
            peak_memory=peak_of(case),
            structure=make_structure(parameters=1000),
        )
        for case in cases
    ]
    return make_result(measurements, **changes)


def step_of(result, index=0):
    return measured_step(measured_series(result)[index], list(result_facts(result)))


def peak(case):
    """States, a batch of a million bytes for each sample, and half of it with checkpoints."""
    each = 500_000 if case.training.activation_checkpointing else 1_000_000
    return 10**9 + each * case.batch_size


def test_activations_are_the_difference_of_two_batches():
    result = results_of(
        make_cases(batch_sizes=[4, 16]),
        peak,
        environment=make_environment(gpu_memory=80_000_000_000),
    )

    step = step_of(result)

    assert step.activations == {"all": pytest.approx(1e6)}
    assert (step.parameters, step.gpu_memory) == (1000, 80_000_000_000)
    assert (step.precision, step.on_cpu, step.checkpointed) == ("fp32", True, False)
    assert step.accelerator == "cpu-some-2c-host"


def test_activations_with_checkpoints_are_apart():
    plain = make_cases(batch_sizes=[4, 16])
    checkpointed = [
        changed_case(case, id=f"{case.id}-checkpoint", activation_checkpointing=True)
        for case in plain
    ]

    step = step_of(results_of([*plain, *checkpointed], peak))

    assert step.activations == {"all": pytest.approx(1e6), "checkpoints": pytest.approx(5e5)}


def test_one_batch_size_shows_no_activations():
    assert step_of(results_of(make_cases(), peak)).activations == {}


def test_memory_that_falls_with_the_batch_shows_none():
    falling = results_of(make_cases(batch_sizes=[4, 16]), lambda case: 10**9 - case.batch_size)

    assert step_of(falling).activations == {}


def test_another_model_of_the_file_is_not_counted():
    small = make_cases(batch_sizes=[4])
    large = make_cases(batch_sizes=[16], model={"hidden_dim": 999})

    assert step_of(results_of([*small, *large], peak)).activations == {}


def test_a_baseline_shows_the_same():
    cases = {
        case.id: make_case_baseline(
            case,
            make_session([0.01 * case.world_size] * 3, peak_memory=float(peak(case))),
            structure=make_structure(parameters=1000),
        )
        for case in make_cases(batch_sizes=[4, 16])
    }
    baseline = make_baseline(cases)

    step = measured_step(stored_series(baseline)[0], list(stored_facts(baseline)))

    assert step.activations == {"all": pytest.approx(1e6)}
    assert step.parameters == 1000


def test_a_curve_without_cases_has_the_parameters_of_its_bytes():
    result = results_of(make_cases(), peak)

    step = measured_step(measured_series(result)[0], [])

    assert step.parameters == 808  # 3,232 bytes of FP32 gradients
    assert step.work == {}


def test_parameters_are_stated_or_given_and_not_both():
    result = results_of(make_cases(), peak)
    (curve,) = measured_series(result)
    facts = [msgspec.structs.replace(fact, parameters=None) for fact in result_facts(result)]

    assert measured_step(curve, facts, 25.6e6).parameters == 25.6e6
    with pytest.raises(ConfigError, match="are stated: give --measured-params"):
        measured_step(curve, facts)
    with pytest.raises(ConfigError, match="1,000 parameters are stated: omit --measured-params"):
        measured_step(curve, list(result_facts(result)), 25.6e6)
