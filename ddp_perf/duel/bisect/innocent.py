"""The commits that cannot be to blame, since they change nothing that the case reads."""

from __future__ import annotations

from ddp_perf.duel.bisect.commits import CommitLine, files_of_commit
from ddp_perf.duel.bisect.turns import CommitTurn
from ddp_perf.duel.changed_files import repository_root
from ddp_perf.duel.sources import sources_of
from ddp_perf.duel.touched import CaseSources, touched_cases


def innocent_places(line: CommitLine, good: CommitTurn, bad: CommitTurn) -> frozenset[int]:
    """Return the places of the commits that change no file that the case reads at good or at bad.

    Whatever makes bad slower than good is in such a file. A file that the case reads only between
    them is not in bad. Raises SideError if the repository cannot be read.
    """
    if not (good.suites and bad.suites):
        return frozenset()
    sources = {("good", ""): _sources(good), ("bad", ""): _sources(bad)}
    return frozenset(
        place
        for place in range(1, line.length + 1)
        if not touched_cases(sources, files_of_commit(line, place)).touched
    )


def _sources(turn: CommitTurn) -> CaseSources:
    repository = repository_root(turn.suites[0].parent)
    return sources_of([turn.case], turn.suites, turn.import_paths, repository)[turn.case.key]
