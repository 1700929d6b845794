"""Texts of a suite file with the sizes of a case in braces, and formulas of whole numbers."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from ddp_perf.errors import ConfigError, nearest_or_all

SIZES = ("world_size", "batch_size")
LONGEST_FORMULA = 200  # characters: what is computed is no deeper than that
_MOST = 10**12  # as the result of a formula
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{([^{}]*)\}")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def filled(where: str, text: str, sizes: Mapping[str, object]) -> str:
    """Replace each ``{name}`` by its size, and ``{{name}}`` by ``{name}``.

    Braces around anything else than a name stay, since they may be JSON. ConfigError, which names
    ``where``, is raised for an unknown name.
    """

    def value(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal is not None:
            return f"{{{literal}}}"
        if name in sizes:
            return str(sizes[name])
        if name.isidentifier():
            raise ConfigError(
                f"{where}: {{{name}}} is unknown{nearest_or_all(name, SIZES)}; write"
                f" {{{{{name}}}}} for the text {{{name}}}"
            )
        return match[0]

    return _PLACEHOLDER.sub(value, text)


def sizes_in(text: str) -> set[str]:
    """Return the names of the sizes that a text has in braces."""
    return {match[2] for match in _PLACEHOLDER.finditer(text)} & set(SIZES)


def result_of(where: str, formula: str, sizes: Mapping[str, int]) -> int:
    """Compute a formula of whole numbers and sizes.

    Raises ConfigError, which names ``where``, for anything else, and for a result that is no
    number of samples.
    """
    # The spaces keep {world_size}{batch_size} from becoming one number.
    text = filled(where, formula, {name: f" {size} " for name, size in sizes.items()})
    try:
        result = _computed(ast.parse(text.strip(), mode="eval").body)
    except ZeroDivisionError:
        raise ConfigError(f"{where}: {formula!r} divides by 0{_for(sizes)}") from None
    except (SyntaxError, ValueError, MemoryError):  # MemoryError: too many brackets
        raise ConfigError(
            f"{where}: {formula!r} is no formula of whole numbers, {{world_size}}, {{batch_size}},"
            " + - * // and brackets"
        ) from None
    if not 1 <= result <= _MOST:
        raise ConfigError(
            f"{where}: {formula!r} is {result}{_for(sizes)}; it must be from 1 to 10^12"
        )
    return result


def _computed(node: ast.expr) -> int:
    """Compute a formula of whole numbers. Raises ValueError for anything else."""
    match node:
        case ast.Constant(value=value) if type(value) is int:  # True is none
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_computed(left), _computed(right))
    raise ValueError(node)


def _for(sizes: Mapping[str, int]) -> str:
    return " with " + " and ".join(f"{name} {size}" for name, size in sizes.items())
