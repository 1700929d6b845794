"""Knobs: an option of the suite, or a variable of the ranks, with the values to try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.config.suite import AnySuite, Suite
from ddp_perf.config.techniques import OPTIONS
from ddp_perf.config.yaml_file import read_yaml
from ddp_perf.core.case import LOGGING_VARIABLES
from ddp_perf.errors import ConfigError, nearest_or_all

_TABLES = ("ddp", "fsdp", "data")  # options of a suite with fields of their own
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """An option or a variable, with the values to try."""

    name: str  # as the user wrote it
    path: tuple[str, ...]  # in the suite file: ("ddp", "bucket_cap_mb"), ("env", "NCCL_ALGO")
    values: tuple[Any, ...]

    def changes(self, value: Any) -> dict[str, Any]:
        """Return what one value changes in the suite, as a technique does."""
        if len(self.path) == 1:
            return {self.path[0]: value}
        return {self.path[0]: {self.path[1]: value}}


def parse_knobs(words: Sequence[str], file: Path | None, suite: AnySuite) -> list[Knob]:
    """Return the knobs of the command line, then those of a file. Raises ConfigError."""
    given = [_split(word) for word in words]
    if file is not None:
        given += _of_file(file)
    for name, _ in given:
        if [other for other, _ in given].count(name) > 1:
            raise ConfigError(f"{name}: it is given twice; give it once, with all its values")
    if not given:
        raise ConfigError("nothing to sweep; name an option and its values: bucket_cap_mb=5,25,50")
    return [_knob(name, values, suite) for name, values in given]


def _split(word: str) -> tuple[str, list[Any]]:
    name, sign, values = word.partition("=")
    if not sign or not name or not all(values.split(",")):
        raise ConfigError(f"{word!r}: write NAME=VALUE,VALUE, as in bucket_cap_mb=5,25,50")
    if _VARIABLE.fullmatch(name):
        return name, list(values.split(","))
    return name, [_scalar(word, value) for value in values.split(",")]


def _scalar(word: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{word!r}: {text!r} is not a value as in a suite file") from None


def _of_file(path: Path) -> list[tuple[str, list[Any]]]:
    try:
        content = read_yaml(path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise ConfigError(f"{path}: write a list of values for each name: bucket_cap_mb: [5, 25]")
    return [(str(name), values) for name, values in content.items()]


def _knob(name: str, values: Sequence[Any], suite: AnySuite) -> Knob:
    if _VARIABLE.fullmatch(name):
        path: tuple[str, ...] = ("env", name)
        if name in LOGGING_VARIABLES:
            raise ConfigError(f"{name}: it only changes what is logged, so there is no best value")
        values = [_variable_value(name, value) for value in values]
    else:
        path = _option(name, suite)
        values = [_hook(value) for value in values] if path == ("comm_hook",) else values
    if not values:
        raise ConfigError(f"{name}: it has no value; give one, or leave it out")
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"{name}={value_text(value)}: it is given twice; give it once")
    return Knob(name=name, path=path, values=tuple(values))


def _variable_value(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(f"{name}: {value!r} is not a text; quote it: '{value}'")
    return str(value)


def _hook(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _option(name: str, suite: AnySuite) -> tuple[str, ...]:
    """Return the path of an option of the suite by its name, with or without its table."""
    known = dict(_options(suite))
    if name in known:
        return known[name]
    hint = nearest_or_all(name, sorted(known)) or "; this suite has variables only, as in NCCL_ALGO"
    raise ConfigError(
        f"{name}: it is neither an option of a suite that trains a workload, nor a variable, whose"
        f" name has upper-case letters{hint}"
        if not isinstance(suite, Suite)
        else f"{name}: the suite has no such option{hint}"
    )


def _options(suite: AnySuite) -> Iterable[tuple[str, tuple[str, ...]]]:
    if not isinstance(suite, Suite):
        return
    names: list[str] = []
    for table in _TABLES:
        for field in type(getattr(suite, table)).__struct_fields__:
            names.append(field)
            yield f"{table}.{field}", (table, field)
    for table in _TABLES:
        for field in type(getattr(suite, table)).__struct_fields__:
            if names.count(field) == 1:
                yield field, (table, field)
    for option in OPTIONS:
        if option not in (*_TABLES, "env"):
            yield option, (option,)


def value_text(value: Any) -> str:
    """Write a value as in a suite file, in one word: ``25``, ``false``, ``powersgd,rank=2``."""
    if isinstance(value, dict):
        rest = [f"{name}={value_text(v)}" for name, v in value.items() if name != "kind"]
        return ",".join([str(value.get("kind", "")), *rest])
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower()
