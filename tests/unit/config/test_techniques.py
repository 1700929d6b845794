"""Techniques: named changes of a suite's options, and what their cases are compared with."""

from __future__ import annotations

from typing import Any

import pytest

from ddp_perf.config.loading import Overrides, load_cases, suite_schema
from ddp_perf.core.strategy import DdpOptions, FsdpOptions, PowerSgdHook
from tests.builders import make_cases
from tests.unit.config.refusals import refusal

POWERSGD = {"kind": "powersgd", "rank": 2, "wire": "fp16"}
TECHNIQUES: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16"},
    "accumulate4": {"gradient_accumulation": 4},
    "fsdp-offload": {"strategy": "fsdp", "fsdp": {"cpu_offload": True}},
    "small-buckets": {"ddp": {"bucket_cap_mb": 5}},
    "powersgd-fp16": {"comm_hook": POWERSGD},
}


def by_name(world_size, **changes):
    """The cases of one number of ranks, by technique; None: the base."""
    cases = make_cases(**{"techniques": TECHNIQUES, **changes})
    return {case.technique: case for case in cases if case.world_size == world_size}


def test_each_technique_is_a_case_beside_the_base():
    assert [case.id for case in make_cases(techniques=TECHNIQUES, variant="mine")] == [
        "mlp-none-fp32-ws1-b64-mine",
        "mlp-none-bf16-ws1-b64-mine-bf16",
        "mlp-none-fp32-ws1-b64-mine-accumulate4",
        "mlp-ddp-fp32-ws2-b64-mine",
        "mlp-ddp-bf16-ws2-b64-mine-bf16",
        "mlp-ddp-fp32-ws2-b64-mine-accumulate4",
        "mlp-fsdp-fp32-ws2-b64-mine-fsdp-offload",
        "mlp-ddp-fp32-ws2-b64-mine-small-buckets",
        "mlp-ddp-fp32-ws2-b64-mine-powersgd-fp16",
    ]


def test_the_base_is_the_case_without_techniques():
    plain = make_cases()

    assert [by_name(n)[None] for n in (1, 2)] == plain
    assert [case.base for case in plain] == [None, None]


def test_a_technique_changes_the_work_by_its_fields_alone():
    found = by_name(2, ddp={"static_graph": True, "bucket_cap_mb": 50})
    base = found[None]

    assert {case.base for name, case in found.items() if name} == {base.id}
    assert found["bf16"].work() == {**base.work(), "precision": "bf16"}
    assert found["accumulate4"].work() == {**base.work(), "gradient_accumulation": 4}
    assert found["small-buckets"].training.ddp == DdpOptions(static_graph=True, bucket_cap_mb=5)
    assert found["powersgd-fp16"].training.comm_hook == PowerSgdHook(rank=2, wire="fp16")
    assert found["powersgd-fp16"].training.ddp == base.training.ddp


def test_another_strategy_has_none_of_the_options_of_the_suites_own():
    changed = by_name(2, ddp={"bucket_cap_mb": 50}, comm_hooks=[{"kind": "fp16"}])["fsdp-offload"]

    options = changed.training
    assert (changed.strategy, options.fsdp) == ("fsdp", FsdpOptions(cpu_offload=True))
    assert (options.ddp, options.comm_hook) == (None, None)


def test_efficiency_is_measured_against_one_rank_with_the_technique():
    """What does not change the work of one rank shares the base's."""
    one, two = by_name(1), by_name(2)

    assert set(one) == {None, "bf16", "accumulate4"}
    assert two["bf16"].single == one["bf16"].id
    assert two["accumulate4"].single == one["accumulate4"].id
    for name in ("fsdp-offload", "small-buckets", "powersgd-fp16"):
        assert two[name].single == one[None].id


def test_against_the_wrapped_rank_each_technique_has_its_own():
    found = by_name(2, denominator="ddp-1", techniques={"small": {"ddp": {"bucket_cap_mb": 5}}})

    assert found["small"].single == "mlp-ddp-fp32-ws1-b64-small"


def test_without_a_one_rank_case_a_technique_has_no_efficiency():
    assert by_name(2, world_sizes=[2])["bf16"].single is None


def test_a_hook_is_compared_with_the_first_one():
    plain, fp16, bf16 = make_cases(
        world_sizes=[2],
        comm_hooks=[None, {"kind": "fp16"}],
        techniques={"bf16": {"precision": "bf16"}},
    )

    assert (plain.base, plain.technique) == (None, None)
    assert (fp16.base, fp16.technique) == (plain.id, "fp16")
    assert (bf16.base, bf16.training.comm_hook) == (plain.id, None)


def test_a_technique_keeps_the_overrides_of_the_command_line(suite_file):
    path = suite_file(techniques=TECHNIQUES, world_sizes=[2])

    cases = load_cases([path], Overrides(batch_sizes=(32,), env=(("A", "1"),)))
    found = {case.technique: case for case in cases}

    assert {(case.batch_size, case.env["A"]) for case in cases} == {(32, "1")}
    assert found["bf16"].id == "mlp-ddp-bf16-ws2-b32-bf16-A=1"
    assert found["fsdp-offload"].id == "mlp-fsdp-fp32-ws2-b32-fsdp-offload-A=1"


def test_swept_values_are_compared_with_the_first_one(suite_file):
    env = (("A", "1"), ("A", "2"))

    first, second = load_cases([suite_file(world_sizes=[2])], Overrides(env=env))

    assert (first.base, first.technique) == (None, None)
    assert (second.base, second.technique) == (first.id, "A=2")


def test_a_technique_is_compared_with_the_base_of_the_same_swept_value(suite_file):
    path = suite_file(world_sizes=[2], techniques={"bf16": {"precision": "bf16"}})

    cases = load_cases([path], Overrides(env=(("A", "1"), ("A", "2"))))

    assert [(case.id, case.base, case.technique) for case in cases] == [
        ("mlp-ddp-fp32-ws2-b64-A=1", None, None),
        ("mlp-ddp-bf16-ws2-b64-bf16-A=1", "mlp-ddp-fp32-ws2-b64-A=1", "bf16"),
        ("mlp-ddp-fp32-ws2-b64-A=2", "mlp-ddp-fp32-ws2-b64-A=1", "A=2"),
        ("mlp-ddp-bf16-ws2-b64-bf16-A=2", "mlp-ddp-fp32-ws2-b64-A=2", "bf16"),
    ]


@pytest.mark.parametrize(
    ("techniques", "said"),
    [
        pytest.param(
            {"half": {"precison": "fp16"}},
            "techniques.half.precison: unknown field; did you mean 'precision'?",
            id="misspelt field",
        ),
        pytest.param(
            {"half": {"precision": "fp17"}},
            "techniques.half.precision: 'fp17' is not one of fp32",
            id="misspelt value",
        ),
        pytest.param(
            {"small": {"ddp": {"bucket": 3}}},
            "techniques.small.ddp.bucket: unknown field",
            id="field of a table",
        ),
        pytest.param(
            {"low": {"comm_hook": {"kind": "powersgd", "rnk": 2}}},
            "techniques.low.comm_hook.rnk: unknown field",
            id="argument of a hook",
        ),
        pytest.param(
            {"fast": {"precision": "tf32"}},
            "techniques.fast: precision: tf32 is a format of GPUs",
            id="constraint",
        ),
        pytest.param(
            {"off": {"fsdp": {"cpu_offload": True}}},
            "techniques.off: fsdp: these are options of strategy fsdp",
            id="options of another strategy",
        ),
        pytest.param(
            {"files": {"data": {"source": "files"}}},
            "techniques.files: data.source: only distilbert",
            id="no files",
        ),
        pytest.param(
            {"same": {"precision": "fp32"}},
            "techniques.same: the suite has these options already",
            id="no change",
        ),
        pytest.param(
            {"a b": {"precision": "bf16"}},
            "techniques: 'a b' becomes a part of ids; use letters",
            id="name",
        ),
        pytest.param(
            {"fp16": {"precision": "fp16"}},
            "techniques.fp16: one of comm_hooks has this name",
            id="name of a hook",
        ),
        pytest.param({"half": 16}, "techniques.half: expected a table", id="no table"),
    ],
)
def test_a_technique_that_cannot_be_is_refused_by_its_name(suite_file, techniques, said):
    path = suite_file(techniques=techniques, comm_hooks=[None, {"kind": "fp16"}])

    assert refusal(path).startswith(said)


def test_an_editor_completes_the_fields_of_a_technique():
    techniques = suite_schema()["$defs"]["TrainingSuite"]["properties"]["techniques"]
    technique = techniques["additionalProperties"]

    assert set(technique["properties"]) >= {
        field for name in TECHNIQUES for field in TECHNIQUES[name]
    }
    assert technique["properties"]["ddp"]["$ref"].endswith("/DdpOptions")
    assert technique["additionalProperties"] is False
