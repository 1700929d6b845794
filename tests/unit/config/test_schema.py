"""The JSON Schema completes every field in an editor, and refuses what the loader refuses."""

from __future__ import annotations

import re
from typing import get_args

import jsonschema
import msgspec
import pytest

from ddp_perf.config.loading import suite_schema
from ddp_perf.config.suite import (
    CollectivesSuite,
    CollectiveTolerances,
    ScriptSuite,
    TrainingSuite,
)
from ddp_perf.core.case import StepTolerances, Tolerances
from ddp_perf.core.strategy import AnyCommHook, DdpOptions, FsdpOptions
from ddp_perf.core.subject import MODELS, DataOptions
from tests.builders import COLLECTIVES, SCRIPTS, SUITE

HOOKS = get_args(AnyCommHook)
TYPES = {
    "TrainingSuite": TrainingSuite,
    "CollectivesSuite": CollectivesSuite,
    "CollectiveTolerances": CollectiveTolerances,
    "ScriptSuite": ScriptSuite,
    "StepTolerances": StepTolerances,
    "DdpOptions": DdpOptions,
    "FsdpOptions": FsdpOptions,
    "DataOptions": DataOptions,
    "Tolerances": Tolerances,
    **{model.__name__: model for model in MODELS.values()},
}


def definition(name):
    return suite_schema()["$defs"][name]


@pytest.mark.parametrize("name", TYPES)
def test_every_field_is_documented_and_no_other_is_allowed(name):
    schema = definition(name)

    fields = {field.name for field in msgspec.structs.fields(TYPES[name])}
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


def test_fields_without_a_default_are_required():
    common = {"suite", "tier", "world_sizes"}

    assert set(definition("TrainingSuite")["required"]) == common | {"workload", "batch_sizes"}
    assert set(definition("CollectivesSuite")["required"]) == common | {"collectives", "sizes"}
    assert set(definition("ScriptSuite")["required"]) == common | {"script", "batch_sizes"}


@pytest.mark.parametrize("fields", [SUITE, COLLECTIVES, SCRIPTS], ids=lambda one: one["suite"])
def test_a_suite_of_each_type_is_valid(fields):
    jsonschema.validate(fields, suite_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"script": "train.sh/"},
        {"args": ["--lr", 0.1]},
        {"batch_sizes": [0]},
        {"samples_per_step": 0},
        {"samples_per_step": "1" * 201},
        {"steps_by": "step"},
        {"scratch": "yes"},
        {"workload": "mlp"},
        {"techniques": {}},
        {"tolerances": {"loss": None}},
    ],
    ids=str,
)
def test_an_editor_refuses_a_wrong_field_of_a_script(change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SCRIPTS, **change}, suite_schema())


def test_a_file_with_collectives_is_validated_as_such():
    schema = suite_schema()

    assert schema["if"] == {"required": ["collectives"]}
    assert schema["then"] == {"$ref": "#/$defs/CollectivesSuite"}


def test_a_file_with_a_script_is_validated_as_such_and_any_other_one_trains_a_workload():
    assert suite_schema()["else"] == {
        "if": {"required": ["script"]},
        "then": {"$ref": "#/$defs/ScriptSuite"},
        "else": {"$ref": "#/$defs/TrainingSuite"},
    }


def test_every_reference_has_a_definition():
    schema = suite_schema()

    references = set(re.findall(r"#/\$defs/(\w+)", str(schema)))
    assert references
    assert references <= schema["$defs"].keys()


def test_each_built_in_workload_has_its_model_arguments():
    rules = {
        rule["if"]["properties"]["workload"]["const"]: rule["then"]["properties"]["model"]["$ref"]
        for rule in definition("TrainingSuite")["allOf"]
    }

    assert rules["mlp"] == "#/$defs/MlpModel"
    assert rules.keys() == MODELS.keys()
