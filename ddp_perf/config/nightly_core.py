"""The field ``core`` of a suite file: patterns of the ids of the cases that every night gates."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import msgspec

from ddp_perf.config.cases import Variant
from ddp_perf.core.case import Case
from ddp_perf.errors import ConfigError, nearest_or_all


def with_core(case: Case, variant: Variant) -> Case:
    """Return the case with the patterns of its suite that match its id, as the file gives it."""
    patterns = variant.suite.core
    if patterns is None:
        return case
    name = case.id.removesuffix(variant.ddp_suffix).removesuffix(variant.suffix)
    return msgspec.structs.replace(case, core=_matching(name, patterns))


def check_core(patterns: Sequence[str] | None, cases: Sequence[Case]) -> None:
    """Raise ConfigError for the first pattern that matches no case of the suite."""
    ids = [case.id for case in cases]
    for place, pattern in enumerate(patterns or ()):
        if not fnmatch.filter(ids, pattern):
            raise ConfigError(
                f"core[{place}]: {pattern!r} matches no case{nearest_or_all(pattern, ids)}"
            )


def _matching(name: str, patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern))
