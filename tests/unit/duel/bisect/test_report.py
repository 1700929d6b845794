"""The report of a search for a commit: what is found, and what to run next."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.work import Site
from ddp_perf.duel.bisect.report import build_bisect
from ddp_perf.duel.bisect.result import bisect_result
from ddp_perf.duel.bisect.search import Question
from ddp_perf.render.terminal import report_text
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


def with_work(result, work, uncounted=None):
    culprits = (
        msgspec.structs.replace(one, work=work, uncounted=uncounted) for one in result.culprits
    )
    return msgspec.structs.replace(result, culprits=tuple(culprits))


def make_change(what):
    site = Site(module="", file="model.py", line=7, function="forward", text="self.wide(x)")
    places = (Place(site=site, count=1),)
    return WorkChange(
        kind="operation", what=what, before=2, after=3, phase="forward", places=places
    )


CHANGES = tuple(map(make_change, ["aten.mm", "aten.add", "aten.tanh", "aten.clone"]))
RESULTS = {
    "one commit": with_work(make_result(), CHANGES),
    "a set": make_result(untestable=frozenset({4, 5})),
    "two steps": with_work(make_result(length=16, steps={4: 0.2, 11: 0.2}), ()),
    "undecided": make_result(most=18, length=32),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_text(name, file_regression):
    text = report_text(build_bisect(RESULTS[name]), 80)

    file_regression.check(text, extension=".txt", encoding="utf-8")


@pytest.mark.parametrize(
    ("steps", "headline", "next_command"),
    [
        # No next command: a duel of both ends would lead here again.
        ({5: -0.3}, "There is no slow-down to find: ", None),
        ({}, "Bad is not shown to be slower: ", "ddp-perf doctor"),
    ],
)
def test_without_a_slow_down_no_commit_is_to_blame(steps, headline, next_command):
    report = build_bisect(make_result(steps=steps))

    assert report.verdict == "none"
    assert report.headline.startswith(headline)
    assert (report.next and report.next.command) == next_command


def test_work_that_could_not_be_compared_is_named():
    (section,) = build_bisect(with_work(RESULTS["one commit"], None, "it failed")).sections

    assert section.parts[0].text == "Its work could not be compared: it failed"
