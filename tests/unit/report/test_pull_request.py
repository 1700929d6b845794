"""The comment of a pull request: what a tired reviewer sees first, and what is folded."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import MissingSide
from ddp_perf.render.checkout import Checkout
from ddp_perf.render.markdown import MOST
from ddp_perf.render.model import Status
from ddp_perf.report.duel.report import build_duel
from ddp_perf.report.pull_request import MARKER, build_pull_request, pull_request_markdown
from ddp_perf.report.work_rows import build_work, work_report
from tests.builders import make_cases
from tests.canonical import paired
from tests.duels import make_case_duel, make_duel
from tests.work_reports import make_change, make_counted, make_same, make_work_report
from tests.works import make_site

ONE, TWO, FOUR = make_cases(world_sizes=[1, 2, 4])
RUN = "https://github.com/owner/project/actions/runs/7"
MARKED = make_site(42, "x = x.clone()")
SAME = (1.0, 1.01, 0.99, 1.0, 1.01, 0.99)
OPEN = (1.12, 0.93, 1.09, 1.01, 0.98, 1.06)
UNTOUCHED = MissingSide(case_id=ONE.id, reason="--ddp-touched: no changed file can touch it")


def counted(*cases):
    counted = [make_counted(case=case, lines=(MARKED,)) for case in cases]
    same = [make_same(case) for case in (ONE, TWO, FOUR) if case not in cases]
    return work_report([*counted, *same], {}, "pytest -m work -n auto")


def slower():
    """Two cases do more work, and one of them is slower by more than its tolerance."""
    more = {"work": (make_change(),), "lines": (MARKED,)}
    duel = make_duel(
        paired(ONE, SAME),
        paired(TWO, (1.02, 1.03, 1.01, 1.02, 1.03, 1.02), **more),
        paired(FOUR, (1.1, 1.12, 1.09, 1.11, 1.1, 1.1), **more),
    )
    return {"counts": 1, "duel": 1}, duel, counted(TWO, FOUR)


def nothing():
    """A comment was changed in a file that the cases read."""
    return (
        {"counts": 0, "duel": 0},
        make_duel(*(paired(one, SAME) for one in (ONE, TWO))),
        counted(),
    )


def more_work():
    """The counts alone changed: no case is slower."""
    more = {"work": (make_change(),), "lines": (MARKED,)}
    return {"counts": 1, "duel": 0}, make_duel(paired(ONE, SAME, **more)), counted(ONE)


def undecided():
    return {"counts": 0, "duel": 75}, make_duel(paired(ONE, SAME), paired(TWO, OPEN)), counted()


def untouched():
    """Only documents were changed."""
    return {"counts": 0, "duel": 0}, make_duel(untouched=(UNTOUCHED,)), counted()


def no_duel():
    """The second session could not run."""
    return {"counts": 0, "duel": 4}, None, counted()


def written(codes, duel, work, tmp_path):
    (tmp_path / MARKED.file).touch()
    environ = {"GITHUB_REPOSITORY": "owner/project"}
    checkout = Checkout.of_job([str(tmp_path)], tmp_path, environ, "0123abc")
    reports = (None if duel is None else build_duel(duel), build_work(work))
    return pull_request_markdown(codes, *reports, checkout, RUN)


COMMENTS = (slower, nothing, more_work, undecided, untouched, no_duel)


@pytest.mark.parametrize("made", COMMENTS, ids=lambda made: made.__name__)
def test_the_comment(made, tmp_path, file_regression):
    codes, duel, work = made()
    text = written(codes, duel, work, tmp_path)

    above = re.sub(r"<details>.*?</details>\n*", "", text, flags=re.DOTALL)
    assert len([line for line in above.splitlines() if line]) <= 16
    file_regression.check(text, extension=".md", encoding="utf-8")


def test_a_line_has_no_link_outside_a_ci_job_or_a_file_that_is_not_of_the_repository(tmp_path):
    assert Checkout([tmp_path], tmp_path).page(MARKED) is None
    of_job = Checkout.of_job([str(tmp_path)], tmp_path, {"CI_PROJECT_URL": "https://g/o/p"}, "abc")
    assert of_job.page(MARKED) is None
    (tmp_path / MARKED.file).touch()
    assert of_job.page(MARKED) == "https://g/o/p/-/blob/abc/my_model.py#L42"


def test_a_session_that_is_red_for_another_reason_is_not_called_by_its_green_cases(tmp_path):
    _, duel, work = nothing()

    text = written({"counts": 1, "duel": 0}, duel, work, tmp_path)

    assert text.startswith(f"{MARKER}\n## ❌ RED: see the log of the job\n\ncounts: red (")


def test_a_green_session_with_a_few_undecided_cases_shows_the_worst_of_them(tmp_path):
    _, duel, work = undecided()

    text = written({"counts": 0, "duel": 0}, duel, work, tmp_path)

    assert text.startswith(f"{MARKER}\n## ✅ GREEN, but UNDECIDED: step +3.0 % (")


@pytest.mark.parametrize(
    ("codes", "begins"),
    [({"counts": 5}, "❔ UNDECIDED"), ({"counts": 5, "duel": 0}, "✅ GREEN")],
)
def test_without_any_test_nothing_is_known(codes, begins):
    text = pull_request_markdown(codes, None, None, Checkout([], Path.cwd()))

    assert text.startswith(f"{MARKER}\n## {begins}: pull request\n")


def test_an_undecided_duel_without_a_case_is_not_called_by_the_counts(tmp_path):
    duel = build_duel(make_duel())
    duel = msgspec.structs.replace(duel, status=Status.UNDECIDED, verdict="UNDECIDED")

    report = build_pull_request({"counts": 0, "duel": 75}, duel, build_work(counted()))

    assert report.summary.verdict == "UNDECIDED"
    assert report.summary.worst == duel.headline


@pytest.mark.parametrize(("other", "names"), [(FOUR, False), (TWO, True)])
def test_what_another_case_does_is_called_by_its_name(other, names):
    slower = make_duel(paired(FOUR, (1.1, 1.12, 1.09, 1.11, 1.1, 1.1)))
    duel = msgspec.structs.replace(build_duel(slower), next=None)
    duel = msgspec.structs.replace(duel, summary=msgspec.structs.replace(duel.summary, causes=()))
    work = build_work(counted(other))

    report = build_pull_request({"counts": 1, "duel": 1}, duel, work)

    assert all(note.text.startswith(f"{TWO.id}: ") is names for note in report.summary.causes)
    assert report.next.why.startswith(f"{work.title}: ") is names


def test_a_session_that_was_interrupted_after_a_red_case_is_red(tmp_path):
    text = written({"counts": 130}, None, counted(ONE), tmp_path)

    assert text.startswith(f"{MARKER}\n## ❌ work REGRESSION: ")


def test_a_large_comment_fits(tmp_path):
    cases = [msgspec.structs.replace(ONE, id=f"{'case-' * 60}{number}") for number in range(300)]
    work = make_work_report(*(make_counted(case=case) for case in cases))
    duel = make_duel(*(make_case_duel(DuelOutcome.SLOWER, case) for case in cases))

    text = written({"counts": 1, "duel": 1}, duel, work, tmp_path)

    assert MOST - 5_000 < len(text) < 65_536
    for tag in ("details", "pre"):
        assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))
