"""The matrix of a suite: its cases, their ids, and their one-rank cases."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import find_suites
from tests.builders import make_cases


def test_every_combination_is_a_case_and_one_rank_comes_first():
    cases = make_cases(world_sizes=[2, 1], batch_sizes=[64, 8])

    assert [case.id for case in cases] == [
        "mlp-none-fp32-ws1-b64",
        "mlp-ddp-fp32-ws2-b64",
        "mlp-none-fp32-ws1-b8",
        "mlp-ddp-fp32-ws2-b8",
    ]


def test_scaling_is_measured_against_the_plain_module_at_the_same_batch():
    cases = make_cases(batch_sizes=[64, 8])

    for one, two in (cases[:2], cases[2:]):
        assert (one.strategy, one.training.ddp, one.single) == ("none", None, None)
        assert two.strategy == "ddp"
        assert two.single == one.id


def test_gpu_options_are_in_the_id_unless_they_are_defaults():
    plain, _ = make_cases(tier="gpu")
    told, _ = make_cases(tier="gpu", cuda_graphs=True, cudnn_benchmark=True)

    assert plain.id == "mlp-none-fp32-ws1-b64"
    assert told.id == "mlp-none-fp32-ws1-b64-cuda_graphs-cudnn_benchmark"


def test_scaling_can_be_measured_against_ddp_at_one_rank():
    one, two = make_cases(denominator="ddp-1")

    assert one.id == "mlp-ddp-fp32-ws1-b64"
    assert (one.strategy, one.training.ddp) == ("ddp", two.training.ddp)
    assert two.single == one.id


def test_without_a_one_rank_case_there_is_no_efficiency():
    assert [case.single for case in make_cases(world_sizes=[2, 4])] == [None, None]


def test_the_id_of_a_users_workload_can_name_a_file():
    case = make_cases(workload="my.workload:build")[0]

    assert case.id == "my.workload.build-none-fp32-ws1-b64"


@pytest.mark.parametrize("field", ["env", "tolerances", "steps"])
def test_fields_of_the_suite_apply_to_each_case(field):
    changes = {"env": {"A": "1"}, "tolerances": {"step_time": 0.2}, "steps": 99}
    cases = make_cases(**{field: changes[field]})

    said = {
        "env": [case.env for case in cases],
        "tolerances": [{"step_time": case.tolerances.step_time} for case in cases],
        "steps": [case.schedule.steps for case in cases],
    }
    assert said[field] == [changes[field]] * 2


def test_only_yaml_files_are_found_as_suites(tmp_path):
    for name in ("b.yaml", "a.yml", "schema.json", "c.yaml.orig", "notes.txt"):
        (tmp_path / name).touch()

    assert [path.name for path in find_suites(tmp_path)] == ["a.yml", "b.yaml"]
