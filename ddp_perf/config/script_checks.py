"""Checks of a suite file of a script: what excludes each other, and what must be there.

The script and its modules are not imported. They are found and parsed instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_perf.config.python_source import (
    UNKNOWABLE,
    bindings,
    find_module,
    nearest_module,
    parse_source,
)
from ddp_perf.config.scripts import ScriptSuite, filled_env, script_run, takes_batch_size
from ddp_perf.config.suite import Suite
from ddp_perf.core.script import BY_OPTIMIZER, ScriptRun
from ddp_perf.errors import ConfigError, did_you_mean

_OF_WORKLOADS = set(Suite.__struct_fields__) - set(ScriptSuite.__struct_fields__)
_REASONS = {
    "techniques": "a script has no options that a suite could change; write a second suite file"
    " with other args and a variant",
    "price_per_gpu_hour": "only the suite of a workload has costs; remove it",
    "epoch_samples": "only the suite of a workload has epochs; remove it",
}


def check_script_fields(fields: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first field that only the suite of a workload has."""
    for name in fields:
        if name in _OF_WORKLOADS:
            reason = _REASONS.get(name, "the script decides it; remove it, or set it by args")
            raise ConfigError(f"{name}: {reason}")
    tolerances = fields.get("tolerances")
    if isinstance(tolerances, Mapping) and "loss" in tolerances:
        raise ConfigError(
            "tolerances.loss: the losses of a script are not gated, as its seeds are its own;"
            " remove it"
        )


def check_script(suite: ScriptSuite) -> None:
    """Raise ConfigError for the first value that is not possible, with field and remedy."""
    for refusal in _refusals(suite):
        raise ConfigError(refusal)
    for world_size, batch_size in itertools.product(suite.world_sizes, suite.batch_sizes):
        script_run(suite, world_size, batch_size)
        filled_env(suite.env, world_size, batch_size)


def _refusals(suite: ScriptSuite) -> Iterator[str]:
    if suite.tier != "gpu" and suite.tolerances.energy is not None:
        yield "tolerances.energy: only GPUs count their energy; remove it from tier cpu"
    if len(suite.batch_sizes) > 1 and not takes_batch_size(suite):
        yield (
            "batch_sizes: neither args nor env has {batch_size}, so all cases would be the same;"
            " add it, or keep one size"
        )


def check_script_file(suite: ScriptSuite, import_paths: Sequence[str]) -> None:
    """Raise ConfigError if the script, or the function that ends a step, is not there.

    ``import_paths`` is where ranks search first; without it, they search this directory.
    """
    run = script_run(suite, suite.world_sizes[0], suite.batch_sizes[0])
    roots = import_paths or [str(Path.cwd())]
    file = _module_file(run.script, roots) if run.is_module else _file(run.script, roots)
    if file is not None:
        parse_source("script", file)
    if run.steps_by != BY_OPTIMIZER:
        _check_steps_by(run, file, roots)


def _file(script: str, roots: Sequence[str]) -> Path:
    paths = [Path(root) / script for root in roots]
    for path in paths:
        if path.is_file():
            return path
    if any(path.is_dir() for path in paths):
        raise ConfigError(f"script: {script} is a folder; name a file of it")
    near = [path.name for folder in {path.parent for path in paths} for path in folder.glob("*.py")]
    raise ConfigError(
        f"script: there is no file {script} in {roots[0]}"
        f"{did_you_mean(Path(script).name, near) or '; give its path from there on'}"
    )


def _module_file(module: str, roots: Sequence[str]) -> Path | None:
    """Return the file that ``python -m module`` runs; None if it is not Python source."""
    if any((Path(root) / module).is_file() for root in roots):
        raise ConfigError(f"script: {module} is not a file of Python: its name must end with .py")
    spec = find_module(module, roots)
    if spec is not None and spec.submodule_search_locations is not None:  # a package
        spec = find_module(f"{module}.__main__", roots)
        if spec is None:
            raise ConfigError(
                f"script: the package {module} has no __main__.py; name one of its modules"
            )
    if spec is None:
        remedy = "; name a module that can be imported, or give a file, as in train.py"
        raise ConfigError(
            f"script: there is no module {module} in {roots[0]}"
            f"{nearest_module(module, roots) or remedy}"
        )
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _check_steps_by(run: ScriptRun, script: Path | None, roots: Sequence[str]) -> None:
    """Check ``module:function``, whose function may be a method: only its first name is sought."""
    module, _, function = run.steps_by.partition(":")
    folders = [*roots] if script is None else [str(script.parent), *roots]
    spec = find_module(module, folders)
    source = None if spec is None or spec.origin is None else Path(spec.origin)
    is_script = source is not None and script is not None and source.resolve() == script.resolve()
    if module == "__main__" or is_script:
        raise ConfigError(
            f"steps_by: {run.steps_by} is of the script itself, which is not there before it runs;"
            " name a function of a module that it imports"
        )
    if spec is None:
        remedy = "; name a module that the script imports"
        raise ConfigError(
            f"steps_by: there is no module {module} in {folders[0]}"
            f"{nearest_module(module, folders) or remedy}"
        )
    if source is None or source.suffix != ".py":
        return
    name = function.partition(".")[0]
    names = {bound for bound, _ in bindings(parse_source("steps_by", source).body)}
    if name not in names and not names & UNKNOWABLE:
        raise ConfigError(f"steps_by: {module!r} defines no {name!r}{did_you_mean(name, names)}")
