"""Today's code as a session remembers it, so that it can run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.system.code_state import CodeState


class SessionCode(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the user's code, and the packages that its ranks import."""

    state: CodeState | None
    problem: str | None  # why a stored session of it cannot be run again, with the remedy
    packages: Callable[[Sequence[Case]], dict[str, str]]

    def in_environment(self, environment: Environment, cases: Sequence[Case]) -> Environment:
        """Return the environment with what names the code, and the packages of these cases."""
        tree = self.state.tree if self.state is not None else None
        return msgspec.structs.replace(environment, tree=tree, packages=self.packages(cases))


def no_packages(cases: Sequence[Case]) -> dict[str, str]:
    return {}


UNKNOWN_CODE = SessionCode(state=None, problem=None, packages=no_packages)
