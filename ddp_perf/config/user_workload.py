"""Checks that a user's ``module:function`` exists and accepts its arguments.

The module is not imported, since that would import torch. Its source is parsed instead, and what
the source leaves open is accepted.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ddp_perf.config.error_text import TYPE_NAMES
from ddp_perf.core.case import Scalar
from ddp_perf.errors import ConfigError, did_you_mean

_UNKNOWABLE = {"*", "__getattr__"}  # a module that binds one may have any name
# The values that a simple annotation admits.
_ADMITTED: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
}


def check_target(target: str, arguments: Mapping[str, Scalar], import_paths: Sequence[str]) -> None:
    """Check the target, and raise ConfigError if the module or the function does not exist.

    ConfigError is also raised if the function cannot be called with a context and ``arguments``, or
    if the annotation of one of them excludes its value.
    ``import_paths`` is where ranks search first.
    """
    module, function = target.split(":")
    spec = _find(module, import_paths)
    if spec is None:
        raise ConfigError(
            f"workload: no module named {module!r}; it must be importable from pytest's root"
            " directory, or from the pythonpath of its settings"
        )
    if spec.loader is None or spec.origin is None:
        raise ConfigError(f"workload: {module!r} is a folder of modules; name one of them")
    if not spec.origin.endswith(".py"):
        return
    bound = list(_bindings(_parse(Path(spec.origin)).body))
    names = {name for name, _ in bound}
    if function not in names and not names & _UNKNOWABLE:
        raise ConfigError(
            f"workload: {module!r} defines no {function!r}{did_you_mean(function, names)}"
        )
    statements = [statement for name, statement in bound if name == function]
    if len(statements) == 1:
        _check_callable(target, statements[0], arguments)


def _find(module: str, import_paths: Sequence[str]) -> ModuleSpec | None:
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


def _parse(source: Path) -> ast.Module:
    try:
        return ast.parse(source.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise ConfigError(f"workload: {source}:{error.lineno}: {error.msg}") from None
    except (ValueError, OSError) as error:  # a NUL byte, bytes that are not UTF-8, no permission
        raise ConfigError(f"workload: {source} is not Python source: {error}") from None


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
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
                yield from _bindings(block)


def _check_callable(target: str, statement: ast.stmt, arguments: Mapping[str, Scalar]) -> None:
    """Check the only statement that binds the target. A decorator may change what it binds."""
    if isinstance(statement, ast.AsyncFunctionDef):
        raise ConfigError(f"workload: {target} is a coroutine; make it a plain function")
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set):
        raise ConfigError(f"workload: {target} is not a function")
    if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
        _check_signature(target, statement.args, arguments)


def _check_signature(
    target: str, signature: ast.arguments, arguments: Mapping[str, Scalar]
) -> None:
    """Check that the ranks can call ``target(context, **arguments)``."""
    positional = [*signature.posonlyargs, *signature.args]
    if not positional and signature.vararg is None:
        raise ConfigError(f"workload: {target} must take a BuildContext as its first argument")
    by_name = [*signature.args, *signature.kwonlyargs]
    if positional and positional[0] in by_name:
        by_name.remove(positional[0])
    names = {argument.arg for argument in by_name}
    unknown = sorted(arguments.keys() - names)
    if unknown and signature.kwarg is None:
        raise ConfigError(
            f"model.{unknown[0]}: {target} takes no such argument{did_you_mean(unknown[0], names)}"
        )
    needed = positional[1 : len(positional) - len(signature.defaults)]
    needed += [
        argument
        for argument, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
        if default is None
    ]
    missing = [argument.arg for argument in needed if argument.arg not in arguments]
    if missing:
        raise ConfigError(f"model.{missing[0]}: required by {target}, but missing")
    for argument in by_name:
        if argument.annotation is not None and argument.arg in arguments:
            _check_value(target, argument.arg, argument.annotation, arguments[argument.arg])


def _check_value(target: str, name: str, annotation: ast.expr, value: Scalar) -> None:
    """Check a value against its annotation, if that is made of simple types only."""
    expected = _simple_types(annotation)
    if not expected or any(type(value) in _ADMITTED[kind] for kind in expected):
        return
    names = " or ".join(TYPE_NAMES[kind] for kind in expected)
    raise ConfigError(f"model.{name}: {target} expects {names}, got {value!r}")


def _simple_types(annotation: ast.expr) -> list[str]:
    """Return the types of an annotation such as ``int | None``; none if it has any other type."""
    match annotation:
        case ast.Name(id=name) if name in _ADMITTED:
            return [name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _simple_types(left)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            either, other = _simple_types(left), _simple_types(right)
            return [*either, *other] if either and other else []
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _simple_types(inner)
    return []
