"""Options of a suite that changed since the work was stored, with their lines in its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ddp_perf.config.yaml_file import line_of_key
from ddp_perf.core.case import Scalar
from ddp_perf.render.units import change_text

_LISTS = {"world_size": "world_sizes", "batch_size": "batch_sizes", "comm_hook": "comm_hooks"}


def option_changes(
    old: Mapping[str, Scalar],
    new: Mapping[str, Scalar],
    suite_file: Path | None,
    technique: str | None = None,
) -> tuple[str, ...]:
    """Return each option that changed: ``ddp.bucket_cap_mb: 25 → 5 (mlp.yaml:12)``.

    The line is left out if the file does not state the option. That of the case's technique is
    preferred.
    """
    changed = (name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))
    return tuple(
        change_text(f"{name}:", _value(old, name), _value(new, name))
        + _line(name, suite_file, technique)
        for name in changed
    )


def _value(options: Mapping[str, Scalar], name: str) -> Scalar | None:
    """Return a value as YAML writes it."""
    value = options.get(name)
    return str(value).lower() if isinstance(value, bool) else value


def _line(name: str, suite_file: Path | None, technique: str | None) -> str:
    if suite_file is None:
        return ""
    lines = (line_of_key(suite_file, keys) for keys in _keys(name, technique))
    line = next((line for line in lines if line is not None), None)
    return "" if line is None else f" ({suite_file.name}:{line})"


def _keys(name: str, technique: str | None) -> Iterator[tuple[str, ...]]:
    """Yield where the file may state an option, the most specific place first."""
    first, _, rest = name.partition(".")
    paths: list[tuple[str, ...]] = [(first, rest)] if rest else [(first,)]
    if first in _LISTS:
        paths.append((_LISTS[first],))
    for path in paths:
        if technique is not None:
            yield "techniques", technique, *path
        yield path
    if rest:
        if technique is not None:
            yield "techniques", technique, first
        yield (first,)
