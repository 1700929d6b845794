"""Checks that a user's ``module:function`` exists and accepts its arguments.

The module is not imported. Its source is parsed instead, and what the source leaves open is
accepted.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.config.error_text import TYPE_NAMES
from ddp_perf.config.python_source import UNKNOWABLE, bindings, find_module, parse_source
from ddp_perf.core.case import Scalar
from ddp_perf.errors import ConfigError, did_you_mean

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
    spec = find_module(module, import_paths)
    if spec is None:
        raise ConfigError(
            f"workload: no module named {module!r}; it must be importable from pytest's root"
            " directory, or from the pythonpath of its settings"
        )
    if spec.loader is None or spec.origin is None:
        raise ConfigError(f"workload: {module!r} is a folder of modules; name one of them")
    if not spec.origin.endswith(".py"):
        return
    bound = list(bindings(parse_source("workload", Path(spec.origin)).body))
    names = {name for name, _ in bound}
    if function not in names and not names & UNKNOWABLE:
        raise ConfigError(
            f"workload: {module!r} defines no {function!r}{did_you_mean(function, names)}"
        )
    statements = [statement for name, statement in bound if name == function]
    if len(statements) == 1:
        _check_callable(target, statements[0], arguments)


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
