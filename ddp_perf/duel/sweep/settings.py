"""The settings of a sweep: every combination of the knobs' values, as a case of its own."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.config.cases import Variant, cases_of, options_of, settings_of, with_technique
from ddp_perf.config.loading import check_environment
from ddp_perf.config.rules import check_options
from ddp_perf.config.suite import Suite
from ddp_perf.config.yaml_file import read_yaml
from ddp_perf.core.case import LOGGING_VARIABLES, Case, Scalar
from ddp_perf.errors import ConfigError, nearest_or_all

# Knobs: an option of the suite, or a variable of the ranks, with the values to try.


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


def parse_knobs(words: Sequence[str], file: Path | None, suite: Suite) -> list[Knob]:
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


def _knob(name: str, values: Sequence[Any], suite: Suite) -> Knob:
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


def _option(name: str, suite: Suite) -> tuple[str, ...]:
    """Return the path of an option of the suite by its name, with or without its table."""
    known = dict(_options(suite))
    if name in known:
        return known[name]
    hint = nearest_or_all(name, sorted(known)) or "; this suite has variables only, as in NCCL_ALGO"
    raise ConfigError(
        f"{name}: it is neither an option of a suite that trains a workload, nor a variable, whose"
        f" name has upper-case letters{hint}"
        if not known
        else f"{name}: the suite has no such option{hint}"
    )


def _options(suite: Suite) -> Iterable[tuple[str, tuple[str, ...]]]:
    tables = [name for name in options_of(suite) if name in _TABLES]
    fields = [
        (table, name) for table in tables for name in type(getattr(suite, table)).__struct_fields__
    ]
    yield from ((f"{table}.{name}", (table, name)) for table, name in fields)
    names = [name for _, name in fields]
    yield from ((name, (table, name)) for table, name in fields if names.count(name) == 1)
    for option in options_of(suite):
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


# The settings of a sweep: every combination of the knobs' values, as a case of its own.


_MOST = 512  # combinations: each is launched at least once
_NAME = "setting"  # of the technique that a setting is made with; no id has it


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value of each knob."""

    name: str  # "bucket_cap_mb=5 NCCL_ALGO=Ring"
    changes: dict[str, Any]  # of the suite, by field
    case: Case


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A combination that is not measured."""

    name: str
    reason: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The suite's own setting, and those that are compared with it."""

    base: Case
    tried: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...] = ()


def plan_settings(
    suite: Suite, base: Case, knobs: Sequence[Knob], obstacle: Callable[[Case], str | None]
) -> Settings:
    """Return the settings of a case of a suite.

    A combination that the suite refuses, that cannot run here (``obstacle`` returns why), or that
    does the same work as an earlier one, is left out. Raises ConfigError for a value that is none,
    and if nothing is left.
    """
    used = [knob for knob in knobs if _unused(knob, base) is None]
    left_out = [
        LeftOut(name=knob.name, reason=why)
        for knob in knobs
        if (why := _unused(knob, base)) is not None
    ]
    count = math.prod(len(knob.values) for knob in used)
    if count > _MOST:
        raise ConfigError(
            f"{count} combinations are more than {_MOST}; give fewer values, or sweep some knobs"
            " first"
        )
    own = settings_of(suite)[base.technique]
    for knob in used:
        for value in knob.values:
            _check_value(own, knob, value)
    tried: list[Setting] = []
    first = {_work(base): "the suite's own setting"}
    for values in itertools.product(*(knob.values for knob in used)) if used else ():
        setting = _setting(own, base, used, values)
        reason = setting.reason if isinstance(setting, LeftOut) else obstacle(setting.case)
        if isinstance(setting, Setting) and reason is None:
            same = first.setdefault(_work(setting.case), setting.name)
            reason = None if same == setting.name else f"it does the same work as {same}"
        if isinstance(setting, Setting) and reason is None:
            tried.append(setting)
        else:
            left_out.append(LeftOut(name=setting.name, reason=reason or ""))
    if not tried:
        raise ConfigError(f"no setting is left: {left_out[0].name}: {left_out[0].reason}")
    return Settings(base=base, tried=tuple(tried), left_out=tuple(left_out))


def _unused(knob: Knob, base: Case) -> str | None:
    if base.tier == "cpu" and knob.path[0] == "env" and knob.path[1].startswith("NCCL_"):
        return "ranks of tier cpu communicate by gloo, not by NCCL"
    return None


def _changed(own: Suite, changes: dict[str, Any]) -> Suite:
    """Return the suite with the changes, whose types are checked. Raises ConfigError."""
    try:
        return with_technique(own, _NAME, changes)
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix(f"techniques.{_NAME}.")) from None


def _check_value(own: Suite, knob: Knob, value: Any) -> None:
    """Raise ConfigError for a value that the option cannot have, whatever the others are."""
    try:
        changed = _changed(own, knob.changes(value))
    except ConfigError as error:
        raise ConfigError(f"{knob.name}={value_text(value)}: {error}") from None
    check_environment(changed.env)


def _setting(
    own: Suite, base: Case, knobs: Sequence[Knob], values: Sequence[Any]
) -> Setting | LeftOut:
    """Return the combination as a case, or why the suite refuses it."""
    pairs = list(zip(knobs, values, strict=True))
    name = " ".join(f"{knob.name}={value_text(value)}" for knob, value in pairs)
    changes: dict[str, Any] = {}
    for knob, value in pairs:
        for field, change in knob.changes(value).items():
            is_table = len(knob.path) > 1
            changes[field] = {**changes.get(field, {}), **change} if is_table else change
    try:
        changed = _changed(own, changes)
        check_options(changed)
    except ConfigError as error:
        return LeftOut(name=name, reason=str(error))
    place = [_work(case) for case in cases_of(Variant(suite=own))].index(_work(base))
    case = cases_of(Variant(suite=changed))[place]
    case = msgspec.structs.replace(case, id=f"{base.id}-{name.replace(' ', '-')}")
    return Setting(name=name, changes=changes, case=case)


def _work(case: Case) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(case.work().items()))
