"""Suite files are read and checked, and become cases, before anything runs; overrides; schema."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.config.cases import (
    OPTIONS,
    Variant,
    cases_of,
    check_core,
    hook_name,
    with_core,
    with_technique,
)
from ddp_perf.config.rules import (
    check_constraints,
    check_script,
    check_script_fields,
    check_script_file,
    check_target,
)
from ddp_perf.config.suite import (
    NAME_PATTERN,
    AnySuite,
    CollectivesSuite,
    GlobalBatches,
    ScriptSuite,
    Suite,
    check_collectives,
    check_layout,
    takes_batch_size,
)
from ddp_perf.config.targets import check_targets, with_targets
from ddp_perf.config.yaml_file import describe_error, read_yaml
from ddp_perf.core.case import LOGGING_VARIABLES, Case
from ddp_perf.core.environment import LauncherName, is_secret_name
from ddp_perf.core.subject import DATA_FOLDER, MODELS, has_texts
from ddp_perf.errors import ConfigError, did_you_mean, nearest_or_all

# Overrides of the command line. A changed case gets an id of its own.


_LEAVE = "; leave the option out, or name such a suite with --ddp-config"


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Values from the command line. None or empty: keep the value of the suite file."""

    world_sizes: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    steps: int | None = None
    launches: int | None = None
    env: tuple[tuple[str, str], ...] = ()  # several values of one name are swept
    launcher: LauncherName | None = None
    ranks_per_node: int | None = None  # of a case with more ranks than one node has
    files: bool = False  # DDP_PERF_DATA is set: texts come from its folder


def apply_overrides(
    suites: Sequence[tuple[Path, AnySuite]], overrides: Overrides
) -> list[tuple[Path, Variant]]:
    """Return a variant of each suite for each combination of swept values.

    Raises ConfigError for an override that applies to no suite, or leaves nothing to measure.
    """
    _check_once(overrides.env)
    training = [suite for _, suite in suites if isinstance(suite, Suite)]
    scripts = [suite for _, suite in suites if isinstance(suite, ScriptSuite)]
    if overrides.batch_sizes and suites and not training:
        if not scripts:
            raise ConfigError(f"--ddp-batch-sizes: no selected suite trains{_LEAVE}")
        if not any(map(takes_batch_size, scripts)):
            raise ConfigError(f"--ddp-batch-sizes: no script takes {{batch_size}}{_LEAVE}")
    return [
        (path, variant) for path, suite in suites for variant in _variants(path, suite, overrides)
    ]


def _variants(path: Path, suite: AnySuite, overrides: Overrides) -> list[Variant]:
    if isinstance(suite, Suite):
        changed = _override_training(suite, overrides)
    elif isinstance(suite, ScriptSuite):
        changed = _override_script(suite, overrides)
    else:
        changed = _override_collectives(suite, overrides)
    warmup, steps = changed.suite.warmup, changed.suite.steps
    if warmup >= steps:
        raise ConfigError(
            f"{path}: {warmup} warm-ups of {steps} steps leave nothing to measure;"
            " --ddp-steps counts the warm-ups too"
        )
    variants = [
        msgspec.structs.replace(
            changed,
            env=env,
            suffix=changed.suffix + _suffix(_working(env), suite.env),
            swept=_working(env),
            ranks_per_node=overrides.ranks_per_node,
        )
        for env in _environments(overrides.env)
    ]
    first = variants[0]
    return [first, *(msgspec.structs.replace(other, first=first) for other in variants[1:])]


def _check_once(env: Sequence[tuple[str, str]]) -> None:
    for name, value in env:
        if env.count((name, value)) > 1:
            raise ConfigError(f"--ddp-env {name}={value}: it is given twice; give each value once")


def _override_training(suite: Suite, overrides: Overrides) -> Variant:
    """Apply all overrides but the environment."""
    changes: dict[str, Any] = _launching(overrides)
    suffix = ""
    if overrides.files and has_texts(suite.workload):
        changes["data"] = msgspec.structs.replace(suite.data, source="files")
        suffix = _suffix({"data": "files"}, {"data": suite.data.source})
    if overrides.world_sizes:
        changes["world_sizes"] = list(overrides.world_sizes)
    if overrides.batch_sizes:
        changes["batch_sizes"] = _batches_like(suite, overrides.batch_sizes)
    return Variant(suite=msgspec.structs.replace(suite, **changes), suffix=suffix)


def _batches_like(suite: Suite, sizes: Sequence[int]) -> list[int] | GlobalBatches:
    """Return these sizes as the suite means its own: of each rank, or of all ranks."""
    if isinstance(suite.batch_sizes, GlobalBatches):
        return GlobalBatches(sizes=list(sizes))
    return list(sizes)


def _override_script(suite: ScriptSuite, overrides: Overrides) -> Variant:
    """Apply the overrides, without a batch size that the script would not get."""
    changes: dict[str, Any] = _launching(overrides)
    if overrides.world_sizes:
        changes["world_sizes"] = list(overrides.world_sizes)
    if overrides.batch_sizes and takes_batch_size(suite):
        changes["batch_sizes"] = list(overrides.batch_sizes)
    return Variant(suite=msgspec.structs.replace(suite, **changes))


def _override_collectives(suite: CollectivesSuite, overrides: Overrides) -> Variant:
    """Apply the overrides, without world size 1, which is for suites that train."""
    changes: dict[str, Any] = _launching(overrides)
    if overrides.world_sizes:
        changes["world_sizes"] = [size for size in overrides.world_sizes if size > 1]
    return Variant(suite=msgspec.structs.replace(suite, **changes))


def _launching(overrides: Overrides) -> dict[str, int | str]:
    names = ("steps", "launches", "launcher")
    given = {name: getattr(overrides, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _environments(assignments: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    values: dict[str, list[str]] = {}
    for name, value in assignments:
        values.setdefault(name, []).append(value)
    for name in LOGGING_VARIABLES & values.keys():
        if len(values[name]) > 1:
            raise ConfigError(
                f"--ddp-env {name}: it only changes what is logged, so its values are not compared;"
                " give one of them"
            )
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def _working(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that change the work: the others leave the id of a case as it is."""
    return {name: value for name, value in env.items() if name not in LOGGING_VARIABLES}


def _suffix(chosen: dict[str, Any], default: dict[str, Any]) -> str:
    """Return the differences from the file as a suffix of the id: ``-A=1``."""
    return "".join(
        f"-{name}={value}" for name, value in chosen.items() if default.get(name) != value
    )


# Suite files are read and checked here, and become cases, before anything runs.


def load_cases(
    paths: Sequence[Path], overrides: Overrides, import_paths: Sequence[str] = ()
) -> list[Case]:
    """Load the cases of all suite files, with the overrides applied.

    ``import_paths`` is where ranks first search for a user's workload. Raises ConfigError with
    the file and the field, also if a tier has two cases of one id.
    """
    suites = [(path, load_suite(path, import_paths)) for path in dict.fromkeys(paths)]
    _check_names(suites)
    variants = apply_overrides(suites, overrides)
    origin: dict[tuple[str, str], tuple[Path, Case]] = {}
    for path, variant in variants:
        _check_overridden(path, variant)
        for case in cases_of(variant):
            _check_environment(path, case)
            key = (case.tier, case.id)  # baselines are stored by these
            if key in origin:
                raise ConfigError(_duplicate(case.id, origin[key][0], path))
            targets, file = variant.suite.targets, _from_here(path)
            origin[key] = path, with_core(with_targets(case, targets, file), variant)
    return [case for _, case in origin.values()]


def _from_here(path: Path) -> str:
    """Return the path from the current directory on, if it is in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _check_overridden(path: Path, variant: Variant) -> None:
    try:
        check_layout(variant.suite.world_sizes, variant.ranks_per_node)
        check_options(variant.suite)
    except ConfigError as error:
        raise ConfigError(f"{path}, changed by the command line: {error}") from None


def check_options(suite: AnySuite) -> None:
    """Raise ConfigError for options that cannot be combined."""
    if isinstance(suite, CollectivesSuite):
        check_collectives(suite)
        return
    if isinstance(suite, ScriptSuite):
        check_script(suite)
        return
    _check_training(suite)
    for name, changes in suite.techniques.items():
        changed = with_technique(suite, name, changes)
        try:
            _check_training(changed)
        except ConfigError as error:
            raise ConfigError(f"techniques.{name}: {error}") from None


def _check_training(suite: Suite) -> None:
    """Raise ConfigError for options of one suite, without techniques, that cannot be combined."""
    check_constraints(suite)
    if suite.data.source == "files" and not has_texts(suite.workload):
        readers = ", ".join(filter(has_texts, MODELS))
        raise ConfigError(f"data.source: only {readers} read files; set it to synthetic")


def _check_environment(path: Path, case: Case) -> None:
    try:
        check_environment(case.env)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def check_environment(variables: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable of the ranks that cannot be as it is."""
    threads = variables.get("OMP_NUM_THREADS", "1")
    if not threads.isdecimal() or int(threads) == 0:
        raise ConfigError(
            f"env.OMP_NUM_THREADS: {threads!r} is not a number of threads; write a whole number"
            " above 0, in quotes"
        )
    if DATA_FOLDER in variables:
        raise ConfigError(f"env.{DATA_FOLDER}: set it in the environment of pytest itself")
    if secret := next(filter(is_secret_name, variables), None):
        raise ConfigError(
            f"env.{secret}: it looks like a secret, and names of cases, baselines and commands have"
            f" what env sets; export {secret} where ranks start, since they inherit it"
        )


def _check_names(suites: Sequence[tuple[Path, AnySuite]]) -> None:
    """Check that the names of the suites differ: results are stored by them."""
    origin: dict[str, Path] = {}
    for path, suite in suites:
        if suite.suite in origin:
            raise ConfigError(
                f"{path}: suite: {suite.suite!r} is also the name of {origin[suite.suite]};"
                " give each file a name of its own"
            )
        origin[suite.suite] = path


def find_suites(directory: Path) -> list[Path]:
    """Return the suite files of a directory, sorted by name."""
    return sorted(path for path in directory.glob("*.y*ml") if path.suffix in {".yaml", ".yml"})


def suite_file(suite: str, paths: Sequence[Path]) -> Path | None:
    """Return the one of these loaded files that has a suite of this name, or None."""
    likely = sorted(paths, key=lambda path: path.stem != suite)
    return next((path for path in likely if read_yaml(path)["suite"] == suite), None)


def load_suite(path: Path, import_paths: Sequence[str] = ()) -> AnySuite:
    """Read and validate one suite file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such suite file{_nearest_file(path)}")
    try:
        return _checked(read_yaml(path), import_paths)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def checked_suite(fields: dict[str, Any]) -> Suite:
    """Return the suite with these fields, checked as a file with them is. Raises ConfigError."""
    suite = _checked(fields, ())
    assert isinstance(suite, Suite)  # as it has a workload
    return suite


def checked_script_suite(fields: dict[str, Any], import_paths: Sequence[str]) -> ScriptSuite:
    """Return the suite of a script with these fields, checked as a file with them is.

    ``import_paths`` is where the script is sought. Raises ConfigError.
    """
    suite = _checked(fields, import_paths)
    assert isinstance(suite, ScriptSuite)  # as it has a script
    return suite


def _checked(fields: Any, import_paths: Sequence[str]) -> AnySuite:
    """Return the suite with these fields, read from a file or not. Raises ConfigError."""
    schema = suite_type(fields)
    if schema is ScriptSuite:
        check_script_fields(fields)
    try:
        return _validated(msgspec.convert(fields, schema), import_paths)
    except msgspec.ValidationError as error:
        raise ConfigError(describe_error(error, schema, fields)) from None


def suite_type(fields: Any) -> type[AnySuite]:
    """Return the type of the suite with these fields: by default it trains a workload.

    Raises ConfigError if it has fields of two types.
    """
    types: dict[str, type[AnySuite]] = {
        "workload": Suite,
        "collectives": CollectivesSuite,
        "script": ScriptSuite,
    }
    given = [name for name in types if isinstance(fields, dict) and name in fields]
    if len(given) > 1:
        raise ConfigError(f"{given[1]}: the suite has {given[0]}, too; remove one of the two")
    return types[given[0]] if given else Suite


def _validated(suite: AnySuite, import_paths: Sequence[str]) -> AnySuite:
    """Check what the types do not, and return the suite with the model's defaults."""
    if suite.warmup >= suite.steps:
        raise ConfigError(
            f"warmup: {suite.warmup} warm-ups leave nothing to measure of {suite.steps} steps;"
            " steps counts the warm-ups too"
        )
    for field in ("world_sizes", "batch_sizes", "comm_hooks", "collectives"):
        values = getattr(suite, field, ())
        if isinstance(values, GlobalBatches):
            field, values = f"{field}.global", values.sizes
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise ConfigError(
                f"{field}: {twice[0]} is listed twice, so two cases have one id; remove one"
            )
    check_options(suite)
    _check_changes(suite)
    cases = cases_of(Variant(suite=suite))
    check_targets(suite.targets, cases)
    check_core(suite.core, cases)
    if isinstance(suite, Suite):
        return _with_workload(suite, import_paths)
    if isinstance(suite, ScriptSuite):
        check_script_file(suite, import_paths)
    return suite


def _check_changes(suite: AnySuite) -> None:
    """Check that each technique changes the suite. On the command line a change may be undone."""
    if isinstance(suite, Suite):
        base = with_technique(suite, "base", {})
        for name, changes in suite.techniques.items():
            if with_technique(suite, name, changes) == base:
                raise ConfigError(
                    f"techniques.{name}: the suite has these options already; remove it"
                )
            if name in map(hook_name, suite.comm_hooks):
                raise ConfigError(
                    f"techniques.{name}: one of comm_hooks has this name; choose another one"
                )


def _with_workload(suite: Suite, import_paths: Sequence[str]) -> Suite:
    if suite.workload in MODELS:
        return msgspec.structs.replace(suite, model=_validated_model(suite))
    if ":" not in suite.workload:
        known = sorted(MODELS)
        raise ConfigError(
            f"workload: {suite.workload!r} is not one of the built-in ones ({', '.join(known)});"
            f" give your own as module:function{did_you_mean(suite.workload, known)}"
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
    others = [other.name for other in find_suites(path.parent)]
    return nearest_or_all(path.name, others) or f": {path.parent} has none"


def _duplicate(case_id: str, first: Path, second: Path) -> str:
    if first == second:
        return (
            f"{second}: two cases have the id {case_id!r}; make the overrides differ, or the names"
            " of hooks and techniques"
        )
    return f"{second}: case id {case_id!r} is also in {first}; give one of the two a `variant:`"


# The JSON Schema of suite files, made from the types that validate them, for editors.


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
