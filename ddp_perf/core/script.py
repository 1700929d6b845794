"""A training script that is measured as it is: its file, its arguments, what ends a step."""

from __future__ import annotations

import msgspec

BY_OPTIMIZER = "optimizer"


class ScriptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a script by each rank, as torchrun would run it."""

    script: str  # a path from the root of the project on, as "train.py", or a module
    args: tuple[str, ...]  # with the sizes of the case
    # With {world_size} where the suite has it, for the fingerprint: filled in, each number of ranks
    # would be other work. Empty: the args have none. Of the variables those that have it.
    args_of_any_ranks: tuple[str, ...] = ()
    env_of_any_ranks: tuple[tuple[str, str], ...] = ()
    samples: int  # of a step, over all ranks
    # What ends a step: the first optimizer that steps, or the return of a "module:function".
    steps_by: str = BY_OPTIMIZER
    # Whether it works in a private tree of links, which is removed after the launch.
    scratch: bool = False

    @property
    def is_module(self) -> bool:
        """True if it is run as ``python -m`` does."""
        return not self.script.endswith(".py")

    @property
    def name(self) -> str:
        """The name of the file without its folders and suffix, or the module's name."""
        return self.script if self.is_module else self.script.rpartition("/")[2][: -len(".py")]
