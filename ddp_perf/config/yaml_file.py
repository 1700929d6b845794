"""YAML files, and error messages that name the field, the fault and the remedy."""

from __future__ import annotations

import collections
import json
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import yaml
from msgspec.structs import FieldInfo

from ddp_perf.core.subject import BY_OPTIMIZER
from ddp_perf.core.target import TARGET_SPECS
from ddp_perf.errors import ConfigError, did_you_mean, nearest_or_all

# YAML files: a duplicate key is refused, and 1e-3 is a number.


_MERGE_KEY = "tag:yaml.org,2002:merge"  # `<<`, which may occur several times
_DEEPEST, _MOST_VALUES = 50, 100_000
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # libyaml's loader if yaml has it
    """A YAML loader that refuses a duplicate key. Plain YAML silently takes the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if key.tag != _MERGE_KEY]
        for key, count in collections.Counter(map(str, keys)).items():
            if count > 1:
                raise ConfigError(f"{key}: it is given {count} times; keep one")
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes what this loader would read as a number."""


# YAML 1.1 reads 1e-3 as text, and only 1.0e-3 as a number. YAML 1.2 reads both as numbers.
for _either in (_UniqueKeyLoader, _Dumper):
    _either.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises ConfigError, without its path."""
    return _parsed(path, yaml.load)


def yaml_text(fields: Mapping[str, Any]) -> str:
    """Return a YAML file with these fields, in their order, each on a line of its own."""
    text: str = yaml.dump(
        dict(fields),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=math.inf,
    )
    return text


def _parsed(path: Path, parse: Callable[..., Any]) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        _check_size(text)
        return parse(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # no UTF-8, a number of 5,000 digits, or the 99th of a month
        raise ConfigError(f"cannot be read: {error}") from None


def _check_size(text: str) -> None:
    """Raise ConfigError for values that are nested without end, or that aliases multiply.

    libyaml's loader would end the process, and what reads the values would take all memory.
    """
    sizes, of_anchor, open_anchors = [0], dict[str | None, int](), list[str | None]()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            open_anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size = of_anchor[open_anchors.pop()] = sizes.pop()
            sizes[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in open_anchors:
                raise ConfigError(f"*{event.anchor} is within itself; write the value out")
            sizes[-1] += of_anchor.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        if len(sizes) > _DEEPEST or sizes[-1] > _MOST_VALUES:
            raise ConfigError(
                f"more than {_DEEPEST} levels or {_MOST_VALUES:,} values, with those that its"
                " aliases repeat: too large for a file of settings"
            )


def line_of_key(path: Path, keys: Sequence[str]) -> int | None:
    """Return the line on which a nested key of a YAML file is, or None if it is not there.

    ``keys`` are the key and those that it is in, outermost first. Raises ConfigError for a file
    that cannot be read, without its path.
    """
    node = _parsed(path, yaml.compose)
    line = None
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        pair = next(((name, value) for name, value in node.value if name.value == key), None)
        if pair is None:
            return None
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


# Error messages about suite files: the field, the fault and the remedy.


# What msgspec calls the types of a YAML file, in words.
TYPE_NAMES = {
    "object": "a table of fields",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_REMEDIES = {
    "workload": "write one of the suite's own, or module:function",
    "suite": "use letters, digits, dot, dash and underscore",
    "sizes": "write whole KiB, MiB or GiB, as in 64KiB",
    "script": "write a file, as in train.py, or a module, as in package.train",
    "steps_by": "write optimizer, or module:function",
}
_EXAMPLES = {f"targets.{name}": spec.example for name, spec in TARGET_SPECS.items()}


def describe_error(error: msgspec.ValidationError, schema: Any, data: Any, prefix: str = "") -> str:
    """Return msgspec's message as ``field: fault; remedy``.

    ``schema`` is the type that ``data`` could not be converted to.
    """
    message, _, where = str(error).partition(" - at `")
    field = where.rstrip("`").partition("$")[2].lstrip(".")
    if where.startswith("key` in"):
        return f"{field}: its names must be text; quote them"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if unknown:
        known = [other.encode_name for kind in _types_at(schema, field) for other in _fields(kind)]
        message = f"unknown field{nearest_or_all(unknown[1], known)}"
        field = f"{field}.{unknown[1]}" if field else unknown[1]
    elif missing:
        message = "required, but missing"
        field = f"{field}.{missing[1]}" if field else missing[1]
    elif message.startswith(("Invalid enum value", "Invalid value")):
        choices = _choices(schema, field)
        given = re.sub(r"^Invalid (?:enum )?value '(.*)'$", r"\1", message)
        message = (
            f"{given!r} is not one of {', '.join(choices)}{did_you_mean(given.lower(), choices)}"
        )
    elif "matching regex" in message:
        message = _REMEDIES.get(_without_index(field), message)
        if field == "steps_by":
            message += did_you_mean(data[field], [BY_OPTIMIZER])
    elif field == "args":
        message += '; write it as in [--batch-size, "{batch_size}"]'
    elif (example := _EXAMPLES.get(_without_index(field))) is not None:
        message = f'{message}; write it as in "{example}"'
    elif field.endswith("[...]"):
        field, message = _first_wrong_text(field.removesuffix("[...]"), data, message)
    elif field.startswith("args["):
        message = _quoted(data["args"][int(field[len("args[") : -1])])
    message = re.sub(
        r"`([a-z |]+)`",
        lambda types: " or ".join(TYPE_NAMES.get(name, name) for name in types[1].split(" | ")),
        message,
    )
    full = ".".join(part for part in (prefix, field) if part) or "the file"
    return f"{full}: {message[0].lower()}{message[1:]}"


def _first_wrong_text(field: str, data: Any, message: str) -> tuple[str, str]:
    """Find the value of a table of texts that is not a text, as in ``OMP_NUM_THREADS: 2``."""
    table = data.get(field) if isinstance(data, dict) else None
    for name, value in table.items() if isinstance(table, dict) else ():
        if "expected `str`" in message.lower() and not isinstance(value, str):
            return f"{field}.{name}", f"{value!r} is not a text; quote it: '{value}'"
    return field, message


def _quoted(value: Any) -> str:
    """Return what is wrong with an argument that YAML read as something else than a text."""
    text = json.dumps(value, default=str)
    if isinstance(value, dict) and list(value.values()) == [None]:  # YAML's way to read {name}
        text = f"{{{next(iter(value))}}}"
    return f"{text} is not a text; quote it: '{text}'"


def _without_index(path: str) -> str:
    """Return the path without indices: ``sizes`` for ``sizes[0]``."""
    return re.sub(r"\[.*?\]", "", path)


def _types_at(schema: Any, path: str) -> list[Any]:
    """Return the types at a dotted path: several if the field is a union; of a list its items'."""
    found = [schema]
    for part in filter(None, _without_index(path).split(".")):
        fields = [field for kind in found for field in _fields(kind) if field.encode_name == part]
        found = [member for field in fields for member in _members(field.type)]
    return found


def _fields(kind: Any) -> Sequence[FieldInfo]:
    return msgspec.structs.fields(kind) if hasattr(kind, "__struct_fields__") else ()


def _members(kind: Any) -> list[Any]:
    """Return the types within Annotated, lists and unions; a Literal as it is."""
    inner = () if get_origin(kind) is Literal else get_args(kind)
    return [member for each in inner for member in _members(each)] or [kind]


def _choices(schema: Any, path: str) -> list[str]:
    """Return the allowed values of a field: those of a Literal, or the tags of a union."""
    values = [choice for kind in _types_at(schema, path) for choice in get_args(kind)]
    parents = _types_at(schema, path.rpartition(".")[0])
    return [str(value) for value in dict.fromkeys(values)] or [
        kind.__struct_config__.tag for kind in parents if hasattr(kind, "__struct_config__")
    ]
