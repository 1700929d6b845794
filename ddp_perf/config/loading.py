"""Suite files → cases. Everything wrong with a file is said here, before anything runs."""

from __future__ import annotations

import ast
import collections
import difflib
import importlib.util
import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.config.overrides import Overrides, apply_overrides
from ddp_perf.config.suite import Suite, cases_of
from ddp_perf.core.case import Case
from ddp_perf.core.models import MODELS
from ddp_perf.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # libyaml's loader where it was built
    """YAML that refuses a key given twice; plain YAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, count in collections.Counter(map(str, keys)).items():
            if count > 1:
                raise ConfigError(f"{key}: given {count} times; keep one")
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def load_cases(paths: Sequence[Path], overrides: Overrides) -> list[Case]:
    """The cases of all suite files, with the overrides applied, each id once in its tier.

    Raises ConfigError naming the file and the field.
    """
    variants = apply_overrides([(path, load_suite(path)) for path in paths], overrides)
    origin: dict[tuple[str, str], Path] = {}
    cases: list[Case] = []
    for path, variant in variants:
        for case in cases_of(variant):
            key = (case.tier, case.id)  # what a baseline is found by
            if key in origin:
                raise ConfigError(_duplicate(case.id, origin[key], path))
            origin[key] = path
            cases.append(case)
    return cases


def find_suites(directory: Path) -> list[Path]:
    """The suite files of a directory, by name."""
    return sorted(path for path in directory.glob("*.y*ml") if path.suffix in {".yaml", ".yml"})


def load_suite(path: Path) -> Suite:
    """Read and validate one suite file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such suite file{_nearest_file(path)}")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
        suite = msgspec.convert(data, Suite)
        return _validated(suite)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_one_line(error)}") from None
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, Suite)}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _validated(suite: Suite) -> Suite:
    """What the types alone cannot say. Fills the model's defaults in."""
    if suite.warmup >= suite.steps:
        raise ConfigError(
            f"warmup: {suite.warmup} warm-ups leave nothing to measure of {suite.steps} steps;"
            " steps counts the warm-ups too"
        )
    for field in ("world_sizes", "batch_sizes"):
        values = getattr(suite, field)
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ConfigError(f"{field}: {twice[0]} is listed twice, so two cases have one id")
    if suite.workload in MODELS:
        return msgspec.structs.replace(suite, model=_validated_model(suite))
    if ":" not in suite.workload:
        known = sorted(MODELS)
        raise ConfigError(
            f"workload: {suite.workload!r} is none of the suite's own ({', '.join(known)});"
            f" write your own as module:function{_did_you_mean(suite.workload, known)}"
        )
    _check_target(suite.workload)
    return suite


def _validated_model(suite: Suite) -> dict[str, Any]:
    schema = MODELS[suite.workload]
    try:
        return msgspec.structs.asdict(msgspec.convert(suite.model, schema))
    except msgspec.ValidationError as error:
        raise ConfigError(explain(error, schema, prefix="model")) from None


def _check_target(target: str) -> None:
    """Look the user's function up without importing it: importing would import torch."""
    module, function = target.split(":")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"workload: {module!r} cannot be imported: {error}") from None
    if spec is None:
        raise ConfigError(
            f"workload: no module named {module!r}; it must be importable from where pytest runs"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise ConfigError(f"workload: {spec.origin}:{error.lineno}: {error.msg}") from None
    names = _top_level_names(tree.body)
    if function not in names and "*" not in names:
        raise ConfigError(
            f"workload: {module!r} defines no {function!r}{_did_you_mean(function, names)}"
        )


def _top_level_names(body: Iterable[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        elif isinstance(statement, ast.If | ast.Try):
            names |= _top_level_names([*statement.body, *statement.orelse])
    return names


def explain(error: msgspec.ValidationError, schema: Any, prefix: str = "") -> str:
    """msgspec's message, turned to ``field: what is wrong; remedy``."""
    text = str(error)
    message, _, where = text.partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    if unknown:
        name = unknown[1]
        known = _field_names(schema, field)
        message = f"unknown field{_did_you_mean(name, known)}"
        field = f"{field}.{name}" if field else name
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing:
        message, field = "required, but missing", missing[1]
    full = ".".join(part for part in (prefix, field) if part) or "the file"
    return f"{full}: {message[0].lower()}{message[1:]}"


def _field_names(schema: Any, path: str) -> list[str]:
    for part in filter(None, re.sub(r"\[.*?\]", "", path).split(".")):
        fields = {field.name: field.type for field in msgspec.structs.fields(schema)}
        schema = getattr(fields.get(part), "__origin__", fields.get(part))
    return [field.name for field in msgspec.structs.fields(schema)] if schema else []


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    return _did_you_mean(path.name, [other.name for other in find_suites(path.parent)])


def _duplicate(case_id: str, first: Path, second: Path) -> str:
    if first == second:
        return f"{second}: case id {case_id!r} arises twice; make the overrides differ"
    return f"{second}: case id {case_id!r} is also in {first}; change one of the two"


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
