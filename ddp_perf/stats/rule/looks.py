"""The plan of the interim looks at an undecided case, and the choice of the next one."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.verdict import UNDECIDED, Verdict

_LOOKS = 3  # 5, 10, 20 launches: more of them hardly matter where sessions differ at all


def plan_looks(first: int, affordable: int) -> tuple[int, ...]:
    """Return the launches at each look: ``first``, doubled each time, up to ``affordable``.

    The plan must not depend on what is measured in this session, or the alpha spending over the
    looks would not be valid.
    """
    looks = [first * 2**look for look in range(_LOOKS)]
    return tuple(look for look in looks if look in (first, min(look, affordable)))


def next_look(verdict: Verdict, launches: int, looks: Sequence[int]) -> int | None:
    """Return the number of launches at which this metric is to be judged again.

    None: the verdict is decided, or all planned launches would not decide it.
    """
    if verdict.outcome not in UNDECIDED or verdict.more_launches is None:
        return None
    if launches + verdict.more_launches > looks[-1]:
        return None
    return next(look for look in looks if look > launches)
