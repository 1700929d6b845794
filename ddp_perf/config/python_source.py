"""Modules of a user, found and parsed without an import, since that would import torch."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ddp_perf.errors import ConfigError, did_you_mean

UNKNOWABLE = {"*", "__getattr__"}  # a module that binds one may have any name


def find_module(module: str, import_paths: Sequence[str]) -> ModuleSpec | None:
    """Find a module. ``importlib.util.find_spec`` would import the parents of a submodule."""
    top, *rest = module.split(".")
    try:
        spec = PathFinder.find_spec(top, list(import_paths)) or importlib.util.find_spec(top)
    except ValueError:  # `__main__`, or an empty name
        return None
    for name in rest:
        if spec is None:
            return None
        # Only the last name: the parents of a dotted name would be searched in sys.modules.
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or []))
    return spec


def nearest_module(module: str, import_paths: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` with the nearest module beside one that is missing, or ""."""
    parent, _, _ = module.rpartition(".")
    spec = find_module(parent, import_paths) if parent else None
    folders = import_paths if not parent else (spec and spec.submodule_search_locations) or ()
    names = [name for _, name, _ in pkgutil.iter_modules(list(folders))]
    return did_you_mean(module, [f"{parent}.{name}" if parent else name for name in names])


def parse_source(field: str, source: Path) -> ast.Module:
    """Parse a Python file. Raises ConfigError with the field and the line if it cannot be parsed.

    Python's warnings about it are ignored: the ranks show them.
    """
    try:
        with tokenize.open(source) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read())
    except SyntaxError as error:
        if error.lineno is None:  # of its encoding
            raise ConfigError(f"{field}: {source} is not Python source: {error.msg}") from None
        raise ConfigError(f"{field}: {source}:{error.lineno}: {error.msg}") from None
    except (ValueError, OSError) as error:  # a NUL byte, bytes that are not text, no permission
        raise ConfigError(f"{field}: {source} is not Python source: {error}") from None


def bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each name that a module may bind at its top level, with the statement that does."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, statement) for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    yield node.id, statement
        else:  # if, try, with, for: all that their blocks bind
            blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(statement, "handlers", [])]
            for block in blocks:
                yield from bindings(block)
