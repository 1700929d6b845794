"""``--emulate`` and ``--network`` of duels and bisects: more ranks than there are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ddp_perf.cli.command import parse_ranks
from ddp_perf.config.loading import Overrides
from ddp_perf.config.network import parse_network
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.errors import ConfigError

Emulate = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,…",
        help="Compare at these numbers of ranks, of which one runs: its collectives take the time"
        " that --network gives.",
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The links between emulated ranks, as in intra=1GB/s. [default: the suite's]",
    ),
]


def case_overrides(emulate: str | None, network: str | None) -> Overrides:
    """Return what the options and the variables of this process change of all suites.

    Raises ConfigError.
    """
    if emulate is None and network is not None:
        raise ConfigError("--network: it is that of emulated ranks; add --emulate 64")
    if network is not None:
        parse_network(network, "--network")  # else a suite would be blamed
    return Overrides(
        files=bool(os.environ.get(DATA_FOLDER)),
        emulated=() if emulate is None else parse_ranks("--emulate", emulate),
        network=network,
    )


def repeated(emulate: str | None, network: str | None) -> list[str]:
    """Return the options again, for a command that compares the same cases."""
    given = {"emulate": emulate, "network": network}
    return [f"--{name}={text}" for name, text in given.items() if text is not None]
