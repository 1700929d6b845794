"""The replacement of functions of a module or a class, for as long as a script runs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ddp_perf.errors import ScriptError


@contextlib.contextmanager
def patched(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Call ``around(original, …)`` in place of ``owner.name(…)`` in the ``with`` block."""
    found = inspect.getattr_static(owner, name)
    original = found.__func__ if isinstance(found, staticmethod | classmethod) else found

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    is_bound_otherwise = isinstance(found, staticmethod | classmethod)
    setattr(owner, name, type(found)(wrapper) if is_bound_otherwise else wrapper)
    try:
        yield
    finally:
        setattr(owner, name, found)


def function_of(target: str, script: str) -> tuple[Any, str]:
    """Return the owner and the name of ``module:function``, which may be a method.

    Raises ScriptError if there is none, or if it is of ``script`` itself, by its module's name.
    """
    module, _, path = target.partition(":")
    if module in ("__main__", script):
        raise ScriptError(
            f"steps_by: {target} is of the script itself, where it is not defined before the"
            " script runs; name a function of a module that the script imports"
        )
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        function = getattr(owner, name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ScriptError(f"steps_by: {target} does not exist: {error}") from None
    if not callable(function):
        raise ScriptError(f"steps_by: {target} is no function, but {type(function).__name__}")
    return owner, name
