"""The versions of torch between two ends, as pip lists them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from ddp_perf.duel.bisect import opening
from ddp_perf.duel.bisect.opening import version_line, with_comparisons
from ddp_perf.duel.bisect.report import build_bisect
from ddp_perf.duel.bisect.result import bisect_result
from ddp_perf.duel.bisect.search import Question
from ddp_perf.errors import SideError
from tests.simulated_commits import Line, simulated_search
from tests.unit.duel.bisect.test_report import make_result

RELEASES = ["2.13.0+cpu", "2.13.0", "2.12.1", "2.12.0", "2.11.0", "2.10.0+cu126"]
NIGHTS = ["2.16.0.dev20261103+cu130", "2.16.0.dev20261102+cu130", "2.16.0.dev20261101+cu130"]


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """``pip(stdout)`` is what the interpreter's pip prints; it notes its arguments."""

    def answer(stdout, stderr=""):
        (tmp_path / "out").write_text(stdout)
        (tmp_path / "err").write_text(stderr)
        program = tmp_path / "python"
        program.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/args\ncat {tmp_path}/err >&2\ncat {tmp_path}/out\n'
        )
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return lambda: (tmp_path / "args").read_text().split()

    return answer


def names(ends):
    return [commit.short for commit in version_line(Path(), ends).commits]


def test_releases_are_in_their_order_without_the_builds_that_bad_is_none_of(pip):
    arguments = pip(json.dumps({"versions": RELEASES}))

    assert names("2.11..2.13.0") == ["2.11.0", "2.12.0", "2.12.1", "2.13.0"]
    assert arguments() == ["-m", "pip", "index", "versions", "torch", "--json"]
    assert names("2.12.1..2.13.0+cpu") == ["2.12.1", "2.13.0+cpu"]


def test_nightly_builds_are_those_of_the_index(pip):
    arguments = pip(json.dumps({"versions": NIGHTS}))

    assert names("2.16.0.dev20261101+cu130..2.16.0.dev20261103+cu130") == NIGHTS[::-1]
    assert arguments()[-1] == "--pre"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("2.13.0", "is not GOOD..BAD, as in 2.11.0..2.13.0"),
        ("2.11.0..main", "'main' is not a version"),
        ("2.13.0..2.11.0", "2.13.0 is not before 2.11.0: name the faster, older one first"),
        ("2.11.0..2.11.0", "is not before"),
        ("2.9.0..2.13.0", "pip finds no torch==2.9.0 for this Python"),
        ("2.10.0..2.13.0", "torch==2.10.0 has the builds +cu126; write one of them in BAD"),
        ("2.10.0+cu126..2.13.0", "the build of 2.10.0+cu126 is not that of 2.13.0"),
        ("2.11.0..2.14.0", "PIP_INDEX_URL=https://download.pytorch.org/whl/nightly/"),
    ],
)
def test_ends_that_cannot_be_searched_are_refused(pip, ends, said):
    pip(json.dumps({"versions": RELEASES}))

    with pytest.raises(SideError, match="--torch: ") as refused:
        version_line(Path(), ends)
    assert said in str(refused.value)


def test_a_pip_that_does_not_list_versions_says_what_is_needed(pip):
    pip("", "ERROR: no such option: --json")

    with pytest.raises(SideError) as refused:
        version_line(Path(), "2.11.0..2.13.0")
    assert "needs pip 25.1 or later" in str(refused.value)
    assert "no such option: --json" in str(refused.value)


@pytest.fixture
def result(pip):
    """The result of a search over eight versions, the fifth of which is slower."""
    pip(json.dumps({"versions": [f"2.{minor}.0" for minor in range(6, 15)]}))
    line = version_line(Path("/r"), "2.6.0..2.14.0")

    def of_versions(found):
        at = dict(zip(found.line.commits, line.commits, strict=True))
        culprits = tuple(
            msgspec.structs.replace(
                one, commits=tuple(map(at.get, one.commits)), before=at[one.before]
            )
            for one in found.culprits
        )
        return msgspec.structs.replace(found, line=line, culprits=culprits)

    return of_versions(make_result())


def test_a_version_is_named_with_the_commits_since_the_one_before(result, monkeypatch):
    monkeypatch.setattr(opening, "is_installed", lambda requirements: True)
    monkeypatch.setattr(opening, "_git_version", lambda requirement: f"git-of-{requirement[7:]}")

    report = build_bisect(with_comparisons(result))

    assert report.about[0].text == "mlp-x: 8 versions after good 2.6.0 up to bad 2.14.0"
    assert report.headline.startswith("torch 2.11.0: ")
    compared = "github.com/pytorch/pytorch/compare/git-of-2.10.0...git-of-2.11.0"
    assert any(note.text.endswith(compared) for note in report.notes)
    assert report.table.rows[0][0].text == "2.6.0"
    assert report.next is None


def test_no_answer_waits_for_an_environment_that_was_removed(result, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    report = build_bisect(with_comparisons(result))

    assert report.headline.startswith("torch 2.11.0: ")
    assert not any("compare" in note.text for note in report.notes)
    assert not (tmp_path / "cache").exists()  # nothing was installed


def test_between_two_versions_bad_is_launched_all_the_same(pip):
    pip(json.dumps({"versions": RELEASES}))
    line = version_line(Path("/r"), "2.12.1..2.13.0")
    _, launches = simulated_search(Line(length=1, steps={1: 0.2}), seed=2, most=200)
    question = Question(length=1)

    before = bisect_result(question, line, [], case_id="mlp-x", log="/cache/a.jsonl")
    after = bisect_result(question, line, launches, case_id="mlp-x", log="/cache/a.jsonl")

    assert before.outcome == "undecided"
    assert after.outcome == "found"
    assert build_bisect(after).headline.startswith("torch 2.13.0: step time +")
