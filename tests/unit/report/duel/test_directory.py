"""The files of a duel: each whole, JSON by its schema, and a page without network."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import CaseDuel, MissingSide, PowerEstimate, SideCase
from ddp_perf.errors import ResultsError
from ddp_perf.report.directory import duel_json, duel_schema, write_duel_report
from ddp_perf.report.duel.report import DUEL_PAGE, build_duel
from tests.builders import make_case, make_cases, make_launch
from tests.duels import (
    make_case_duel,
    make_conditions,
    make_duel,
    make_metric_duel,
    make_side_failure,
)
from tests.work_reports import make_change

ONE, TWO, THREE, FOUR = make_cases(batch_sizes=[64, 128])
HOSTILE = "<script>alert(1)</script> <svg onload=x>"


def every_kind():
    """Return a duel with every outcome, a failure, a missing case and different environments."""
    estimate = PowerEstimate(
        case_id=TWO.id,
        metric="step_time",
        launches=3,
        spread=0.02,
        minimum_detectable=None,
        pairs=8,
    )
    return make_duel(
        make_case_duel(DuelOutcome.SLOWER, ONE, work=(make_change(),)),
        make_case_duel(DuelOutcome.UNDECIDED, TWO, aa=(make_launch(TWO),), power=(estimate,)),
        make_case_duel(DuelOutcome.EQUIVALENT, THREE, work=None, uncounted="it raised"),
        CaseDuel(cases=SideCase(a=FOUR, b=FOUR), failures=(make_side_failure("B", FOUR),)),
        missing=(MissingSide(case_id="gpt", reason="side A lacks it"),),
        differences=("torch: 2.11.0 → 2.13.0",),
        conditions={"A": make_conditions(torch="2.11.0"), "B": make_conditions()},
    )


def page_of(duel, directory):
    write_duel_report(directory, duel)
    return (directory / DUEL_PAGE).read_text(encoding="utf-8")


def test_four_files_are_written(tmp_path):
    paths = write_duel_report(tmp_path / "new", every_kind())
    files = ["duel.html", "duel.md", "duel.json", "duel.gl-code-quality-report.json"]
    assert [path.name for path in paths] == files
    assert all(path.is_file() for path in paths)


def test_json_is_valid_by_its_schema_and_has_the_figures_of_each_pair():
    found = json.loads(duel_json(every_kind()))
    jsonschema.validate(found, duel_schema())
    assert found["schema_version"] == 1
    assert found["counts"] == {
        "SLOWER": 1,
        "UNDECIDED": 1,
        "EQUIVALENT": 1,
        "BROKEN": 1,
        "NOT COMPARED": 1,
    }
    slower = found["rows"][0]
    assert slower["pairs"][0]["b"]["step_time"] == pytest.approx(0.011)
    assert slower["metrics"][0]["verdict"]["ratio"] == pytest.approx(1.1)
    assert slower["work"][0]["what"] == "aten.clone (float32)"
    assert found["next"]["command"].startswith("ddp-perf duel main . --case ")


def test_the_page_has_each_case_with_its_plots(tmp_path):
    page = page_of(every_kind(), tmp_path)
    for case in (ONE, TWO, THREE, FOUR):
        assert f"<summary>{case.id} " in page
    assert page.count("<b>Each pair in order of time</b>") == 3
    assert page.count("<b>Where the time of a step goes</b>") == 3
    assert "2.11.0" in page


def test_the_packages_and_fields_of_both_sides_are_listed_those_that_differ_first(tmp_path):
    names = ("nvidia-cublas-cu12", "nvidia-cudnn-cu12")
    a, b = (
        msgspec.structs.replace(
            make_conditions(torch=torch), packages={**dict.fromkeys(names, v), "six": "1"}
        )
        for torch, v in (("2.11.0", "3.4"), ("2.13.0", "3.5"))
    )
    duel = make_duel(conditions={"A": a, "B": b})

    packages, fields = build_duel(duel).sections[-1].parts

    assert [[cell.text for cell in row] for row in packages.rows] == [
        ["nvidia-cublas-cu12", "3.4", "3.5"],
        ["nvidia-cudnn-cu12", "3.4", "3.5"],
    ]
    assert [cell.text for cell in fields.rows[0]] == ["torch", "2.11.0", "2.13.0"]
    differs = [a != b for _, a, b in fields.rows]
    assert differs == sorted(differs, reverse=True)
    page = page_of(duel, tmp_path)
    for name in names:  # a package has no shorter name
        assert f'<td data-v="{name}">{name}</td>' in page


def test_a_duel_without_cases_and_one_with_equal_launches_have_a_page(tmp_path):
    assert "nothing was compared" in page_of(make_duel(), tmp_path)
    case = make_case()
    equal = make_case_duel(
        DuelOutcome.EQUIVALENT,
        case,
        metrics=(make_metric_duel(case, DuelOutcome.EQUIVALENT, interval=(1.0, 1.0)),),
    )
    assert "NaN," not in page_of(make_duel(equal), tmp_path).partition("<script>")[0]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "duel.md").mkdir()
    with pytest.raises(ResultsError, match=r"duel\.md: cannot be written"):
        write_duel_report(tmp_path, make_duel())
