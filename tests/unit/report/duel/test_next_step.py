"""The next command of a duel: one that a shell runs as it is."""

from __future__ import annotations

import shlex

import msgspec

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import CaseDuel, Side, SideCase
from ddp_perf.report.duel.rows import after_duel
from tests.builders import make_cases, make_launch
from tests.duels import (
    MAIN,
    TREE,
    make_case_duel,
    make_duel,
    make_metric_duel,
    make_side_failure,
)
from tests.work_reports import make_change
from tests.works import make_site

ONE, TWO = make_cases()
SLOWER, UNDECIDED = DuelOutcome.SLOWER, DuelOutcome.UNDECIDED
OLD = Side(name="A", spec="torch==2.11.0", kind="packages", label="torch 2.11.0")
VARIABLE = Side(name="B", spec="env:NCCL_ALGO=Ring tree", kind="env", label="NCCL_ALGO=Ring tree")
TWO_DIFFERENCES = ("torch: 2.11.0 → 2.13.0", "triton: 3.4 → 3.5")


def command_after(*cases, **changes):
    step = after_duel(make_duel(*cases, **changes))
    return None if step is None else step.command


def undecided(case, *, more, **changes):
    metric = make_metric_duel(case, UNDECIDED, more_pairs=more)
    return make_case_duel(UNDECIDED, case, metrics=(metric,), **changes)


def wait(launch, wall_s=10.0):
    return msgspec.structs.replace(launch, wall_s=wall_s)


def test_nothing_is_left_to_do_after_an_equal_or_faster_side():
    assert command_after(make_case_duel(DuelOutcome.EQUIVALENT)) is None
    assert command_after(make_case_duel(DuelOutcome.FASTER)) is None


def test_revisions_are_bisected_for_the_case_that_is_slowest():
    small, large = make_case_duel(SLOWER, ONE), make_case_duel(SLOWER, TWO)
    (metric,) = large.metrics
    verdict = msgspec.structs.replace(metric.verdict, ratio=1.3)
    large = msgspec.structs.replace(
        large, metrics=(msgspec.structs.replace(metric, verdict=verdict),)
    )
    older = msgspec.structs.replace(TREE, kind="revision", spec="v2")
    assert command_after(small, large, b=older) == (
        f"ddp-perf bisect --good main --bad v2 --case {TWO.id}"
    )
    assert f"--bad HEAD --case {TWO.id}" in command_after(small, large)


def test_a_line_that_does_more_is_shown_instead_of_a_search():
    step = after_duel(make_duel(make_case_duel(SLOWER, work=(make_change(),))))
    assert step.command == "git diff main"
    assert "my_model.py:42 Block.forward" in step.why
    edited = make_case_duel(SLOWER, work=(make_change(),), lines=(make_site(7),))
    assert "my_model.py:7 Block.forward" in after_duel(make_duel(edited)).why


def test_changes_that_are_not_committed_are_not_bisected():
    uncommitted = msgspec.structs.replace(TREE, commit=MAIN.commit)
    assert command_after(make_case_duel(SLOWER), b=uncommitted) == "git diff main"


def test_a_search_over_commits_would_not_find_an_edit_of_the_tree_alone():
    edited = msgspec.structs.replace(TREE, changed=True)
    assert command_after(make_case_duel(SLOWER), b=edited) == "git diff main"
    clean = msgspec.structs.replace(TREE, changed=False)
    assert "bisect" in command_after(make_case_duel(SLOWER), b=clean)


def test_environments_are_bisected_if_more_than_one_thing_differs():
    case = make_case_duel(SLOWER, ONE)
    words = shlex.split(command_after(case, a=OLD, b=VARIABLE, differences=TWO_DIFFERENCES))
    assert words == [
        *("ddp-perf", "bisect", "--good-env", "torch==2.11.0"),
        *("--bad-env", "env:NCCL_ALGO=Ring tree", "--case", ONE.id),
    ]
    assert command_after(case, a=OLD, b=VARIABLE, differences=TWO_DIFFERENCES[:1]) is None


def test_a_side_in_a_container_cannot_be_taken_apart():
    container = Side(name="B", spec="command: docker run x {command}", kind="command", label="x")
    assert command_after(make_case_duel(SLOWER), b=container, differences=TWO_DIFFERENCES) is None


def test_an_undecided_case_is_measured_alone_with_a_budget_for_all_its_pairs():
    # Four pairs of 2 s and 96 more, with a fifth of reserve and 3 s of A alone: 244 s.
    case = undecided(ONE, more=96, aa=tuple(make_launch(ONE, i) for i in range(3)))
    equal = make_case_duel(DuelOutcome.EQUIVALENT, TWO)
    assert command_after(case, equal, budget_s=60.0) == (
        f"ddp-perf duel main . --case {ONE.id} --budget 5m"
    )


def test_the_budget_is_never_smaller_than_the_one_that_was_not_enough():
    assert command_after(undecided(ONE, more=1), budget_s=600.0).endswith("--budget 10m")


def test_a_budget_has_room_for_all_that_the_duel_took_beside_its_launches():
    """Servers that start and a driver that waits took as long as the launches did: 8 s."""
    case = undecided(ONE, more=96)
    assert command_after(case, budget_s=60.0, wall_s=99.0, measured_s=16.0).endswith("--budget 8m")


def test_a_budget_has_room_for_the_first_look():
    long = tuple(
        msgspec.structs.replace(pair, a=wait(pair.a), b=wait(pair.b))
        for pair in make_case_duel(UNDECIDED, ONE).pairs[:3]
    )
    found = command_after(undecided(ONE, more=1, pairs=long), budget_s=60.0, measured_s=60.0)
    assert found.endswith("--budget 3m")  # six pairs of 20 s, and a fifth


def test_the_options_of_the_suite_and_the_tolerance_are_repeated():
    repeat = ("--config=my suite.yaml", "--tolerance=0.03")
    found = shlex.split(command_after(undecided(ONE, more=40), repeat=repeat))
    assert found[-2:] == list(repeat)


def test_a_session_of_pytest_is_repeated_with_its_own_options():
    command = 'pytest -m "perf and cpu" --ddp-against=main --ddp-steps=10'
    equal = make_case_duel(DuelOutcome.EQUIVALENT, TWO)

    more = command_after(undecided(ONE, more=96), equal, command=command)
    assert more == "pytest -m 'perf and cpu' --ddp-against=main --ddp-steps=10" + (
        " --ddp-budget=300s"
    )
    again = command_after(make_case_duel(UNDECIDED), command=command, complete=False)
    assert shlex.split(again) == shlex.split(command)


def test_a_budget_without_room_is_repeated_with_one_that_has():
    case = make_case_duel(UNDECIDED)
    found = command_after(case, needed_s=290.0, complete=False)
    assert found == "ddp-perf duel main . --budget 5m"


def test_all_cases_need_no_name():
    found = command_after(undecided(ONE, more=40), undecided(TWO, more=10))
    assert found == "ddp-perf duel main . --budget 3m"
    step = after_duel(make_duel(undecided(ONE, more=40), undecided(TWO, more=10)))
    assert step.why == "about 10 to 40 more pairs would decide 2 cases"


def test_where_no_number_of_pairs_decides_the_machine_is_looked_at():
    assert command_after(undecided(ONE, more=None)) == "ddp-perf doctor"


def test_an_interrupted_duel_is_run_again_and_a_failure_is_mended_first():
    assert command_after(make_case_duel(UNDECIDED), complete=False) == "ddp-perf duel main ."
    broken, failed = (
        after_duel(
            make_duel(
                make_case_duel(SLOWER, ONE),
                CaseDuel(cases=SideCase(a=TWO, b=TWO), failures=(make_side_failure(side, TWO),)),
            )
        )
        for side in "BA"
    )
    assert "side B" in broken.why
    assert "side A" in failed.why
    assert broken.command == f"ddp-perf duel main . --case {TWO.id}"
