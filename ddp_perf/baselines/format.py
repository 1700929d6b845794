"""JSON that is easy to review: keys are sorted, and a value without children is one line."""

from __future__ import annotations

import json
from typing import Any


def format_json(value: Any) -> str:
    """Return the text of a file, with a newline at its end."""
    return _format(value, "") + "\n"


def _format(value: Any, indent: str) -> str:
    children = list(value.values()) if isinstance(value, dict) else value
    plain = not any(isinstance(child, dict | list | tuple) for child in _items(children))
    if not isinstance(value, dict | list | tuple) or plain:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    deeper = indent + " "
    if isinstance(value, dict):
        lines = [
            f"{deeper}{json.dumps(key)}: {_format(value[key], deeper)}" for key in sorted(value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _format(item, deeper) for item in value) + f"\n{indent}]"


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
