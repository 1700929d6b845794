"""Suite files → cases. Everything wrong with a file is said here, before anything runs."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.config.collectives import CollectivesSuite, check_collectives
from ddp_perf.config.constraints import check_constraints
from ddp_perf.config.error_text import describe_error
from ddp_perf.config.overrides import Overrides, apply_overrides
from ddp_perf.config.suite import AnySuite, Suite, cases_of
from ddp_perf.config.user_workload import check_target
from ddp_perf.core.case import Case
from ddp_perf.core.data import DATA_FOLDER, has_texts
from ddp_perf.core.models import MODELS
from ddp_perf.errors import ConfigError, did_you_mean

_MERGE_KEY = "tag:yaml.org,2002:merge"  # `<<`, which may stand several times
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # libyaml's loader where it was built
    """YAML that refuses a key given twice; plain YAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if key.tag != _MERGE_KEY]
        for key, count in collections.Counter(map(str, keys)).items():
            if count > 1:
                raise ConfigError(f"{key}: given {count} times; keep one")
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def load_cases(
    paths: Sequence[Path], overrides: Overrides, import_paths: Sequence[str] = ()
) -> list[Case]:
    """The cases of all suite files, with the overrides applied, each id once in its tier.

    ``import_paths``: where ranks look first for a user's workload.
    Raises ConfigError naming the file and the field.
    """
    suites = [(path, load_suite(path, import_paths)) for path in dict.fromkeys(paths)]
    _check_names(suites)
    variants = apply_overrides(suites, overrides)
    origin: dict[tuple[str, str], Path] = {}
    cases: list[Case] = []
    for path, variant in variants:
        _check_overridden(path, variant.suite)
        for case in cases_of(variant):
            _check_environment(path, case)
            key = (case.tier, case.id)  # what a baseline is found by
            if key in origin:
                raise ConfigError(_duplicate(case.id, origin[key], path))
            origin[key] = path
            cases.append(case)
    return cases


def _check_overridden(path: Path, suite: AnySuite) -> None:
    try:
        _check(suite)
    except ConfigError as error:
        raise ConfigError(f"{path}, with what the command line changes: {error}") from None


def _check(suite: AnySuite) -> None:
    """Raise ConfigError for what does not go together."""
    if isinstance(suite, CollectivesSuite):
        check_collectives(suite)
    else:
        check_constraints(suite)


def _check_environment(path: Path, case: Case) -> None:
    threads = case.env.get("OMP_NUM_THREADS", "1")
    if not threads.isdecimal() or int(threads) == 0:
        raise ConfigError(f"{path}: env.OMP_NUM_THREADS: {threads!r} is no number of threads")
    if DATA_FOLDER in case.env:
        raise ConfigError(f"{path}: env.{DATA_FOLDER}: set it in the environment of pytest itself")


def _check_names(suites: Sequence[tuple[Path, AnySuite]]) -> None:
    """Results are told apart by the suite's name."""
    origin: dict[str, Path] = {}
    for path, suite in suites:
        if suite.suite in origin:
            raise ConfigError(
                f"{path}: suite: {suite.suite!r} is also the name of {origin[suite.suite]};"
                " give each file a name of its own"
            )
        origin[suite.suite] = path


def find_suites(directory: Path) -> list[Path]:
    """The suite files of a directory, by name."""
    return sorted(path for path in directory.glob("*.y*ml") if path.suffix in {".yaml", ".yml"})


def load_suite(path: Path, import_paths: Sequence[str] = ()) -> AnySuite:
    """Read and validate one suite file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such suite file{_nearest_file(path)}")
    schema: type[AnySuite] = Suite
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
        if isinstance(data, dict) and "collectives" in data:
            schema = CollectivesSuite
        return _validated(msgspec.convert(data, schema), import_paths)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_one_line(error)}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {describe_error(error, schema, data)}") from None
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _validated(suite: AnySuite, import_paths: Sequence[str]) -> AnySuite:
    """What the types alone cannot say. Fills the model's defaults in."""
    if suite.warmup >= suite.steps:
        raise ConfigError(
            f"warmup: {suite.warmup} warm-ups leave nothing to measure of {suite.steps} steps;"
            " steps counts the warm-ups too"
        )
    for field in ("world_sizes", "batch_sizes", "comm_hooks", "collectives"):
        values = getattr(suite, field, ())
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ConfigError(f"{field}: {twice[0]} is listed twice, so two cases have one id")
    _check(suite)
    return suite if isinstance(suite, CollectivesSuite) else _with_workload(suite, import_paths)


def _with_workload(suite: Suite, import_paths: Sequence[str]) -> Suite:
    if suite.data.source == "files" and not has_texts(suite.workload):
        readers = ", ".join(filter(has_texts, MODELS))
        raise ConfigError(f"data.source: only {readers} read files; make it synthetic")
    if suite.workload in MODELS:
        return msgspec.structs.replace(suite, model=_validated_model(suite))
    if ":" not in suite.workload:
        known = sorted(MODELS)
        raise ConfigError(
            f"workload: {suite.workload!r} is none of the suite's own ({', '.join(known)});"
            f" write your own as module:function{did_you_mean(suite.workload, known)}"
        )
    check_target(suite.workload, suite.model, import_paths)
    return suite


def _validated_model(suite: Suite) -> dict[str, Any]:
    schema = MODELS[suite.workload]
    try:
        return msgspec.structs.asdict(msgspec.convert(suite.model, schema))
    except msgspec.ValidationError as error:
        raise ConfigError(describe_error(error, schema, suite.model, prefix="model")) from None


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    return did_you_mean(path.name, [other.name for other in find_suites(path.parent)])


def _duplicate(case_id: str, first: Path, second: Path) -> str:
    if first == second:
        return f"{second}: case id {case_id!r} arises twice; make the overrides differ"
    return f"{second}: case id {case_id!r} is also in {first}; give one of the two a `variant:`"


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
