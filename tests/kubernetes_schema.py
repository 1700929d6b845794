"""Check manifests against the published schemas of Kubernetes (tests/data)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_FILE = Path(__file__).parent / "data" / "kubernetes-v1.31.schema.json"


def problems(manifest: dict[str, Any]) -> list[str]:
    """Return where a manifest differs from the schema of its kind; nothing if it is valid."""
    schemas = _schemas()
    kind = manifest["kind"]
    validator = Draft202012Validator({"$defs": schemas["$defs"], **schemas["kinds"][kind]})
    return [
        f"{kind}{error.json_path.removeprefix('$')}: {error.message}"
        for error in validator.iter_errors(manifest)
    ]


@cache
def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return schemas
