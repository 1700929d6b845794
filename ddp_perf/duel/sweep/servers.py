"""A launcher with a server for each environment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Launcher, Runtime

_Environment = frozenset[tuple[str, str]]


class EnvironmentLauncher:
    """A launcher that has a launcher of its own, made by ``make``, for each environment."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make = make
        self._launchers: dict[_Environment, Launcher] = {}

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self._of(case).nodes(case)

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._of(case).runtime(case)

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Launch in the server of the case. One that does not start is a failure of the case."""
        try:
            return self._of(request.case).launch(request)
        except LaunchError as error:
            return LaunchFailure(
                case_id=request.case.id,
                round=request.round,
                kind="server",
                rank=None,
                detail=str(error),
            )

    def close(self) -> None:
        """End every server. The next launch of an environment starts another one."""
        with contextlib.ExitStack() as stack:
            while self._launchers:
                stack.callback(self._launchers.popitem()[1].close)

    def _of(self, case: Case | None) -> Launcher:
        key = _environment(case)
        if key not in self._launchers:
            self._launchers[key] = self._make()
        return self._launchers[key]


def _environment(case: Case | None) -> _Environment:
    return frozenset(case.env.items()) if case is not None else frozenset()
