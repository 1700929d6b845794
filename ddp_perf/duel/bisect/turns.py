"""The commits that can be launched now: a few servers, of good, bad, and the last ones asked."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ddp_perf.core.case import Case
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.cases import alike
from ddp_perf.duel.launchers import SideLauncher


class CommitTurn(NamedTuple):
    """A commit that is ready to launch."""

    launcher: SideLauncher
    case: Case  # as the commit has it, measured as bad is
    import_paths: tuple[str, ...]
    suites: tuple[Path, ...] = ()  # the files of its cases; (): unknown


Opener = Callable[[Commit], contextlib.AbstractContextManager[CommitTurn]]
_MOST = 2  # servers beside those of good and bad: each one holds torch in memory
# Launches of a commit from one server. Forks of it share its addresses, which may make a commit a
# little slower each time.
_FROM_A_SERVER = 6


class _Open(NamedTuple):
    turn: CommitTurn
    stack: contextlib.ExitStack


class CommitTurns:
    """Opens a commit when it is asked, and closes the one that was asked longest ago.

    ``opener`` makes a commit ready to launch, and raises DdpPerfError if it cannot be. All are
    measured as bad is: with as many steps, whatever their suites schedule.
    """

    def __init__(self, line: CommitLine, opener: Opener) -> None:
        self._line, self._opener = line, opener
        self._open: dict[int, _Open] = {}  # the one asked last is the last
        self._turns: Counter[int] = Counter()  # of each commit

    def turn(self, place: int) -> CommitTurn:
        """Return a turn of the commit. Raises what the opener raises."""
        bad = self._opened(self._line.length)
        turn = self._opened(place)
        if self._turns[place] and self._turns[place] % _FROM_A_SERVER == 0:
            turn.launcher.close()  # the next launch starts another one
        self._turns[place] += 1
        return turn._replace(case=alike(turn.case, bad.case))

    def _opened(self, place: int) -> CommitTurn:
        if place in self._open:
            self._open[place] = self._open.pop(place)
        else:
            self._close_oldest(place)
            with contextlib.ExitStack() as stack:
                turn = stack.enter_context(self._opener(self._line.commits[place]))
                self._open[place] = _Open(turn, stack.pop_all())
        return self._open[place].turn

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self._open.values():
                stack.push(each.stack)
            self._open.clear()

    def _close_oldest(self, place: int) -> None:
        """Make room for a commit that is neither good nor bad."""
        others = [asked for asked in self._open if asked not in (0, self._line.length)]
        if place not in (0, self._line.length) and len(others) >= _MOST:
            self._open.pop(others[0]).stack.close()
