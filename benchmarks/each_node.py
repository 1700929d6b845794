"""Measure what each_node concludes of the code and of the nodes, over twenty sessions.

    python benchmarks/each_node.py [--trials N] [--seed N] [--jobs N]

Every session is measured, judged and stored by the functions of a pytest session; only the figures
of the launches are drawn. A fleet of eight nodes is measured each day: tolerance 3 %, 1 % of false
alarms a session; nodes differ by 0.8 %, sessions by 0.4 %, visits and launches by 0.3 %. The first
ten sessions are unchanged. Some fleets have sessions, visits and launches with the tails of
Student's t with 3 df, or one launch in a hundred that takes 20 % longer. Nothing was tuned on these
draws. It exits with 1 where a stated rate is exceeded beyond chance.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np
import pytest

from benchmarks.months import interval
from ddp_perf.core.metric import gated_metrics
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from tests.builders import make_cases
from tests.fleets import CASES, Fleet, Law, bad_nodes, names, of_code
from tests.suites import one_session_a_day

DAYS, CHANGE = 20, 10
RATE = 0.01  # of false alarms a session: of the code, and again of the nodes
NODES = names(8)
Draw = Callable[[int, np.random.Generator], dict[str, Any]]  # the day → what is special of it


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Twenty sessions: what changes on the eleventh, and what should then be red."""

    name: str
    of_day: Draw
    slow: frozenset[str] = frozenset()
    code: bool = False
    law: Law = "normal"
    launches: int = 3


def _after(**change: Any) -> Draw:
    return lambda day, _: {"nodes": NODES, **(change if day >= CHANGE else {})}


def _sample(day: int, random: np.random.Generator) -> dict[str, Any]:
    return {"nodes": tuple(str(node) for node in random.choice(names(64), 8, replace=False))}


def _one_missing(day: int, _: np.random.Generator) -> dict[str, Any]:
    return {"nodes": [node for node in NODES if node != NODES[day % 8]]}


def _one_joins(day: int, _: np.random.Generator) -> dict[str, Any]:
    return {"nodes": (*NODES, "n9") if day >= CHANGE else NODES}


def _others(day: int, _: np.random.Generator) -> dict[str, Any]:
    return {"nodes": names(8, first=11) if day >= CHANGE else NODES}


LIVES = (
    Life(name="unchanged", of_day=_after()),
    Life(name="unchanged, t3", of_day=_after(), law="t3"),
    Life(name="unchanged, slow launches", of_day=_after(), law="slow launches"),
    Life(name="unchanged, slow launches, 1 each", of_day=_after(), law="slow launches", launches=1),
    Life(
        name="unchanged, slow launches, 32 nodes",
        of_day=lambda day, _: {"nodes": names(32)},
        law="slow launches",
    ),
    Life(name="another 8 of 64 nodes each session", of_day=_sample),
    Life(name="another node is missing each session", of_day=_one_missing),
    Life(name="a ninth node joins", of_day=_one_joins),
    Life(name="eight other nodes from then on", of_day=_others),
    Life(
        name="one node 4 % slower",
        of_day=_after(slower={"n7": 1.04}),
        slow=frozenset({"n7"}),
    ),
    Life(
        name="one node 4 % slower, slow launches",
        of_day=_after(slower={"n7": 1.04}),
        slow=frozenset({"n7"}),
        law="slow launches",
    ),
    Life(
        name="two nodes 4 % slower",
        of_day=_after(slower={"n6": 1.04, "n7": 1.04}),
        slow=frozenset({"n6", "n7"}),
    ),
    Life(name="code 5 % slower", of_day=_after(code=1.05), code=True),
    Life(
        name="code 5 % and one node 4 % slower",
        of_day=_after(code=1.05, slower={"n7": 1.04}),
        slow=frozenset({"n7"}),
        code=True,
    ),
)


def count(place: int, seed: int) -> Counter[str]:
    """Live through the twenty sessions of that place in LIVES, and count what is red."""
    life = LIVES[place]
    gated = sum(len(gated_metrics(case)) for case in CASES)
    counts: Counter[str] = Counter()
    random = np.random.default_rng([seed, 1])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        one_session_a_day(patch)
        fleet = Fleet(
            Path(folder),
            seed=seed,
            law=life.law,
            cases=tuple(make_cases(launches=life.launches, tolerances={"step_time": 0.03})),
            alpha=alpha_per_metric(RATE, gated),
        )
        for day in range(DAYS):
            _note(counts, life, day, fleet(**life.of_day(day, random)))
    return counts


def _note(counts: Counter[str], life: Life, day: int, result: SuiteResult) -> None:
    """Count the alarms of a session. Each of the two cases has a verdict on the nodes."""
    changed = day >= CHANGE
    red, bad = "REGRESSION" in of_code(result), bad_nodes(result)
    slow = life.slow if changed else frozenset()
    code = "found code" if life.code and changed else "false code"
    counts[code] += red
    counts[f"of {code}"] += 1
    counts["false nodes"] += bool(bad - slow)
    counts["of false nodes"] += 1
    if day > CHANGE:  # a node is suspect in its first slow session
        counts["found nodes"] += len(bad & slow)
        counts["of found nodes"] += len(slow)
    if day == CHANGE + 1:
        counts["second nodes"] += len(bad & slow)
        counts["of second nodes"] += len(slow)


def _text(counts: Counter[str], what: str) -> str:
    """Return a rate with its trials and its 95 % interval."""
    found, of = counts[what], counts[f"of {what}"]
    if not of:
        return "–"
    low, high = interval(found, of)
    return f"{found} of {of} ({100 * low:.1f} to {100 * high:.1f} %)"


COLUMNS = ("false code", "false nodes", "found code", "second nodes", "found nodes")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(None if arguments is None else list(arguments))
    broken = False
    print("| twenty sessions |", " | ".join(COLUMNS), "|")
    print("|---|" + "--:|" * len(COLUMNS))
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for place, life in enumerate(LIVES):
            seeds = range(1000 * options.seed, 1000 * options.seed + options.trials)
            each = pool.map(count, [place] * options.trials, seeds, chunksize=1)
            counts = sum(each, Counter[str]())
            print(f"| {life.name} |", " | ".join(_text(counts, what) for what in COLUMNS), "|")
            sys.stdout.flush()
            for what in ("false code", "false nodes"):
                broken |= interval(counts[what], counts[f"of {what}"])[0] > RATE
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
