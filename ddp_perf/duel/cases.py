"""The cases of a duel: those of both sides, matched by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ddp_perf.config.loading import Overrides, check_environment, find_suites, load_cases
from ddp_perf.core.case import Case, emulated_ranks
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.duel.sides.preparing import foreign_script
from ddp_perf.duel.values import MissingSide, PreparedSide, SideCase
from ddp_perf.errors import ConfigError, nearest_or_all
from ddp_perf.system.capacity import Capacity, tier_of

_CONFIGS = "bench_configs"


class MatchedCases(msgspec.Struct, frozen=True, kw_only=True):
    """The cases that both sides have, and those that one lacks or that cannot run here."""

    cases: tuple[SideCase, ...]
    missing: tuple[MissingSide, ...] = ()
    left_out: tuple[MissingSide, ...] = ()  # of those that nobody named: they do not count
    # Ids of the cases that nobody named, the least telling first: all but one may be left out.
    spare: tuple[str, ...] = ()


class _Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one side by id, and why some of its suite files were refused."""

    side: PreparedSide
    cases: dict[str, Case]
    refused: tuple[str, ...] = ()

    def lacks(self) -> str:
        why = f"; refused: {'; '.join(self.refused)}" if self.refused else ""
        return f"side {self.side.side.name} ({self.side.side.label}) has no such case{why}"


def match_cases(
    a: PreparedSide,
    b: PreparedSide,
    capacity: Capacity,
    *,
    config: Sequence[Path] = (),
    ids: Sequence[str] = (),
    overrides: Overrides | None = None,
) -> MatchedCases:
    """Load the cases of each side from its own root, and match them by id.

    ``config`` are suite files, relative to the roots; by default all of bench_configs/ for this
    machine's tier. ``ids`` are those of the cases to compare; by default all. Raises ConfigError
    for a suite of side B that cannot be read, for an unknown id, and if no case is left, and
    GpuError if both tiers have cases and the GPUs cannot be read.
    """
    overrides = overrides or Overrides()
    judged = load_cases(_suites(b, config), overrides, b.import_paths)
    older, refused = _load_leniently(_suites(a, config), overrides, a)
    _check_ids(ids, [*judged, *older])
    chosen = [case for case in [*judged, *older] if not ids or case.id in ids]
    if not config and len({case.tier for case in chosen}) > 1:
        tier = tier_of(capacity.machine, meant="a suite of that tier (or its case)")
        chosen = [case for case in chosen if case.tier == tier]
    tiers = {case.tier for case in chosen}
    _check_unique(chosen)
    sides = (
        _Loaded(side=a, cases=_by_id(older, a, tiers), refused=refused),
        _Loaded(side=b, cases=_by_id(judged, b, tiers)),
    )
    matched = _matched(dict.fromkeys(case.id for case in chosen), *sides, capacity)
    if not matched.cases:
        found = "; ".join(f"{one.case_id}: {one.reason}" for one in matched.missing[:1])
        if not found and overrides.emulated:
            found = "--emulate needs a suite with collectives, and batches that all ranks can share"
        raise ConfigError(f"there is no case to compare: {found or 'the suites have none'}")
    return matched


def _suites(side: PreparedSide, config: Sequence[Path]) -> list[Path]:
    if config:
        return [side.root / path for path in config]
    return find_suites(side.root / _CONFIGS)


def _load_leniently(
    paths: Sequence[Path], overrides: Overrides, side: PreparedSide
) -> tuple[list[Case], tuple[str, ...]]:
    """Return the cases of the files that can be read, and why the others cannot.

    An old revision may have suites that this version refuses; its other suites can be compared.
    """
    try:
        return load_cases(paths, overrides, side.import_paths), ()
    except ConfigError:
        cases: list[Case] = []
        refused: list[str] = []
    for path in paths:
        try:
            cases += load_cases([path], overrides, side.import_paths)
        except ConfigError as error:
            text = str(error).replace(f"{side.root}/", "")
            refused.append(text.replace(str(side.root), side.side.label))
    return cases, tuple(refused)


def _check_ids(ids: Sequence[str], cases: Iterable[Case]) -> None:
    known = dict.fromkeys(case.id for case in cases)
    for name in ids:
        if name not in known:
            remedy = _to_emulate(name, known) or nearest_or_all(name, known)
            raise ConfigError(f"--case {name}: no side has such a case{remedy}")


def _to_emulate(name: str, known: Iterable[str]) -> str:
    """Return the option that an id of emulated ranks needs, if no case has so many."""
    ranks = emulated_ranks(name)
    if ranks is None or ranks in map(emulated_ranks, known):
        return ""
    return f"; add --emulate={ranks}, and --network unless its suite has one"


def _check_unique(cases: Iterable[Case]) -> None:
    """Refuse cases of two tiers with one id: the results of a duel have one place for an id."""
    tiers: dict[str, str] = {}
    for case in cases:
        if tiers.setdefault(case.id, case.tier) != case.tier:
            raise ConfigError(f"case {case.id}: both tiers have it; name one suite with --config")


def _by_id(cases: Iterable[Case], side: PreparedSide, tiers: Iterable[str]) -> dict[str, Case]:
    return {case.id: _with_variables(case, side) for case in cases if case.tier in tiers}


def _with_variables(case: Case, side: PreparedSide) -> Case:
    """Return the case with the variables of the side, some of which only a case can set."""
    given = {name: text for name, text in side.variables.items() if name != DATA_FOLDER}
    changed = msgspec.structs.replace(case, env={**case.env, **given}) if given else case
    check_environment(changed.env)
    return changed


def _matched(ids: Iterable[str], a: _Loaded, b: _Loaded, capacity: Capacity) -> MatchedCases:
    cases: list[SideCase] = []
    missing: list[MissingSide] = []
    for name in ids:
        lacking = [side for side in (a, b) if name not in side.cases]
        if lacking:
            missing.append(MissingSide(case_id=name, reason=lacking[0].lacks()))
            continue
        both = [(side.side, side.cases[name]) for side in (a, b)]
        obstacle = next(_obstacles(both, capacity), None)
        if obstacle is not None:
            missing.append(MissingSide(case_id=name, reason=obstacle, unfit=True))
        else:
            cases.append(SideCase(a=alike(a.cases[name], b.cases[name]), b=b.cases[name]))
    return MatchedCases(cases=tuple(cases), missing=tuple(missing))


def _obstacles(cases: Iterable[tuple[PreparedSide, Case]], capacity: Capacity) -> Iterator[str]:
    """Yield why the case cannot run here on a side."""
    for side, case in cases:
        if case.nodes > 1:
            yield "it has several nodes, and a duel launches on this machine alone"
        elif (found := foreign_script(case, side)) is not None:
            yield f"on side {side.side.name} it {found}"
        elif (found := capacity.obstacle(case)) is not None:
            yield f"on side {side.side.name} it {found}" if found.startswith("needs") else found


def alike(a: Case, b: Case) -> Case:
    """Return side A's case as side B's is measured: as many steps, with the same tolerances.

    These change how precise a figure is, not what the step costs.
    """
    return msgspec.structs.replace(a, schedule=b.schedule, tolerances=b.tolerances)
