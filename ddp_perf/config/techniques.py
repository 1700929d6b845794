"""Techniques: named changes of a suite's options, each with cases of its own beside the base."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from ddp_perf.config.common import NAME_PATTERN
from ddp_perf.config.error_text import describe_error
from ddp_perf.errors import ConfigError, nearest_or_all

# The fields that a technique may have: those of a suite, and the one hook in place of a list.
OPTIONS = (
    "strategy",
    "ddp",
    "fsdp",
    "comm_hook",
    "precision",
    "gradient_accumulation",
    "activation_checkpointing",
    "compile",
    "cuda_graphs",
    "cudnn_benchmark",
    "data",
    "env",
)
_OF_A_STRATEGY = ("ddp", "fsdp", "comm_hooks")  # another strategy has none of these

_Suite = TypeVar("_Suite", bound=msgspec.Struct)


def with_technique(suite: _Suite, name: str, changes: Any) -> _Suite:
    """Return the suite, which trains, with the changes of one technique and no other technique.

    The fields of a table, such as ``ddp``, replace those of the suite one by one. If the strategy
    is another one, the suite's options of its own strategy are left out. Raises ConfigError, with
    the name of the technique and the field.
    """
    _check_names(name, changes)
    fields: dict[str, Any] = msgspec.to_builtins(suite)
    if changes.get("strategy", fields["strategy"]) != fields["strategy"]:
        for option in _OF_A_STRATEGY:
            fields.pop(option)
    hooks = fields.get("comm_hooks", [None])[:1]
    changed = {
        **fields,
        "techniques": {},
        "comm_hooks": [changes["comm_hook"]] if "comm_hook" in changes else hooks,
        **{
            option: _merged(fields.get(option), value)
            for option, value in changes.items()
            if option != "comm_hook"
        },
    }
    try:
        return msgspec.convert(changed, type(suite))
    except msgspec.ValidationError as error:
        text = describe_error(error, type(suite), changed, prefix=f"techniques.{name}")
        raise ConfigError(text.replace("comm_hooks[0]", "comm_hook")) from None


def _check_names(name: str, changes: Any) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(
            f"techniques: {name!r} becomes a part of ids; use letters, digits, dot, dash and"
            " underscore"
        )
    if not isinstance(changes, dict):
        raise ConfigError(f"techniques.{name}: expected a table of fields, as in precision: bf16")
    for option in changes:
        if option not in OPTIONS:
            raise ConfigError(
                f"techniques.{name}.{option}: unknown field{nearest_or_all(option, OPTIONS)}"
            )


def _merged(of_suite: Any, value: Any) -> Any:
    if isinstance(of_suite, dict) and isinstance(value, dict):
        return {**of_suite, **value}
    return value
