"""The finished probes of a search between two environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddp_perf.duel.environments.factors import Factor, taken_along
from ddp_perf.duel.environments.probes import OutOfTimeError, Probe
from ddp_perf.duel.search_log import Conditions, SearchLog


class ProbeLog(SearchLog[Probe]):
    """The log of one pair of environments and one case."""

    def __init__(
        self,
        directory: Path,
        question: dict[str, str],
        conditions: Conditions,
        factors: Sequence[Factor],
    ) -> None:
        """Read the probes that an earlier run finished. Raises ResultsError."""
        super().__init__(Probe, directory, question, conditions)
        self._factors = factors

    @property
    def probes(self) -> list[Probe]:
        return self.entries

    def recall(self, known: Sequence[Factor], moved: Sequence[Factor]) -> Probe:
        """Return a finished probe. Raises OutOfTimeError if it was not made.

        A hybrid that failed in an earlier run is probed again, since the cause may be over.
        """
        names = {factor.name for factor in known}
        both = {factor.name for factor in taken_along([*known, *moved], self._factors)}
        for number, probe in enumerate(self.probes):
            is_it = set(probe.known) == names and {*probe.known, *probe.moved} == both
            if is_it and (probe.failure is None or number >= self.earlier):
                return probe
        raise OutOfTimeError
