"""Overrides of the command line. A changed case gets an id of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.config.cases import Variant
from ddp_perf.config.collectives import CollectivesSuite
from ddp_perf.config.scripts import ScriptSuite, takes_batch_size
from ddp_perf.config.suite import AnySuite, GlobalBatches, Suite
from ddp_perf.core.case import LOGGING_VARIABLES, Scalar
from ddp_perf.core.cluster import LauncherName
from ddp_perf.core.data import has_texts
from ddp_perf.core.subject import MODELS
from ddp_perf.errors import ConfigError

_LEAVE = "; leave the option out, or name such a suite with --ddp-config"


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Values from the command line. None or empty: keep the value of the suite file."""

    world_sizes: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    hidden_dim: int | None = None
    num_layers: int | None = None
    bucket_cap_mb: tuple[float, ...] = ()  # several values are swept
    steps: int | None = None
    warmup: int | None = None
    launches: int | None = None
    env: tuple[tuple[str, str], ...] = ()  # several values of one name are swept
    launcher: LauncherName | None = None
    ranks_per_node: int | None = None  # of a case with more ranks than one node has
    files: bool = False  # DDP_PERF_DATA is set: texts come from its folder

    @property
    def model(self) -> dict[str, int]:
        given = {"hidden_dim": self.hidden_dim, "num_layers": self.num_layers}
        return {name: value for name, value in given.items() if value is not None}


def apply_overrides(
    suites: Sequence[tuple[Path, AnySuite]], overrides: Overrides
) -> list[tuple[Path, Variant]]:
    """Return a variant of each suite for each combination of swept values.

    Raises ConfigError for an override that applies to no suite, or leaves nothing to measure.
    """
    _check_once(overrides.env)
    training = [suite for _, suite in suites if isinstance(suite, Suite)]
    scripts = [suite for _, suite in suites if isinstance(suite, ScriptSuite)]
    if overrides.bucket_cap_mb and not any(_has_ddp(s, overrides) for s in training):
        if scripts and not training:
            raise ConfigError(
                "--ddp-bucket-cap-mb: a script builds DDP itself; leave the option out, and set the"
                " size by the script's own args"
            )
        raise ConfigError(f"--ddp-bucket-cap-mb: no selected suite has a case with DDP{_LEAVE}")
    if overrides.batch_sizes and suites and not training:
        if not scripts:
            raise ConfigError(f"--ddp-batch-sizes: no selected suite trains{_LEAVE}")
        if not any(map(takes_batch_size, scripts)):
            raise ConfigError(f"--ddp-batch-sizes: no script takes {{batch_size}}{_LEAVE}")
    for name in overrides.model:
        if suites and not any(_has_argument(suite, name) for suite in training):
            option = f"--ddp-{name.replace('_', '-')}"
            raise ConfigError(f"{option}: no selected suite has a model with {name}{_LEAVE}")
    return [
        (path, variant) for path, suite in suites for variant in _variants(path, suite, overrides)
    ]


def _variants(path: Path, suite: AnySuite, overrides: Overrides) -> list[Variant]:
    if isinstance(suite, Suite):
        changed = [_override_training(suite, overrides, cap) for cap in _bucket_caps(overrides)]
    elif isinstance(suite, ScriptSuite):
        changed = [_override_script(suite, overrides)]
    else:
        changed = [_override_collectives(suite, overrides)]
    warmup, steps = changed[0].suite.warmup, changed[0].suite.steps
    if warmup >= steps:
        raise ConfigError(
            f"{path}: {warmup} warm-ups of {steps} steps leave nothing to measure;"
            " --ddp-steps counts the warm-ups too (see --ddp-warmup)"
        )
    variants = [
        msgspec.structs.replace(
            one,
            env=env,
            suffix=one.suffix + _suffix(_working(env), suite.env),
            swept={**_working(env), **one.swept},
            ranks_per_node=overrides.ranks_per_node,
        )
        for one in changed
        for env in _environments(overrides.env)
    ]
    first = variants[0]
    return [first, *(msgspec.structs.replace(other, first=first) for other in variants[1:])]


def _bucket_caps(overrides: Overrides) -> tuple[float | None, ...]:
    return overrides.bucket_cap_mb or (None,)


def _check_once(env: Sequence[tuple[str, str]]) -> None:
    for name, value in env:
        if env.count((name, value)) > 1:
            raise ConfigError(f"--ddp-env {name}={value}: it is given twice; give each value once")


def _override_training(suite: Suite, overrides: Overrides, bucket_cap_mb: float | None) -> Variant:
    """Apply all overrides but the environment, with one of the swept sizes of buckets."""
    model: dict[str, Scalar] = {
        name: value for name, value in overrides.model.items() if _has_argument(suite, name)
    }
    changes: dict[str, Any] = {"model": {**suite.model, **model}}
    ddp_suffix = ""
    bucket: dict[str, Scalar] = {}
    if bucket_cap_mb is not None and suite.strategy == "ddp":
        bucket = {"bucket_cap_mb": bucket_cap_mb}
        ddp_suffix = _suffix(bucket, msgspec.structs.asdict(suite.ddp))
        changes["ddp"] = msgspec.structs.replace(suite.ddp, bucket_cap_mb=bucket_cap_mb)
    data_suffix = ""
    if overrides.files and has_texts(suite.workload):
        changes["data"] = msgspec.structs.replace(suite.data, source="files")
        data_suffix = _suffix({"data": "files"}, {"data": suite.data.source})
    if overrides.world_sizes:
        changes["world_sizes"] = list(overrides.world_sizes)
    if overrides.batch_sizes:
        changes["batch_sizes"] = _batches_like(suite, overrides.batch_sizes)
    changes |= _launching(overrides)
    return Variant(
        suite=msgspec.structs.replace(suite, **changes),
        suffix=_suffix(model, suite.model) + data_suffix,
        ddp_suffix=ddp_suffix,
        swept=bucket,
    )


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
    names = ("steps", "warmup", "launches", "launcher")
    given = {name: getattr(overrides, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _has_ddp(suite: Suite, overrides: Overrides) -> bool:
    sizes = overrides.world_sizes or suite.world_sizes
    return suite.strategy == "ddp" and (suite.denominator == "ddp-1" or max(sizes) > 1)


def _has_argument(suite: Suite, name: str) -> bool:
    if suite.workload in MODELS:
        return name in MODELS[suite.workload].__struct_fields__
    return name in suite.model


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
    """Return the differences from the file as a suffix of the id: ``-hidden_dim=512``."""
    return "".join(
        f"-{name}={value}" for name, value in chosen.items() if default.get(name) != value
    )
