"""When a case takes more launches: how many there are at each look, and whether to look again."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.verdict import UNDECIDED, Verdict

_LOOKS = 3  # 5, 10, 20 launches: more of them hardly matter where sessions differ at all


def plan_looks(first: int, affordable: int) -> tuple[int, ...]:
    """Launches at each look: ``first``, then twice as many each time, as far as affordable.

    The plan must not depend on what is measured this session, or the error rate that is shared out
    over the looks would not hold.
    """
    looks = [first * 2**look for look in range(_LOOKS)]
    return tuple(look for look in looks if look in (first, min(look, affordable)))


def next_look(verdict: Verdict, launches: int, looks: Sequence[int]) -> int | None:
    """How many launches there should be when this metric is judged again.

    None: it is decided, or all the launches that are planned would not decide it.
    """
    if verdict.outcome not in UNDECIDED or verdict.more_launches is None:
        return None
    if launches + verdict.more_launches > looks[-1]:
        return None
    return next(look for look in looks if look > launches)
