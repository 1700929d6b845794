"""A training script that is measured as it is: its file, its arguments, what ends a step."""

from __future__ import annotations

import msgspec

BY_OPTIMIZER = "optimizer"


class ScriptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a script by each rank, as torchrun would run it."""

    script: str  # a path from the root of the project on, as "train.py", or a module
    args: tuple[str, ...]
    samples: int  # of a step, over all ranks
    # What ends a step: the first optimizer that steps, or the return of a "module:function".
    steps_by: str = BY_OPTIMIZER
    # Whether HOME, TMPDIR and the working directory are folders that are removed after the launch.
    scratch: bool = False

    @property
    def is_module(self) -> bool:
        """True if it is run as ``python -m`` does."""
        return not self.script.endswith(".py")

    @property
    def name(self) -> str:
        """The name of the file without its folders and suffix, or the module's name."""
        return self.script if self.is_module else self.script.rpartition("/")[2][: -len(".py")]
