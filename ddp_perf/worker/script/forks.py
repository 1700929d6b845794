"""The question whether a process is a fork, which each step of a script asks."""

from __future__ import annotations

import os


class ForkMark:
    """A mark that is set in each fork of the process that made it. ``os.getpid`` takes longer."""

    def __init__(self) -> None:
        self.is_fork = False
        os.register_at_fork(after_in_child=self._set)

    def _set(self) -> None:
        self.is_fork = True
