"""What is wrong with a suite file, in words: the field, the fault, the remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import msgspec

_REMEDIES = {
    "workload": "write one of the suite's own, or module:function",
    "suite": "use letters, digits, dot, dash and underscore",
}


def explain(error: msgspec.ValidationError, schema: Any, data: Any, prefix: str = "") -> str:
    """msgspec's message, turned to ``field: what is wrong; remedy``.

    ``schema`` is the type that ``data`` was to be converted to.
    """
    message, _, where = str(error).partition(" - at `")
    field = where.rstrip("`").partition("$")[2].lstrip(".")
    if where.startswith("key` in"):
        return f"{field}: its names must be text; quote them"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if unknown:
        message = f"unknown field{did_you_mean(unknown[1], _field_names(schema, field))}"
        field = f"{field}.{unknown[1]}" if field else unknown[1]
    elif missing:
        message, field = "required, but missing", missing[1]
    elif message.startswith("Invalid enum value"):
        choices = [str(choice) for choice in _choices(schema, field)]
        given = re.sub(r"^Invalid enum value '(.*)'$", r"\1", message)
        message = f"{given!r} is none of {', '.join(choices)}{did_you_mean(given.lower(), choices)}"
    elif "matching regex" in message:
        message = _REMEDIES.get(field, message)
    elif field.endswith("[...]"):
        field, message = _first_wrong_text(field.removesuffix("[...]"), data, message)
    full = ".".join(part for part in (prefix, field) if part) or "the file"
    return f"{full}: {message[0].lower()}{message[1:]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _first_wrong_text(field: str, data: Any, message: str) -> tuple[str, str]:
    """The entry of a table of texts that is none: ``OMP_NUM_THREADS: 2`` wants quotes."""
    table = data.get(field) if isinstance(data, dict) else None
    for name, value in table.items() if isinstance(table, dict) else ():
        if "expected `str`" in message.lower() and not isinstance(value, str):
            return f"{field}.{name}", f"{value!r} is no text; quote it: '{value}'"
    return field, message


def _type_at(schema: Any, path: str) -> Any:
    """The type of the field at a dotted path, without Annotated and Optional around it."""
    for part in filter(None, re.sub(r"\[.*?\]", "", path).split(".")):
        fields = {field.name: field.type for field in msgspec.structs.fields(schema)}
        schema = getattr(fields.get(part), "__origin__", fields.get(part))
    return schema


def _field_names(schema: Any, path: str) -> list[str]:
    return [field.name for field in msgspec.structs.fields(_type_at(schema, path))]


def _choices(schema: Any, path: str) -> tuple[Any, ...]:
    parent, _, name = path.rpartition(".")
    fields = {f.name: f.type for f in msgspec.structs.fields(_type_at(schema, parent))}
    kind = fields[name]
    while get_origin(kind) is not Literal and get_args(kind):
        kind = get_args(kind)[0]
    return get_args(kind)
