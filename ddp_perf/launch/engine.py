"""The interface of an engine: the nodes that it has, and how a command is run on one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.system.variables import LIBRARY_PATH, training_variables

# Plain words, which each shell on the way leaves as they are.
SERVER = ("-m", "ddp_perf.launch.server")
# As the module, but with the package in the place of the working directory.
_START_SERVER = (
    "import runpy, sys; sys.path[0] = sys.argv.pop(1);"
    " runpy.run_module('ddp_perf.launch.server', run_name='__main__', alter_sys=True)"
)
GOODBYE_S = 45.0  # of a server that ends its ranks: eight contexts of GPUs may take 30 s


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """The command that runs a server somewhere, and how it is ended.

    It is ended by its standard input, which is closed. What has not ended in ``goodbye_s`` is
    killed.
    """

    who: str  # in errors: "the forkserver (/usr/bin/python3)"
    words: Sequence[str]
    environ: Mapping[str, str]  # of the command
    working_directory: Path | None = None
    variables: Mapping[str, str] = {}  # of the server, beside those that it has there
    is_child: bool = False  # the command is the server itself
    package: str = "where the command runs it"  # from which it should import ddp_perf
    goodbye_s: float = GOODBYE_S
    remedy: str = ""  # if nothing there is found that can run


class Engine(Protocol):
    """An engine: this machine, a user's command, hosts, Slurm, or Kubernetes.

    Used from the main thread. ``environ`` is the environment in which its commands begin.
    """

    environ: Mapping[str, str]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names that a request may have, in order; (): there is one node, without a name.

        The first call may wait for nodes. Raises LaunchError if there are none.
        """
        ...

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        """Return how to run a server on the node; "": on the one without a name.

        ``scratch`` is a directory for files that it needs. Raises LaunchError if the node is gone.
        """
        ...

    def endpoint(self, node: str) -> str:
        """Return host:port at which ranks meet whose first node is this one."""
        ...

    def loss(self, node: str) -> str | None:
        """Return how the node failed, as a part of a sentence, if a server on it has ended.

        None: the engine saw nothing, or has none to ask.
        """
        ...

    def close(self) -> None:
        """Give back all that is held between launches. A second call does nothing."""
        ...


def server_words(interpreter: str, package: Path) -> tuple[str, ...]:
    """Return the command of a server that imports ddp_perf, and nothing else, from ``package``.

    The directory may have a torch, too, which another interpreter would import in place of its own.
    """
    return interpreter, "-c", _START_SERVER, str(package)


def forwarded_variables(tier: Tier) -> dict[str, str]:
    """Return the variables of this process that ranks on every node get.

    Each node has its own libraries, and its own nccl.conf, before which a variable would come. The
    user's own choice of a network interface is one for all nodes.
    """
    chosen = training_variables(tier, os.environ).keys() | {"GLOO_SOCKET_IFNAME"}
    # A shell on another host gets the path of libraries before Python starts.
    return {name: os.environ[name] for name in chosen & os.environ.keys() - {LIBRARY_PATH}}
