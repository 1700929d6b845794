"""The JSON Schema of suite files, made from the types that validate them, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_perf.config.collectives import CollectivesSuite
from ddp_perf.config.common import NAME_PATTERN
from ddp_perf.config.scripts import ScriptSuite
from ddp_perf.config.suite import Suite
from ddp_perf.config.techniques import OPTIONS
from ddp_perf.core.subject import MODELS


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of suite files, with each workload's model arguments.

    A file with the field ``collectives`` measures these, one with ``script`` runs it; any other
    file trains a workload.
    """
    (training, collectives, script), components = msgspec.json.schema_components(
        [Suite, CollectivesSuite, ScriptSuite], ref_template="#/$defs/{name}"
    )
    models, model_components = msgspec.json.schema_components(
        MODELS.values(), ref_template="#/$defs/{name}"
    )
    definitions = {**components, **model_components}
    properties = definitions["Suite"]["properties"]
    properties["techniques"] |= _techniques(properties)
    definitions["Suite"]["allOf"] = [
        {
            "if": {"properties": {"workload": {"const": name}}},
            "then": {"properties": {"model": model}},
        }
        for name, model in zip(MODELS, models, strict=True)
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ddp-perf suite",
        "if": {"required": ["collectives"]},
        "then": collectives,
        "else": {"if": {"required": ["script"]}, "then": script, "else": training},
        "$defs": definitions,
    }


def _techniques(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the techniques, from that of the suite's fields."""
    properties = {**properties, "comm_hook": properties["comm_hooks"]["items"]}
    technique = {
        "type": "object",
        "properties": {name: properties[name] for name in OPTIONS},
        "additionalProperties": False,
    }
    return {"propertyNames": {"pattern": NAME_PATTERN}, "additionalProperties": technique}
