"""The files of the work report: they agree, escape all texts, and use no network."""

from __future__ import annotations

import html
import re

import jsonschema
import msgspec
import pytest

from ddp_perf.core.work import Site
from ddp_perf.errors import ResultsError
from ddp_perf.render.markdown import markdown_escaped
from ddp_perf.report.directory import work_report_schema, write_work_report
from ddp_perf.report.work_rows import MODELLED, WORK_PAGE, WorkReport
from ddp_perf.work.values import CountedCase, Place
from tests.builders import HOSTILE, make_cases
from tests.work_reports import A100, make_change, make_counted, make_same
from tests.works import make_site

ONE, TWO, OTHER, _ = make_cases(tier="gpu", batch_sizes=[64, 128])
CHANGE = (
    "+2 aten.clone (float32), +134 MB, in backward of layers.* (my_model.py:42 Block.forward);"
    " modelled: +0.073 ms on A100-SXM4-80GB"
)
COST = "about +0.073 ms of 0.0367 ms on A100-SXM4-80GB (modelled)"


@pytest.fixture
def written(tmp_path):
    """Return the texts of the files of a report: a regression, a failure and an equal case."""

    def write(*counted):
        cases = counted or (
            make_counted(case=ONE, options=("ddp.bucket_cap_mb: 25 → 5 (a.yaml:7)",)),
            CountedCase(case=TWO, failure="raised"),
            make_same(case=OTHER),
        )
        write_work_report(tmp_path, cases, {"quick": (A100,)})
        return {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}

    return write


def text_of(page):
    body = page[page.index("<body>") : page.index("<script>")]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_the_page_shows_each_change_with_its_line_and_its_cost(written):
    page = text_of(written()[WORK_PAGE])
    assert "3 cases: 1 REGRESSION, 1 NOT COUNTED, 1 PASS" in page
    assert f"{CHANGE} return self.norm(x)" in page
    assert "changed option: ddp.bucket_cap_mb: 25 → 5 (a.yaml:7)" in page
    assert COST in page
    assert MODELLED in page


def test_cases_of_two_suites_with_one_id_are_told_apart(written):
    other = msgspec.structs.replace(ONE, suite="other")
    files = written(make_same(case=ONE), make_counted(case=other))
    rows = [
        line.split(" | ")[:2] for line in files["work.md"].splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [[f"| other: {ONE.id}", "❌ REGRESSION"], [f"| quick: {ONE.id}", "✅ PASS"]]
    assert f"**other: {ONE.id}: REGRESSION**" in files["work.md"]


def test_the_edited_line_comes_before_the_changes(written):
    edited = make_site(7, "return module(module(x))  # <b>")
    files = written(make_counted(case=ONE, lines=(edited,)))
    page = text_of(files[WORK_PAGE])
    assert "edited line: my_model.py:7 Block.forward: return module(module(x)) # <b>" in page
    assert page.index("edited line") < page.index("+2 aten.clone")
    lines = files["work.md"].splitlines()
    at = lines.index(f"**{ONE.id}: REGRESSION**")
    assert lines[at + 3] == (
        r"- edited line: my\_model.py:7 Block.forward: return module(module(x)) # &lt;b&gt;"
    )


def test_the_page_uses_no_network(written):
    page = written()[WORK_PAGE]
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp", page)


def test_a_page_without_costs_does_not_speak_of_a_model(written):
    assert "modelled" not in written(make_same())[WORK_PAGE]


def test_the_markdown_has_the_finding_with_its_line_and_its_cost(written):
    text = written()["work.md"]
    assert text.startswith("## ❌ RED: work of a training step, counted\n")
    assert "3 cases: 1 REGRESSION, 1 NOT COUNTED, 1 PASS\n" in text
    assert f"- {markdown_escaped(CHANGE)}\n" in text
    assert f"- {COST}\n" in text
    assert f"**{TWO.id}: NOT COUNTED**\n\n\n<pre>raised</pre>\n" in text
    assert f"| {OTHER.id} | ✅ PASS | 3 | 0 | 201 MB | 0 | 0 | 0 bytes |" in text


def test_the_markdown_of_green_cases_has_their_table_alone(written):
    text = written(make_same())["work.md"]
    title, _, rest = text.partition("\n\n")
    assert title == "## ✅ GREEN: work of a training step, counted"
    assert rest.startswith("1 case: 1 PASS\n\n- suite: quick\n\n|")
    assert "details" not in text
    assert MODELLED not in text


def test_long_markdown_ends_with_where_the_rest_is(written):
    many = [make_change(what=f"aten.op{n} (float32)") for n in range(12)]
    text = written(*(make_counted(*many, case=ONE) for _ in range(22)))["work.md"]
    assert text.count("and 2 more changes: see work.html") == 22


def test_the_json_is_valid_and_has_the_rows(written):
    text = written()["work.json"]
    report = msgspec.json.decode(text, type=WorkReport)
    assert [row.case for row in report.rows] == [ONE.id, TWO.id, OTHER.id]
    assert report.rows[0].costs[0].accelerator == A100
    jsonschema.validate(msgspec.json.decode(text), work_report_schema())


def test_hostile_texts_are_escaped(written):
    site = Site(file=HOSTILE, function=HOSTILE, text=HOSTILE, line=1, module=HOSTILE)
    change = make_change(what=HOSTILE, detail=HOSTILE, places=(Place(site=site, count=2),))
    files = written(make_counted(change, reason=HOSTILE, options=(HOSTILE,)))
    for name in (WORK_PAGE, "work.md"):
        assert "<script>alert" not in files[name]
        assert "<svg onload" not in files[name]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "work.md").mkdir()
    with pytest.raises(ResultsError, match=r"work\.md: cannot be written"):
        write_work_report(tmp_path, [make_same()], {})
