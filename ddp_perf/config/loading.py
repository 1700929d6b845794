"""Suite files are read and checked, and become cases, before anything runs; overrides; schema."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.config.cases import OPTIONS, Variant, cases_of, check_core, with_core
from ddp_perf.config.rules import check_layout, check_options, check_script_fields, check_suite
from ddp_perf.config.suite import (
    NAME_PATTERN,
    SUBJECTS,
    CollectivesSuite,
    GlobalBatches,
    ScriptSuite,
    Suite,
    TrainingSuite,
    takes_batch_size,
)
from ddp_perf.config.targets import check_targets, with_targets
from ddp_perf.config.user_code import check_script_file, check_target, refuse_user_code
from ddp_perf.config.yaml_file import describe_error, read_yaml
from ddp_perf.core.case import LOGGING_VARIABLES, Case
from ddp_perf.core.environment import LauncherName
from ddp_perf.core.secret import is_secret_name, secret_in
from ddp_perf.core.subject import DATA_FOLDER, MODELS, has_texts
from ddp_perf.errors import ConfigError, did_you_mean, nearest_or_all

# Overrides of the command line. A changed case gets an id of its own.


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Values from the command line. None or empty: keep the value of the suite file."""

    world_sizes: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    steps: int | None = None
    launches: int | None = None
    env: tuple[tuple[str, str], ...] = ()  # several values of one name are swept
    launcher: LauncherName | None = None
    ranks_per_node: int | None = None  # of a case with more ranks than one node has
    emulated: tuple[int, ...] = ()  # only these cases of the suites that can have them
    network: str | None = None  # of these
    files: bool = False  # DDP_PERF_DATA is set: texts come from its folder
    no_user_code: str | None = None  # the option that refuses suites which name code


def _apply_overrides(
    suites: Sequence[tuple[Path, Suite]], overrides: Overrides
) -> Iterator[tuple[Path, Variant]]:
    """Yield a variant of each suite for each combination of swept values.

    Raises ConfigError for an override that applies to no suite, or leaves nothing to measure.
    """
    environments = _environments(overrides.env)
    if overrides.batch_sizes and suites and not any(takes_batch_size(suite) for _, suite in suites):
        scripts = any(isinstance(suite, ScriptSuite) for _, suite in suites)
        why = "no script takes {batch_size}" if scripts else "no selected suite trains"
        raise ConfigError(
            f"--ddp-batch-sizes: {why}; leave the option out, or name such a suite with"
            " --ddp-config"
        )
    for path, suite in suites:
        changed = _overridden(suite, overrides)
        if changed.warmup >= changed.steps:
            raise ConfigError(
                f"{path}: {changed.warmup} warm-ups of {changed.steps} steps leave nothing to"
                " measure; --ddp-steps counts the warm-ups too"
            )
        first = None
        for env in environments:
            variant = Variant(
                suite=changed,
                env=env,
                suffix=_suffix(suite, changed, env),
                first=first,
                ranks_per_node=overrides.ranks_per_node,
            )
            first = first or variant
            yield path, variant


def _overridden(suite: Suite, overrides: Overrides) -> Suite:
    """Return the suite with all overrides that it has a field for, but the environment."""
    given = {name: getattr(overrides, name) for name in ("steps", "launches", "launcher")}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if sizes := overrides.world_sizes:
        least = 2 if isinstance(suite, CollectivesSuite) else 1  # world size 1 is for training
        changes["world_sizes"] = [size for size in sizes if size >= least]
    if overrides.batch_sizes and takes_batch_size(suite):
        changes["batch_sizes"] = [*overrides.batch_sizes]
    if ranks := _emulated(suite, overrides):
        changes["emulated"] = ranks
        changes["network"] = overrides.network or suite.network
    if isinstance(suite, TrainingSuite):
        if "batch_sizes" in changes and isinstance(suite.batch_sizes, GlobalBatches):
            changes["batch_sizes"] = GlobalBatches(sizes=changes["batch_sizes"])
        if overrides.files and has_texts(suite.workload):
            changes["data"] = msgspec.structs.replace(suite.data, source="files")
    return msgspec.structs.replace(suite, **changes)


def _emulated(suite: Suite, overrides: Overrides) -> list[int]:
    """Return the numbers of ranks that the suite can be emulated with, of those that are asked for.

    A suite without collectives has none, and one whose global batches so many ranks cannot share.
    """
    if isinstance(suite, CollectivesSuite) or getattr(suite, "strategy", "") == "none":
        return []
    if isinstance(suite, TrainingSuite) and isinstance(suite.batch_sizes, GlobalBatches):
        parts = suite.gradient_accumulation
        sizes = overrides.batch_sizes or suite.sizes
        return [n for n in overrides.emulated if not any(size % (n * parts) for size in sizes)]
    return [*overrides.emulated]


def _environments(assignments: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return each combination of the swept values. Raises ConfigError."""
    values: dict[str, list[str]] = {}
    for name, value in assignments:
        if assignments.count((name, value)) > 1:
            raise ConfigError(f"--ddp-env {name}={value}: it is given twice; give each value once")
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


def _suffix(suite: Suite, changed: Suite, env: Mapping[str, str]) -> str:
    """Return what changes the work, and differs from the file, as a suffix of ids: ``-A=1``."""
    data: Any = getattr(changed, "data", None)
    parts = [f"-data={data.source}"] if data != getattr(suite, "data", None) else []
    parts += [
        f"-{name}={value}"
        for name, value in env.items()
        if name not in LOGGING_VARIABLES and suite.env.get(name) != value
    ]
    return "".join(parts)


# Suite files are read and checked here, and become cases, before anything runs.


def load_cases(
    paths: Sequence[Path], overrides: Overrides, import_paths: Sequence[str] = ()
) -> list[Case]:
    """Load the cases of all suite files, with the overrides applied.

    ``import_paths`` is where ranks first search for a user's workload. Raises ConfigError with
    the file and the field, also if a tier has two cases of one id.
    """
    suites = [(path, load_suite(path, import_paths)) for path in dict.fromkeys(paths)]
    if overrides.no_user_code is not None:
        for path, suite in suites:
            with _naming(path):
                refuse_user_code(suite, overrides.no_user_code)
    _check_names(suites)
    origin: dict[tuple[str, str], tuple[Path, Case]] = {}
    for path, variant in _apply_overrides(suites, overrides):
        with _naming(f"{path}, changed by the command line"):
            check_layout(variant.suite.world_sizes, variant.ranks_per_node)
            check_options(variant.suite)
        for case in cases_of(variant):
            if overrides.emulated and case.network is None:
                continue
            with _naming(path):
                check_environment(case.env)
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


@contextlib.contextmanager
def _naming(where: object) -> Iterator[None]:
    """Put where it is before the text of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


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
    secrets = (
        name
        for name, text in variables.items()
        if is_secret_name(name) or secret_in([text]) is not None
    )
    if secret := next(secrets, None):
        raise ConfigError(
            f"env.{secret}: it looks like a secret, and names of cases, baselines and commands have"
            f" what env sets; export {secret} where ranks start, since they inherit it"
        )


def _check_names(suites: Sequence[tuple[Path, Suite]]) -> None:
    """Check that the names of the suites differ: results are stored by them."""
    origin: dict[str, Path] = {}
    for path, suite in suites:
        if (other := origin.setdefault(suite.suite, path)) is not path:
            raise ConfigError(
                f"{path}: suite: {suite.suite!r} is also the name of {other};"
                " give each file a name of its own"
            )


def find_suites(directory: Path) -> list[Path]:
    """Return the suite files of a directory, sorted by name."""
    return sorted(path for path in directory.glob("*.y*ml") if path.suffix in {".yaml", ".yml"})


def suite_file(suite: str, paths: Sequence[Path]) -> Path | None:
    """Return the one of these loaded files that has a suite of this name, or None."""
    likely = sorted(paths, key=lambda path: path.stem != suite)
    return next((path for path in likely if read_yaml(path)["suite"] == suite), None)


def load_suite(path: Path, import_paths: Sequence[str] = ()) -> Suite:
    """Read and validate one suite file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such suite file{_nearest_file(path)}")
    with _naming(path):
        return checked_suite(read_yaml(path), import_paths)


def checked_suite(fields: Any, import_paths: Sequence[str] = ()) -> Suite:
    """Return the suite with these fields, checked as a file with them is. Raises ConfigError.

    ``import_paths`` is where ranks first search for a user's workload or script.
    """
    schema = suite_type(fields)
    if schema is ScriptSuite:
        check_script_fields(fields)
    try:
        return _validated(msgspec.convert(fields, schema), import_paths)
    except msgspec.ValidationError as error:
        raise ConfigError(describe_error(error, schema, fields)) from None


def suite_type(fields: Any) -> type[Suite]:
    """Return the type of the suite with these fields: by default it trains a workload.

    Raises ConfigError if it has fields of two types.
    """
    given = [name for name in SUBJECTS if isinstance(fields, dict) and name in fields]
    if len(given) > 1:
        raise ConfigError(f"{given[1]}: the suite has {given[0]}, too; remove one of the two")
    return SUBJECTS[given[0]] if given else TrainingSuite


def _validated(suite: Suite, import_paths: Sequence[str]) -> Suite:
    """Check what the types do not, and return the suite with the model's defaults."""
    check_suite(suite)
    cases = cases_of(Variant(suite=suite))
    check_targets(suite.targets, cases)
    check_core(suite.core, cases)
    if isinstance(suite, TrainingSuite):
        return _with_workload(suite, import_paths)
    if isinstance(suite, ScriptSuite):
        check_script_file(suite, import_paths)
    return suite


def _with_workload(suite: TrainingSuite, import_paths: Sequence[str]) -> TrainingSuite:
    if (schema := MODELS.get(suite.workload)) is not None:
        try:
            model = msgspec.structs.asdict(msgspec.convert(suite.model, schema))
        except msgspec.ValidationError as error:
            raise ConfigError(describe_error(error, schema, suite.model, prefix="model")) from None
        return msgspec.structs.replace(suite, model=model)
    if ":" not in suite.workload:
        known = sorted(MODELS)
        raise ConfigError(
            f"workload: {suite.workload!r} is not one of the built-in ones ({', '.join(known)});"
            f" give your own as module:function{did_you_mean(suite.workload, known)}"
        )
    check_target(suite.workload, suite.model, import_paths)
    return suite


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
        [TrainingSuite, CollectivesSuite, ScriptSuite], ref_template="#/$defs/{name}"
    )
    models, model_components = msgspec.json.schema_components(
        MODELS.values(), ref_template="#/$defs/{name}"
    )
    definitions = {**components, **model_components}
    properties = definitions["TrainingSuite"]["properties"]
    properties["techniques"] |= _techniques(properties)
    definitions["TrainingSuite"]["allOf"] = [
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
