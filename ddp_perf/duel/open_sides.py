"""Both sides of a duel, with the launchers of their ranks, on a leased machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from ddp_perf.duel.launchers import SideLauncher, side_launcher
from ddp_perf.duel.values import PreparedSide, SideName
from ddp_perf.session.measure.machine import open_machine
from ddp_perf.system.capacity import Capacity


class OpenSide(NamedTuple):
    """A side that can launch."""

    prepared: PreparedSide
    launcher: SideLauncher

    @property
    def name(self) -> SideName:
        return self.prepared.side.name

    @property
    def import_paths(self) -> tuple[str, ...]:
        """The directories from which its ranks first import a user's workload."""
        return self.prepared.import_paths


@contextlib.contextmanager
def open_sides(
    a: PreparedSide,
    b: PreparedSide,
    capacity: Capacity,
    *,
    on_wait: Callable[[str], None],
    on_sigterm: Callable[[], NoReturn],
) -> Iterator[tuple[OpenSide, OpenSide]]:
    """Lease the machine, and yield both sides with their launchers, which are closed at the end.

    ``on_wait`` and ``on_sigterm`` are those of `open_machine`. Raises LeaseError.
    """
    first, second = OpenSide(a, side_launcher(a)), OpenSide(b, side_launcher(b))
    machine = open_machine(capacity, first.launcher, on_wait=on_wait, on_sigterm=on_sigterm)
    with machine, contextlib.closing(second.launcher):
        yield first, second
