"""Annotations of GitHub, and the code quality report of GitLab, of any report."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest

from ddp_perf.core.verdict import DuelOutcome, Outcome
from ddp_perf.render.annotations import github_lines, gitlab_json
from ddp_perf.render.checkout import CHECKOUT, Checkout
from ddp_perf.render.model import CASE, Cell, Column, Note, Report, Section, Status, Table
from ddp_perf.report.duel.report import build_duel
from ddp_perf.report.work_rows import build_work
from ddp_perf.work.values import CountedCase, Place
from tests.builders import HOSTILE, make_cases
from tests.duels import make_case_duel, make_duel, make_side_failure
from tests.work_reports import make_change, make_counted, make_same, make_work_report
from tests.works import SITE, make_site

ONE, TWO, THREE, FOUR = make_cases(tier="gpu", batch_sizes=[64, 128])
EDITED = make_site(7, "return module(module(x))")
WHY = Note(text="because")


def make_section(*parts, status=Status.RED, title="case"):
    return Section(title=title, verdict="SLOWER", parts=parts, status=status)


def make_report(*sections, ratio=None):
    columns = (CASE, Column(title="B ÷ A", key="ratio"))
    table = Table(columns=columns, rows=((Cell("case"), Cell("", ratio)),))
    about = {"title": "report", "verdict": "RED", "status": Status.RED, "headline": ""}
    return Report(**about, table=table, sections=sections)


def change(line, text="more", file="my_model.py"):
    return Note(text=text, kind="change", source=make_site(line, file=file))


def read(report):
    """Return the level, the properties and the message of each command, as GitHub reads them."""
    for line in github_lines(report, CHECKOUT):
        _, command, message = line.split("::", 2)
        level, _, named = command.partition(" ")
        properties = dict(one.split("=", 1) for one in named.split(","))
        yield level, {name: unquote(text) for name, text in properties.items()}, unquote(message)


def places(*sections):
    return [properties.get("line") for _, properties, _ in read(make_report(*sections))]


def test_the_marks_of_counted_work(file_regression):
    added = make_change(what="aten.add (float32)", name="aten.add", bytes=0)
    nine = make_site(9)
    less = make_change(before=3, after=1, bytes=0, places=(Place(site=nine, count=-2),))
    at_both = make_change(places=(Place(site=SITE, count=2), Place(site=nine, count=1)))
    option = "ddp.bucket_cap_mb: 25 → 5 (a.yaml:7)"
    work = make_work_report(
        make_counted(make_change(), added, less, case=ONE, options=(option,)),
        make_counted(case=TWO),
        make_counted(make_change(), at_both, case=THREE, lines=(EDITED, nine)),
        CountedCase(case=FOUR, failure="raised\nat 100 %"),
        make_counted(less, outcome=Outcome.INCOMPARABLE, reason="torch differs"),
        make_same(),
    )
    file_regression.check(both(build_work(work)), extension=".txt", encoding="utf-8")


def test_the_marks_of_a_duel(file_regression):
    more = {"work": (make_change(),)}
    failed = (make_side_failure("B", THREE),)
    duel = make_duel(
        make_case_duel(DuelOutcome.SLOWER, ONE, **more),
        make_case_duel(DuelOutcome.SLOWER, TWO, lines=(EDITED,), **more),
        make_case_duel(DuelOutcome.EQUIVALENT, THREE, failures=failed, **more),
        make_case_duel(DuelOutcome.UNDECIDED, FOUR),
        make_case_duel(DuelOutcome.EQUIVALENT, **more),
    )
    file_regression.check(both(build_duel(duel)), extension=".txt", encoding="utf-8")


def both(report):
    found = [
        f"{one['severity']} {one['location']} {one['check_name']}: {one['description']}"
        for one in json.loads(gitlab_json(report))
    ]
    return "\n".join([*github_lines(report, CHECKOUT), *found, ""])


def test_only_what_is_red_or_undecided_is_marked_the_red_first():
    sections = [
        make_section(change(n), status=one) for n, one in enumerate([*reversed(Status), None])
    ]
    report = make_report(*sections)

    assert [level for level, _, _ in read(report)] == ["error", "warning"]
    assert [one["severity"] for one in json.loads(gitlab_json(report))] == ["major", "minor"]


def test_a_change_stands_at_the_line_that_caused_it():
    edited = [Note(text="edited", source=make_site(line)) for line in (7, 9)]
    report = make_report(make_section(*edited, change(42, "far"), change(9, "near")))

    assert [text for _, _, text in read(report)] == ["edited\nfar", "edited\nnear"]


def test_sections_share_a_line_and_come_before_those_without_one():
    alone = [make_section(WHY)] * 2
    shared = make_section(WHY, change(1), title="c"), make_section(change(1), title="d")

    assert places(*alone, *shared) == ["1", None, None]
    *_, (_, properties, text) = read(make_report(*shared))
    assert properties["title"] == "c: SLOWER"
    assert text == "more\nbecause\nand in 1 other case"


def test_the_title_states_how_much_slower_the_case_is():
    titles = [
        next(read(make_report(make_section(WHY, title=title), ratio=ratio)))[1]["title"]
        for title, ratio in (("case", 1.1), ("case", 0.9), ("case", None), ("another", 1.1))
    ]
    assert titles == ["case: SLOWER (+10.0 %)", *["case: SLOWER"] * 2, "another: SLOWER"]


def test_ten_of_each_level_are_shown_and_all_in_gitlab():
    sections = [
        make_section(*(change(line) for line in range(12)), status=status)
        for status in (Status.UNDECIDED, Status.RED)
    ]
    report = make_report(*sections)

    assert [level for level, _, _ in read(report)] == ["error"] * 10 + ["warning"] * 10
    found = json.loads(gitlab_json(report))
    assert len({one["fingerprint"] for one in found}) == len(found) == 24


def test_a_mark_has_few_notes_and_each_has_a_limit():
    report = make_report(make_section(*(Note(text="x" * 2000 + str(n)) for n in range(9))))

    assert next(read(report))[2] == "\n".join(["x" * 1000] * 6)


def test_a_fingerprint_does_not_depend_on_figures():
    found = [
        json.loads(gitlab_json(make_report(make_section(change(1, text)), ratio=ratio)))[0]
        for text, ratio in (("+2", 1.1), ("+3", 1.2))
    ]
    assert found[0]["description"] != found[1]["description"]
    assert found[0]["fingerprint"] == found[1]["fingerprint"]


@pytest.mark.parametrize("text", [HOSTILE, "100 %, a:b\r\n::error ::c", "%0A"])
def test_any_text_is_read_as_it_was_written(text):
    report = make_report(make_section(change(1, text, file=text), title=text))

    ((level, properties, message),) = read(report)
    assert (level, message) == ("error", text)
    assert properties == {"file": text, "line": "1", "title": f"{text}: SLOWER"}
    assert len(github_lines(report, CHECKOUT)[0].splitlines()) == 1


def test_paths_are_relative_to_the_repository(tmp_path):
    models = tmp_path / "repository" / "models"
    models.mkdir(parents=True)
    (models / SITE.file).touch()
    (tmp_path / "outside.py").touch()
    environ = {"CI_PROJECT_DIR": str(tmp_path / "repository")}
    checkout = Checkout.of_job([str(tmp_path), str(models)], models, environ)

    assert checkout.path(SITE.file) == "models/my_model.py"
    assert checkout.path("outside.py") == "outside.py"
    assert Checkout.of_job([str(models)], models, {}).path(SITE.file) == SITE.file
