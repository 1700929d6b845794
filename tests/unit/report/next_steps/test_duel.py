"""The table of a duel."""

from __future__ import annotations

from msgspec.structs import replace

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import CaseDuel, MissingSide, Side, SideCase
from ddp_perf.report.next_steps import duel
from tests.builders import make_cases, make_launch
from tests.duels import (
    MAIN,
    TREE,
    make_case_duel,
    make_duel,
    make_metric_duel,
    make_pairs,
    make_side_failure,
)
from tests.work_reports import make_change
from tests.works import make_site

ONE, TWO = make_cases()
OLD = Side(name="A", spec="torch==2.11.0", kind="packages", label="torch 2.11.0")
VARIABLE = Side(name="B", spec="env:NCCL_ALGO=Ring tree", kind="env", label="NCCL_ALGO=Ring tree")
CONTAINER = Side(name="B", spec="command: docker run x {command}", kind="command", label="x")
OLDER = replace(TREE, kind="revision", spec="v2")
UPGRADE = ("torch: 2.11.0 → 2.13.0", "triton: 3.4 → 3.5")
PYTEST = "pytest -m 'perf and cpu' --ddp-against=main --ddp-steps=10"


def slower(case=ONE, ratio=1.1, **changes):
    metric = make_metric_duel(case, DuelOutcome.SLOWER, ratio=ratio)
    return make_case_duel(DuelOutcome.SLOWER, case, metrics=(metric,), **changes)


def undecided(case=ONE, *, more=None, **changes):
    metric = make_metric_duel(case, DuelOutcome.UNDECIDED, more_pairs=more)
    return make_case_duel(DuelOutcome.UNDECIDED, case, metrics=(metric,), **changes)


def left_out(*cases):
    return tuple(MissingSide(case_id=case, reason="no room") for case in cases)


def lasting(pair, wall_s):
    return replace(pair, a=replace(pair.a, wall_s=wall_s), b=replace(pair.b, wall_s=wall_s))


EQUAL = make_case_duel(DuelOutcome.EQUIVALENT, TWO)
FAILED = CaseDuel(cases=SideCase(a=TWO, b=TWO), failures=(make_side_failure("B", TWO),))
LONG = tuple(lasting(pair, 10.0) for pair in make_pairs(ONE, [(0.01, 0.01)] * 3))
ALONE = tuple(make_launch(ONE, i) for i in range(3))

ROWS = {  # in the order of the rules
    "failed": make_duel(slower(), FAILED),
    "failed session": make_duel(FAILED, command=PYTEST),
    "line": make_duel(slower(work=(make_change(),))),
    "line between revisions": make_duel(slower(work=(make_change(),)), b=OLDER),
    "edited line": make_duel(slower(lines=(make_site(7),))),
    "options": make_duel(slower(options=("batch_size",))),
    "edit of the last commit": make_duel(slower(), b=replace(TREE, commit=MAIN.commit)),
    "edit of the tree": make_duel(slower(), b=replace(TREE, changed=True)),
    "commits, interrupted": make_duel(slower(), b=replace(TREE, changed=False), complete=False),
    "commits, two slower": make_duel(slower(), slower(TWO, 1.3), b=OLDER),
    "commits, at more ranks than there are": make_duel(
        slower(),
        b=OLDER,
        repeat=("--config=a.yaml", "--emulate=64", "--network=intra=1GB/s, busy=1ns/B"),
    ),
    "commits, more work without a line": make_duel(slower(work=(make_change(places=()),))),
    "commits, less work": make_duel(slower(work=(make_change(before=3, after=1, bytes=-1),))),
    "environments": make_duel(slower(), a=OLD, b=VARIABLE, differences=UPGRADE),
    "environments, one difference": make_duel(slower(), a=OLD, b=VARIABLE, differences=UPGRADE[:1]),
    "container": make_duel(slower(), b=CONTAINER, differences=UPGRADE),
    "same tree": make_duel(slower(), a=replace(TREE, name="A"), differences=UPGRADE),
    "no time": make_duel(undecided(), needed_s=290.0, complete=False),
    "interrupted": make_duel(undecided(more=9), complete=False),
    "interrupted session": make_duel(undecided(), complete=False, command=PYTEST),
    # Four pairs of 2 s and 96 more, with a fifth of reserve and 3 s of A alone: 244 s.
    "one open": make_duel(undecided(more=96, aa=ALONE), EQUAL, budget_s=60.0),
    "all open": make_duel(undecided(more=40), undecided(TWO, more=10)),
    "open after 10 min": make_duel(undecided(more=1), budget_s=600.0),
    # Servers that start and a driver that waits took as long as the launches did: 8 s.
    "long starts": make_duel(undecided(more=96), budget_s=60.0, wall_s=99.0, measured_s=16.0),
    # The first look has six pairs: they take 20 s each, and a fifth is in reserve.
    "long pairs": make_duel(undecided(more=1, pairs=LONG), budget_s=60.0, measured_s=60.0),
    "open, options repeated": make_duel(undecided(more=40), repeat=("--config=my suite.yaml",)),
    "open session": make_duel(undecided(more=96), EQUAL, command=PYTEST),
    "undecidable in one metric": make_duel(
        make_case_duel(
            DuelOutcome.UNDECIDED,
            metrics=tuple(
                make_metric_duel(ONE, DuelOutcome.UNDECIDED, more_pairs=more) for more in (4, None)
            ),
        )
    ),
    "undecidable": make_duel(undecided(), left_out=left_out("x")),
    "left out": make_duel(EQUAL, left_out=left_out("x", "y")),
    "left out of a session": make_duel(EQUAL, left_out=left_out("x", "y"), command=PYTEST),
    "left out, cannot run here": make_duel(
        EQUAL, left_out=(MissingSide(case_id="x", reason="no GPU", unfit=True),)
    ),
    "left out, nothing compared": make_duel(left_out=left_out("x")),
    "equal": make_duel(EQUAL),
    "faster": make_duel(make_case_duel(DuelOutcome.FASTER)),
}


def test_the_first_rule_that_applies_decides(check):
    check(ROWS, duel.after_duel, duel, "DUEL")
