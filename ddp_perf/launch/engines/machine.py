"""The engines of one node without a name: this machine, or where a user's command leads."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from ddp_perf.core.case import Tier
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import SERVER, Transport, server_words
from ddp_perf.launch.interpreter import (
    package_alone,
    package_directory,
    package_path,
    server_environment,
)
from ddp_perf.system.host.launch_platform import check_can_launch


class _OneNode:
    """A node without a name, which nobody else can see fail."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None,
        package: Path | None,
        working_directory: Path | None,
    ) -> None:
        self.environ: Mapping[str, str] = dict(os.environ if environ is None else environ)
        self._package = package_directory() if package is None else package
        self._working_directory = working_directory

    @property
    def nodes(self) -> tuple[str, ...]:
        return ()

    def endpoint(self, node: str) -> str:
        raise NotImplementedError("one node has no other to meet")

    def loss(self, node: str) -> str | None:
        return None

    def close(self) -> None:
        """Keep everything: nothing is held between launches."""


class ThisMachine(_OneNode):
    """Servers are children of this process.

    ``interpreter`` and ``environ`` are those of the servers, and ``package`` is the directory from
    which they import ddp_perf. This process never imports torch, so its own may differ. Ranks run
    in ``working_directory``; None: in that of this process.
    """

    def __init__(
        self,
        *,
        interpreter: str = sys.executable,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        super().__init__(environ=environ, package=package, working_directory=working_directory)
        self._interpreter = interpreter

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        check_can_launch()
        package = self._package
        if self._interpreter != sys.executable:
            # It must not find what is installed beside the package for this one, as torch.
            package = package_alone(package, scratch)
        environ = server_environment(self.environ)
        return Transport(
            who=f"the forkserver ({self._interpreter})",
            words=server_words(self._interpreter, package),
            environ={**environ, "PYTHONPATH": package_path(self.environ, package)},
            working_directory=self._working_directory,
            is_child=True,
            package=str(package.resolve()),
            goodbye_s=3.0,
        )


PLACEHOLDER = "{command}"


class UserCommand(_OneNode):
    """Servers run where a command of the user puts them: in a container, say.

    ``command`` is split into words as a shell does it, and run without a shell. The server's own
    command replaces the placeholder ``{command}``: as several words, or within a longer word as
    text. ``environ`` is the environment of the command, and ``package`` the directory from which
    the server imports ddp_perf if the command keeps PYTHONPATH and the file system. The command
    runs in ``working_directory``; None: in that of this process.
    """

    def __init__(
        self,
        command: str,
        *,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        super().__init__(environ=environ, package=package, working_directory=working_directory)
        self._words = command_words(command)

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        package = package_alone(self._package, scratch)
        return Transport(
            who=f"the command of the side ({self._words[0]} …)",
            words=self._words,
            environ={**self.environ, "PYTHONPATH": package_path(self.environ, package)},
            working_directory=self._working_directory,
            remedy=(
                f"mount {package_directory()}/ddp_perf there and set PYTHONPATH to the directory"
                " that contains it, or install this version there"
            ),
        )


def command_words(command: str) -> list[str]:
    """Return the words of the user's command, with the server's command in the placeholder's place.

    The python3 is that of the command. Raises LaunchError if the text cannot be split, or has no
    placeholder.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise LaunchError(f"command: {command}: {error}") from None
    if not any(PLACEHOLDER in word for word in words):
        raise LaunchError(
            f"command: {command}: there is no {PLACEHOLDER} in it, which is replaced by the"
            " command that starts the ranks: docker run -i IMAGE {command}"
        )
    server = ("python3", *SERVER)
    text = shlex.join(server)
    replaced = [
        server if word == PLACEHOLDER else (word.replace(PLACEHOLDER, text),) for word in words
    ]
    return [word for each in replaced for word in each]
