"""YAML files: a duplicate key is refused, and 1e-3 is a number."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ddp_perf.errors import ConfigError

_MERGE_KEY = "tag:yaml.org,2002:merge"  # `<<`, which may occur several times
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # libyaml's loader if yaml has it
    """A YAML loader that refuses a duplicate key. Plain YAML silently takes the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if key.tag != _MERGE_KEY]
        for key, count in collections.Counter(map(str, keys)).items():
            if count > 1:
                raise ConfigError(f"{key}: it is given {count} times; keep one")
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes what this loader would read as a number."""


# YAML 1.1 reads 1e-3 as text, and only 1.0e-3 as a number. YAML 1.2 reads both as numbers.
for _either in (_UniqueKeyLoader, _Dumper):
    _either.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises ConfigError, without its path."""
    return _parsed(path, yaml.load)


def yaml_text(fields: Mapping[str, Any]) -> str:
    """Return a YAML file with these fields, in their order, each on a line of its own."""
    text: str = yaml.dump(
        dict(fields),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=math.inf,
    )
    return text


def _parsed(path: Path, parse: Callable[..., Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {_one_line(error)}") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot be read: {error}") from None


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


def line_of_key(path: Path, keys: Sequence[str]) -> int | None:
    """Return the line on which a nested key of a YAML file is, or None if it is not there.

    ``keys`` are the key and those that it is in, outermost first. Raises ConfigError for a file
    that cannot be read, without its path.
    """
    node = _parsed(path, yaml.compose)
    line = None
    for key in keys:
        if not isinstance(node, yaml.MappingNode):
            return None
        pair = next(((name, value) for name, value in node.value if name.value == key), None)
        if pair is None:
            return None
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line
