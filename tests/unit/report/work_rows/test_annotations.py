"""GitHub's annotations of lines with more work."""

from __future__ import annotations

from pathlib import Path

from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import Site
from ddp_perf.report.annotations import work_annotation_lines
from ddp_perf.work.values import CountedCase, Place
from tests.builders import make_cases
from tests.work_reports import make_change, make_counted, make_same, make_work_report
from tests.works import SITE, make_site

CASES = make_cases(tier="gpu")


def annotated(*counted, roots=(), repository=Path("/nowhere")):
    return work_annotation_lines(make_work_report(*counted), roots, repository)


def test_a_regression_is_an_error_at_its_line():
    (line,) = annotated(make_counted(case=CASES[0]))
    assert line == (
        f"::error file=my_model.py,line=42,title=REGRESSION%3A {CASES[0].id}"
        "::+2 aten.clone (float32), +134 MB; the case: about +0.073 ms of 0.0367 ms on"
        " A100-SXM4-80GB (modelled)"
    )


def test_a_line_that_two_cases_share_is_annotated_once():
    (line,) = annotated(*(make_counted(case=case) for case in CASES))
    assert "and in 1 other case" in line


def test_changes_of_one_line_are_one_annotation():
    other = make_change(what="aten.add (float32)", name="aten.add", bytes=0)
    (line,) = annotated(make_counted(make_change(), other))
    assert "::+2 aten.clone (float32), +134 MB; +2 aten.add (float32);" in line


def test_a_change_is_annotated_at_the_edited_line_that_made_it():
    edited, other = make_site(7, "return module(module(x))"), make_site(9, "y = x.clone()")
    at_both = make_change(places=(Place(site=SITE, count=2), Place(site=other, count=1)))
    first, second = annotated(make_counted(make_change(), at_both, lines=(edited, other)))
    assert "file=my_model.py,line=7," in first
    assert "file=my_model.py,line=9," in second


def test_a_changed_option_comes_first():
    (line,) = annotated(make_counted(options=("ddp.bucket_cap_mb: 25 → 5 (a.yaml:7)",)))
    assert "::changed option%3A" not in line
    assert "::changed option: ddp.bucket_cap_mb: 25 → 5 (a.yaml:7); +2 aten.clone" in line


def test_the_file_is_relative_to_the_repository(tmp_path):
    models = tmp_path / "repository" / "models"
    models.mkdir(parents=True)
    (models / "my_model.py").touch()
    (line,) = annotated(
        make_counted(), roots=[tmp_path, models], repository=tmp_path / "repository"
    )
    assert "file=models/my_model.py,line=42" in line


def test_a_regression_without_a_line_and_a_failure_are_errors_of_their_case():
    fewer = make_change(before=3, after=1, places=(Place(site=SITE, count=-2),))
    failure = CountedCase(case=CASES[1], failure="raised\nat 100 %")
    less, failed = annotated(make_counted(fewer, case=CASES[0]), failure)
    assert less.startswith(f"::error title=REGRESSION%3A {CASES[0].id}::the step does more work")
    assert failed == f"::error title=NOT COUNTED%3A {CASES[1].id}::raised%0Aat 100 %25"


def test_only_red_cases_are_annotated():
    assert annotated(make_same(), make_counted(outcome=Outcome.INCOMPARABLE)) == []


def test_a_file_name_with_commas_is_escaped():
    site = Site(file="a,b:c.py", function="f", text="x", line=1)
    (line,) = annotated(make_counted(make_change(places=(Place(site=site, count=2),))))
    assert "file=a%2Cb%3Ac.py,line=1" in line


def test_there_are_no_more_than_github_shows():
    changes = [
        make_change(places=(Place(site=Site(file="m.py", function="f", text="", line=n), count=1),))
        for n in range(12)
    ]
    assert len(annotated(make_counted(*changes))) == 10
