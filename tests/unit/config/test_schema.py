"""The JSON Schema completes every field in an editor, and refuses what the loader refuses."""

from __future__ import annotations

import re
from typing import get_args

import msgspec
import pytest

from ddp_perf.config.schema import suite_schema
from ddp_perf.config.suite import Suite
from ddp_perf.core.case import Tolerances
from ddp_perf.core.data import DataOptions
from ddp_perf.core.models import MODELS
from ddp_perf.core.strategy import AnyCommHook, DdpOptions, FsdpOptions

HOOKS = get_args(AnyCommHook)
TYPES = {
    "DdpOptions": DdpOptions,
    "FsdpOptions": FsdpOptions,
    "DataOptions": DataOptions,
    "Tolerances": Tolerances,
    **{model.__name__: model for model in MODELS.values()},
}


def definition(name):
    schema = suite_schema()
    return schema if name == "Suite" else schema["$defs"][name]


@pytest.mark.parametrize("name", ["Suite", *TYPES])
def test_every_field_is_documented_and_no_other_is_allowed(name):
    schema = definition(name)

    fields = {field.name for field in msgspec.structs.fields(TYPES.get(name, Suite))}
    assert schema["properties"].keys() == fields
    assert schema["additionalProperties"] is False
    assert [
        key for key, field in schema["properties"].items() if not field.get("description")
    ] == []


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_every_hook_and_its_arguments_are_documented(hook):
    schema = definition(hook.__name__)
    fields = {field.name for field in msgspec.structs.fields(hook)}

    assert schema["description"]
    assert schema["properties"].keys() == fields | {"kind"}
    assert schema["additionalProperties"] is False
    assert all(schema["properties"][name]["description"] for name in fields)


def test_what_has_no_default_is_required():
    required = {"suite", "tier", "workload", "world_sizes", "batch_sizes"}

    assert set(suite_schema()["required"]) == required


def test_every_reference_leads_to_a_definition():
    schema = suite_schema()

    references = set(re.findall(r"#/\$defs/(\w+)", str(schema)))
    assert references
    assert references <= schema["$defs"].keys()


def test_each_own_workload_brings_its_model_arguments():
    rules = {
        rule["if"]["properties"]["workload"]["const"]: rule["then"]["properties"]["model"]["$ref"]
        for rule in suite_schema()["allOf"]
    }

    assert rules["mlp"] == "#/$defs/MlpModel"
    assert rules.keys() == MODELS.keys()
