"""Knobs become settings of a case, or are refused before anything is launched."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import CollectivesSuite, ScriptSuite
from ddp_perf.duel.sweep.settings import parse_knobs, plan_settings
from ddp_perf.errors import ConfigError
from tests.builders import COLLECTIVES, make_capacity, make_collectives, make_suite
from tests.projects import REPOSITORY
from tests.unit.duel.script_cases import SCRIPT_SUITE


def planned(*words, suite=None, case=1, file=None, cores=4):
    suite = suite or make_suite()
    base = cases_of(Variant(suite=suite))[case]
    knobs = parse_knobs(words, file, suite)
    return plan_settings(suite, base, knobs, make_capacity(cores=cores).obstacle)


def names(settings):
    return [setting.name for setting in settings.tried]


def test_every_combination_of_options_and_variables_is_a_case_of_its_own():
    settings = planned("bucket_cap_mb=1,5", "OMP_NUM_THREADS=1,2")

    assert names(settings) == [
        "bucket_cap_mb=1 OMP_NUM_THREADS=1",
        "bucket_cap_mb=1 OMP_NUM_THREADS=2",
        "bucket_cap_mb=5 OMP_NUM_THREADS=1",
        "bucket_cap_mb=5 OMP_NUM_THREADS=2",
    ]
    last = settings.tried[-1]
    assert last.changes == {"ddp": {"bucket_cap_mb": 5}, "env": {"OMP_NUM_THREADS": "2"}}
    assert (last.case.training.ddp.bucket_cap_mb, last.case.env) == (5, {"OMP_NUM_THREADS": "2"})
    assert last.case.world_size == settings.base.world_size
    assert len({setting.case.id for setting in settings.tried} | {settings.base.id}) == 5


def test_a_table_of_options_is_changed_field_by_field():
    suite = make_suite(ddp={"broadcast_buffers": False})

    (setting,) = planned("bucket_cap_mb=5", "ddp.static_graph=true", suite=suite).tried

    assert setting.case.training.ddp.bucket_cap_mb == 5
    assert setting.case.training.ddp.static_graph is True
    assert setting.case.training.ddp.broadcast_buffers is False


def test_a_hook_is_named_by_its_kind():
    settings = planned("comm_hook=null,bf16")

    assert names(settings) == ["comm_hook=bf16"]
    assert settings.left_out[0].reason == "it does the same work as the suite's own setting"


def test_what_the_suite_refuses_is_left_out_with_its_reason():
    settings = planned("strategy=ddp,fsdp", "comm_hook=null,bf16")

    assert names(settings) == ["strategy=ddp comm_hook=bf16", "strategy=fsdp comm_hook=null"]
    assert [left.name for left in settings.left_out] == [
        "strategy=ddp comm_hook=null",
        "strategy=fsdp comm_hook=bf16",
    ]
    assert "comm_hook" in settings.left_out[1].reason


def test_what_this_machine_cannot_run_is_left_out():
    settings = planned("OMP_NUM_THREADS=1,2", cores=2)

    assert names(settings) == ["OMP_NUM_THREADS=1"]
    assert settings.left_out[0].reason == "needs 4 cores, 2 per rank, found 2"


def test_nccl_has_no_effect_on_the_cpu_tier():
    settings = planned("bucket_cap_mb=5", "NCCL_ALGO=Ring,Tree")

    assert names(settings) == ["bucket_cap_mb=5"]
    assert settings.left_out[0].name == "NCCL_ALGO"


def test_the_case_of_a_technique_keeps_it():
    suite = make_suite(techniques={"half": {"precision": "bf16"}})
    cases = cases_of(Variant(suite=suite))
    place = next(i for i, c in enumerate(cases) if c.technique == "half" and c.world_size == 2)

    (setting,) = planned("bucket_cap_mb=5", suite=suite, case=place).tried

    assert setting.case.precision == "bf16"
    assert setting.case.world_size == 2


def test_a_case_of_one_rank_has_no_buckets():
    with pytest.raises(ConfigError, match=r"no setting is left: .*the same work"):
        planned("bucket_cap_mb=5", case=0)


def test_a_collective_has_variables_only():
    suite = msgspec.convert(COLLECTIVES, CollectivesSuite)

    (setting,) = planned("OMP_NUM_THREADS=2", suite=suite, case=2).tried

    assert setting.case.workload == make_collectives()[2].workload
    with pytest.raises(ConfigError, match="neither an option of a suite that trains"):
        planned("bucket_cap_mb=5", suite=suite, case=2)


def test_a_script_has_variables_only_and_keeps_its_arguments():
    suite = msgspec.convert(SCRIPT_SUITE, ScriptSuite)

    settings = planned("OMP_NUM_THREADS=1,2", "RECIPE=a", suite=suite, case=0)

    assert names(settings) == ["OMP_NUM_THREADS=1 RECIPE=a", "OMP_NUM_THREADS=2 RECIPE=a"]
    assert {setting.case.script for setting in settings.tried} == {settings.base.script}
    with pytest.raises(ConfigError, match="nor a variable, whose name has upper-case letters"):
        planned("batch_size=5", suite=suite, case=0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to sweep"),
        (["bucket_cap_mb"], "write NAME=VALUE"),
        (["bucket_cap_mb=1,,2"], "write NAME=VALUE"),
        (["bucket_cap=1"], "did you mean 'bucket_cap_mb'?"),
        (["Nccl_Algo=Ring"], "the suite has no such option"),
        (["batch_sizes=8"], "the suite has no such option"),
        (["bucket_cap_mb=1", "bucket_cap_mb=2"], "it is given twice"),
        (["bucket_cap_mb=5,5"], "bucket_cap_mb=5: it is given twice"),
        (["bucket_cap_mb=-1"], "bucket_cap_mb=-1: ddp.bucket_cap_mb:"),
        (["precision=bf17"], "'bf17' is not one of .*did you mean 'bf16'"),
        (["NCCL_DEBUG=INFO,WARN"], "only changes what is logged"),
        (["OMP_NUM_THREADS=two"], "OMP_NUM_THREADS: 'two' is not a number of threads"),
        (
            ["bucket_cap_mb=" + ",".join(map(str, range(1, 601)))],
            "600 combinations are more than 512",
        ),
    ],
)
def test_a_mistake_is_refused_in_one_line(words, said):
    with pytest.raises(ConfigError, match=said) as refused:
        planned(*words)

    assert "\n" not in str(refused.value)
    assert "techniques" not in str(refused.value)


def test_the_example_file_has_the_knobs_of_document_000(tmp_path):
    settings = planned(file=REPOSITORY / "docs" / "sweeps" / "knobs.yaml")

    assert len(settings.tried) == 8
    assert [left.name for left in settings.left_out] == ["NCCL_ALGO"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bucket_cap_mb: 5", "write a list of values for each name"),
        ("OMP_NUM_THREADS: [yes]", "OMP_NUM_THREADS: True is not a text; quote it"),
        ("[", "not valid YAML"),
    ],
)
def test_a_file_is_refused_with_its_fault(tmp_path, text, said):
    path = tmp_path / "knobs.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said):
        planned(file=path)
