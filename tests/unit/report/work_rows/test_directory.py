"""The files of the work report, with the same cases: see test_canonical.py for their texts."""

from __future__ import annotations

import html

import jsonschema
import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.report.directory import work_report_schema, write_work_report
from ddp_perf.report.work_rows import MODELLED, WORK_PAGE, WorkReport
from ddp_perf.work.values import CountedCase
from tests.builders import make_cases
from tests.pages import page_text
from tests.work_reports import A100, make_change, make_counted, make_same
from tests.works import make_site

ONE, TWO, OTHER, _ = make_cases(tier="gpu", batch_sizes=[64, 128])


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


def test_cases_of_two_suites_with_one_id_are_told_apart(written):
    other = msgspec.structs.replace(ONE, suite="other")
    files = written(make_same(case=ONE), make_counted(case=other))
    rows = [
        line.split(" | ")[:2] for line in files["work.md"].splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [[f"| other: {ONE.id}", "❌ REGRESSION"], [f"| quick: {ONE.id}", "✅ PASS"]]
    assert f"<summary>other: {ONE.id}: REGRESSION</summary>" in files["work.md"]


def test_the_edited_line_comes_before_the_changes(written):
    edited = make_site(7, "return module(module(x))  # <b>")
    files = written(make_counted(case=ONE, lines=(edited,)))
    page = page_text(files[WORK_PAGE].encode())
    assert "edited line: my_model.py:7 Block.forward: return module(module(x)) # <b>" in page
    assert page.index("edited line") < page.index("+2 aten.clone")
    lines = files["work.md"].splitlines()
    at = lines.index(f"<details><summary>{ONE.id}: REGRESSION</summary>")
    assert lines[at + 3] == (
        r"- edited line: my\_model.py:7 Block.forward: return module(module(x)) # &lt;b&gt;"
    )


def test_only_costs_are_called_modelled_and_a_failure_is_shown_as_printed(written):
    files = written()
    assert MODELLED in html.unescape(files[WORK_PAGE])
    assert "<pre>raised</pre>" in files["work.md"]
    green = written(make_same())
    assert "modelled" not in green[WORK_PAGE] + green["work.md"]


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


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "work.md").mkdir()
    with pytest.raises(ResultsError, match=r"work\.md: cannot be written"):
        write_work_report(tmp_path, [make_same()], {})
