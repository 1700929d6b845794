"""The matrix of faults: what was tried, what the user saw, what was kept, what was left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of one fault."""

    fault: str  # "SIGKILL of a rank"
    where: str  # "in the middle, 2 ranks, in a command"
    seen: str  # the first line that the user sees; "": the shell names the signal
    kept: str  # "the launches before it"
    survived: bool  # the fault was named, and what follows it ran
    lost: int = 0  # acknowledged things that are gone or changed
    leaked: tuple[str, ...] = ()  # processes, sockets, files that are left over
    noticed_s: float | None = None  # from the fault to its name; None: not timed


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of one fault."""

    fault: str
    where: tuple[str, ...]
    seen: str  # of its first trial in which anything was seen
    kept: str
    tried: int
    survived: int
    lost: int
    leaked: int
    slowest_s: float | None

    @property
    def is_sound(self) -> bool:
        return self.survived == self.tried and not self.lost and not self.leaked


def rows_of(trials: Iterable[Tried]) -> Iterator[Row]:
    """Yield a row for each fault, in the order of their first trials."""
    by_fault: dict[str, list[Tried]] = {}
    for trial in trials:
        by_fault.setdefault(trial.fault, []).append(trial)
    for fault, of_it in by_fault.items():
        yield _row(fault, of_it)


def _row(fault: str, trials: Sequence[Tried]) -> Row:
    times = [trial.noticed_s for trial in trials if trial.noticed_s is not None]
    return Row(
        fault=fault,
        where=tuple(dict.fromkeys(trial.where for trial in trials)),
        seen=next((trial.seen for trial in trials if trial.seen), ""),
        kept=trials[0].kept,
        tried=len(trials),
        survived=sum(trial.survived for trial in trials),
        lost=sum(trial.lost for trial in trials),
        leaked=sum(len(trial.leaked) for trial in trials),
        slowest_s=max(times, default=None),
    )
