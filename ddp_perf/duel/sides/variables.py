"""Sides that are the tree with environment variables."""

from __future__ import annotations

import re

from ddp_perf.config.loading import check_environment
from ddp_perf.errors import ConfigError, SideError
from ddp_perf.launch.environment import server_environment

# Each rank has its own; and both sides run on the same GPUs.
_OF_RANKS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"}
)


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables of ``A=1,B=2``. Raises SideError.

    A part without ``NAME=`` belongs to the value before it, as in ``NCCL_ALGO=Ring,Tree``.
    """
    variables: dict[str, str] = {}
    for part in re.split(r",(?=[A-Za-z_]\w*=)", text):
        name, equals, value = part.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SideError(f"env:{text}: write env:NAME=VALUE, or env:NAME=VALUE,OTHER=VALUE")
        if name in variables:
            raise SideError(f"env:{text}: {name} has two values; remove one")
        _check_name(text, name)
        variables[name] = value
    try:
        check_environment(variables)
    except ConfigError as error:
        raise SideError(f"env:{text}: {str(error).removeprefix('env.')}") from None
    return variables


def _check_name(text: str, name: str) -> None:
    if name in _OF_RANKS or server_environment({name: "x"}).get(name) != "x":
        raise SideError(f"env:{text}: ddp_perf itself sets {name} for ranks; remove it")
