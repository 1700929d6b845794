"""What a reader sees on the pages of a site, and where its links lead."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ddp_perf.render.model import Status
from ddp_perf.site.case_page import case_page
from ddp_perf.site.gate_page import gate_page
from ddp_perf.site.machines_page import machines_page
from ddp_perf.site.overview import curve, overview
from ddp_perf.site.pages import write_site
from ddp_perf.site.regressions_page import regressions_page
from tests.histories import MACHINES, views_of_history
from tests.pages import page_text

SESSIONS = 60


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    with views_of_history(tmp_path_factory.mktemp("history"), sessions=SESSIONS) as views:
        yield views


@pytest.fixture(scope="module")
def site(views, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    write_site(directory, views)
    return directory


def texts(table):
    return [[re.sub(r"<[^>]*>", "", cell.text) for cell in row] for row in table.rows]


def test_the_overview_has_every_case_and_the_red_ones_first(views):
    report = overview(views)

    rows = texts(report.table)
    assert (report.status, report.verdict) == (Status.RED, "2 open regressions")
    assert report.headline == (
        "9 cases on 2 machines, 1 acknowledged, newest session 2026-03-01 03:00 UTC"
    )
    standings = [row[1] for row in rows]
    assert standings == ["slower", "slower", "acknowledged", *["PASS"] * 6]
    assert {row[7] for row in rows} == set(MACHINES)
    assert {row[5] for row in rows} == {str(SESSIONS)}
    assert rows[0][4].startswith("+12.")


def test_the_page_of_a_red_case_says_since_when_and_by_which_commit(views, site):
    view = views.cases[0]

    text = page_text((site / "cases" / view.file).read_bytes())

    assert "✗ slower" in text
    assert "60 sessions from 2026-01-01 to 2026-03-01; suite nightly" in text
    assert "step time | ✗ REGRESSION" in text
    assert re.search(r"step time \| ✗ open \| \+1\d\.\d % \| 2026-02-18 \| 11 \| 12", text)
    assert 'commit abcdef123456 "Fuse the loss" by A. Person (98 %)' in text
    assert re.search(r"step of \+1[12]\.\d % .* \| 2026-02-17 and 2026-02-18", text)


def test_a_case_page_has_a_row_for_each_session_and_a_chart_for_each_metric(views):
    view = views.cases[0]

    report = case_page(view)

    sections = {section.title: section for section in report.sections}
    assert [*sections][:2] == ["Step time", "Tail (mean step ÷ its level)"]
    (_, table) = sections["All sessions"].parts
    assert len(table.rows) == SESSIONS
    assert table.rows[0][0].text == "2026-03-01 03:00"
    assert table.rows[0][-1].text == (
        '<a href="https://github.com/we/train/actions/runs/59">job</a>'
    )
    (settled,) = sections["Settled beside the stored code"].parts
    assert [row[2] for row in texts(settled)] == ["12"] * 12


def test_regressions_are_listed_by_state_with_their_days(views):
    report = regressions_page(views)

    rows = [row[3:7] for row in texts(report.table)]
    assert [state for state, *_ in rows] == ["open", "open", "acknowledged", "fixed", "accepted"]
    assert rows[3][2] == "2026-01-19"
    assert report.headline == "2 open, 1 acknowledged, 1 fixed, 1 accepted"


def test_machines_are_compared_by_the_cases_that_both_measured(views):
    report = machines_page(views)

    ((name, first, second),) = texts(report.table)
    assert name == views.cases[0].case.case_id
    assert first.endswith("(1.00 ×)")
    assert second.endswith("(1.30 ×)")


def test_the_gate_has_a_month_in_each_row(views):
    rows = texts(gate_page(views).table)

    assert [row[0] for row in rows] == ["2026-02", "2026-01"]
    assert rows[1][1:] == ["6", "66.7 %", "22 to 96 %", "3", "0"]


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.found.append(value)


def test_every_link_within_the_site_leads_to_a_file_and_nothing_is_loaded_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 4 + 9
    for page in pages:
        links = Links()
        links.feed(page.read_text(encoding="utf-8"))
        for link in links.found:
            if link.startswith(("https://github.com/we/train/", "data:")):
                continue
            assert (page.parent / link).resolve().is_file(), (page, link)


def test_a_second_site_replaces_the_first_one_under_the_same_names(views, site):
    before = {path.relative_to(site) for path in site.rglob("*")}

    write_site(site, views)

    assert {path.relative_to(site) for path in site.rglob("*")} == before


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b\\c:d*?", ".", "x" * 400, "ünïcode ☃"])
def test_the_file_of_any_case_is_a_plain_name(views, name):
    import msgspec

    case = msgspec.structs.replace(views.cases[0].case, case_id=name)

    file = msgspec.structs.replace(views.cases[0], case=case).file

    assert Path(file).name == file
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,120}\.html", file)


def test_a_curve_of_many_sessions_is_short_and_says_its_range():
    drawn = curve("step_time", [0.01, 0.012] * 500, Status.GREEN)

    assert 'aria-label="1,000 sessions, 10 to 12 ms"' in drawn
    assert len(drawn) < 1_200
    assert curve("step_time", [0.01], Status.GREEN) == "–"
