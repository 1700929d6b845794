"""A commit, or a version of torch, is made ready to launch, and its suites have the case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.case import Case
from ddp_perf.duel.bisect.commits import Commit
from ddp_perf.duel.bisect.turns import CommitTurn
from ddp_perf.duel.launchers import side_launcher
from ddp_perf.duel.sides.own_script import foreign_script
from ddp_perf.duel.sides.parsing import parse_side
from ddp_perf.duel.sides.preparing import prepare
from ddp_perf.errors import ConfigError, nearest_or_all
from ddp_perf.system.capacity import Capacity

_CONFIGS = "bench_configs"


@contextlib.contextmanager
def open_commit(
    commit: Commit,
    *,
    root: Path,
    case_id: str,
    capacity: Capacity,
    on_progress: Callable[[str], None],
) -> Iterator[CommitTurn]:
    """Yield the commit, ready to launch the case, and close its servers at the end.

    Raises SideError if it cannot be checked out or installed, ConfigError if it lacks the case, or
    if this machine cannot run it.
    """
    side = parse_side(commit.hash, "B", root)
    with prepare(side, root, on_progress=on_progress) as prepared:
        paths = (str(prepared.root),)
        suites = find_suites(prepared.root / _CONFIGS)
        case = _case(suites, case_id, paths)
        if (obstacle := foreign_script(case, prepared) or capacity.obstacle(case)) is not None:
            raise ConfigError(f"{case.id} {obstacle}")
        # Which files a version of torch changes is not known: none of them is innocent.
        own = tuple(suites) if prepared.side.kind == "revision" else ()
        with contextlib.closing(side_launcher(prepared)) as launcher:
            yield CommitTurn(launcher, case, paths, own)


def _case(suites: Sequence[Path], case_id: str, import_paths: tuple[str, ...]) -> Case:
    cases = load_cases(suites, Overrides(), import_paths)
    found = next((case for case in cases if case.id == case_id), None)
    if found is None:
        near = nearest_or_all(case_id, sorted({case.id for case in cases}))
        raise ConfigError(f"no suite of {_CONFIGS}/ has the case {case_id}{near}")
    return found
