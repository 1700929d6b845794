"""Whether a user's ``module:function`` exists, without importing it: that would import torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ddp_perf.config.messages import did_you_mean
from ddp_perf.errors import ConfigError


def check_target(target: str) -> None:
    """Raise ConfigError where ``target`` names no module, or the module no such function.

    A module that is no Python source, or fills its names by ``*``, gets the benefit of the
    doubt: a rank will say.
    """
    module, function = target.split(":")
    spec = _find(module)
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
    except ValueError as error:  # a NUL byte, or bytes that are no UTF-8
        raise ConfigError(f"workload: {spec.origin} is not Python source: {error}") from None
    names = _names_bound(tree.body)
    if function not in names and "*" not in names:
        raise ConfigError(
            f"workload: {module!r} defines no {function!r}{did_you_mean(function, names)}"
        )


def _find(module: str) -> ModuleSpec | None:
    """``importlib.util.find_spec`` would import the parent packages; this only looks."""
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _names_bound(body: Iterable[ast.stmt]) -> set[str]:
    """Names that statements at the top level of a module may bind."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in statement.names}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        else:  # if, try, with, for: whatever their blocks bind
            blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(statement, "handlers", [])]
            for block in blocks:
                names |= _names_bound(block)
    return names
