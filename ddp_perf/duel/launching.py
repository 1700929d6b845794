"""Launches of several sides in turn: the order is random, so that no side is always the first."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.launcher import Launcher


class Turn(NamedTuple):
    """One launch: the launcher of a side, and the case as that side has it."""

    launcher: Launcher
    case: Case
    import_paths: tuple[str, ...]
    injections: tuple[Injection, ...] = ()


def launch_turns(
    turns: Sequence[Turn],
    *,
    block: int,
    order: random.Random,
    on_turn: Callable[[int], None] = lambda place: None,
) -> list[LaunchResult | LaunchFailure]:
    """Run each turn once, one after the other, and return the outcomes in the order of turns.

    ``on_turn`` receives the place of each turn in ``turns`` before it is launched. Raises
    LaunchError if ranks cannot be started.
    """
    outcomes: dict[int, LaunchResult | LaunchFailure] = {}
    for place in order.sample(range(len(turns)), len(turns)):
        on_turn(place)
        turn = turns[place]
        request = LaunchRequest(
            case=turn.case,
            round=block,
            import_paths=turn.import_paths,
            injections=turn.injections,
        )
        outcomes[place] = turn.launcher.launch(request)
    return [outcomes[place] for place in range(len(turns))]
