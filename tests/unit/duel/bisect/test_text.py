"""The result of a search as text, and as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.core.work import Site
from ddp_perf.duel.bisect.result import bisect_result
from ddp_perf.duel.bisect.search import Question
from ddp_perf.duel.bisect.text import bisect_json, bisect_text
from ddp_perf.work.values import Place, WorkChange
from tests.simulated_commits import Line, simulated_search
from tests.unit.duel.bisect.test_run import make_line


def make_result(*, most=200, length=8, innocent=frozenset(), **fields):
    line = Line(length=length, **{"steps": {5: 0.2}, **fields})
    _, launches = simulated_search(line, seed=2, most=most)
    question = Question(length=length, innocent=innocent)
    return bisect_result(
        question, make_line(length), launches, case_id="mlp-x", log="/cache/a.jsonl"
    )


def test_the_commit_comes_first_with_its_author_and_the_next_command_last():
    text = bisect_text(make_result(), 100)

    lines = text.splitlines()
    assert lines[0] == "mlp-x: 8 commits after good 000000000000 up to bad 000000000000"
    assert lines[2].startswith('000000000000 "Commit 5" (Ada, 2026-01-01): ')
    assert "step time +2" in lines[2]
    assert "The probability that this is the one step is 9" in text
    assert "/cache/a.jsonl" in text
    assert lines[-1] == "next: git show 000000000000"


def test_the_table_has_each_commit_that_was_asked_and_the_bars_its_probability():
    result = make_result()
    lines = bisect_text(result, 100).splitlines()

    rows = {
        int(line.split()[0]): line for line in lines if "%  Commit" in line or "–  Commit" in line
    }
    assert set(rows) == {each.place for each in result.asked} >= {0, 4, 5, 8}
    assert "–" in rows[0]
    assert "+1" in rows[5] or "+2" in rows[5]
    assert any(line.startswith("   5  ") and "██████████" in line for line in lines)


def test_commits_that_cannot_be_launched_are_named_with_the_reason():
    text = bisect_text(make_result(untestable=frozenset({4, 5})), 100)

    assert "One of these 3 commits, since 2 of them cannot be launched" in " ".join(text.split())
    assert "No module named 'missing'" in text
    assert text.endswith("next: git log -p --first-parent 000000000000..000000000000")


def test_two_steps_are_two_commits():
    text = bisect_text(make_result(length=16, steps={4: 0.2, 11: 0.2}), 100)

    assert '"Commit 4"' in text
    assert '"Commit 11"' in text
    assert "The probability that these are the two steps is" in text


def test_an_undecided_search_has_the_fewest_commits_and_the_command_to_go_on():
    text = " ".join(bisect_text(make_result(most=18, length=32), 100).split())

    assert "Undecided: the " in text
    assert "commits from 000000000000 to 000000000000 have the slow-down" in text
    assert "next: ddp-perf bisect --good 000000000000 --bad 000000000000 --case mlp-x" in text


def test_no_slow_down_is_an_answer():
    text = bisect_text(make_result(steps={5: -0.3}), 100)

    assert "There is no slow-down to find: " in text
    assert "next: " not in text  # a duel of both ends would lead here again


def test_the_difference_of_work_has_its_line():
    result = make_result()
    site = Site(module="", file="model.py", line=7, function="forward", text="self.wide(x)")
    change = WorkChange(
        kind="operation",
        what="aten.mm (float32)",
        before=2,
        after=3,
        phase="forward",
        places=(Place(site=site, count=1),),
    )
    with_work = [msgspec.structs.replace(one, work=(change,)) for one in result.culprits]

    text = bisect_text(msgspec.structs.replace(result, culprits=tuple(with_work)), 100)

    assert "+1 aten.mm (float32), in forward (model.py:7 forward)" in text


@pytest.mark.parametrize("width", [1, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    lines = bisect_text(make_result(), width).splitlines()

    assert max(map(len, lines)) <= max(80, width)


def test_the_json_has_everything():
    result = make_result()

    data = json.loads(bisect_json(result))

    assert data["schema_version"] == 1
    assert data["outcome"] == "found"
    assert len(data["chances"]) == 8
    assert data["culprits"][0]["commits"][0]["subject"] == "Commit 5"
    assert msgspec.convert(data, type(result)) == result


def test_a_slow_down_that_is_not_shown_is_not_denied():
    text = bisect_text(make_result(steps={}), 100)

    assert "Bad is not shown to be slower: " in text
    assert "UNDECIDED" in text
