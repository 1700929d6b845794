"""The plan of the interim looks at an undecided case, and the choice of the next one."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.verdict import Verdict

# The second look, in launches of the first. Two looks find more than three, whose middle one costs
# alpha and gives up early (benchmarks/looks.py); fewer than twice as many add too little.
_LEAST_MORE, _MOST_MORE = 2, 4


def plan_looks(first: int, affordable: int) -> tuple[int, ...]:
    """Return the launches at each look: ``first``, and a second one that is ``affordable``.

    The plan must not depend on what is measured in this session, or the alpha spending over the
    looks would not be valid.
    """
    second = min(affordable, _MOST_MORE * first)
    return (first, second) if second >= _LEAST_MORE * first else (first,)


def next_look(verdict: Verdict, launches: int, looks: Sequence[int]) -> int | None:
    """Return the number of launches at which this metric is to be judged again.

    None: the verdict is decided, or all planned launches would not decide it.
    """
    if not verdict.outcome.is_open or verdict.more_launches is None:
        return None
    if launches + verdict.more_launches > looks[-1]:
        return None
    return next(look for look in looks if look > launches)
