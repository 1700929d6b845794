"""``ddp-perf explain``: the explanation in a results file."""

from __future__ import annotations

from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.session.result import write_results
from tests.builders import (
    make_cases,
    make_collectives,
    make_measurement,
    make_probe,
    make_result,
)

ONE, TWO = make_cases()


def explain(path, *measurements):
    write_results(path, [make_result(list(measurements))], complete=True)
    return CliRunner().invoke(app, ["explain", str(path)])


def test_explain_prints_terms_and_advice_of_each_case(tmp_path):
    done = explain(
        tmp_path / "results.json",
        make_measurement(ONE, [0.0071], probe=make_probe(exposed=0.0, communication=())),
        make_measurement(TWO, [0.0111], probe=make_probe()),
    )
    assert done.exit_code == 0
    assert "ms a step" in done.stdout
    shown = " ".join(done.stdout.split())
    assert "rank 1 (cpu, cores 1): works 7.10 ms, waits 3.00 ms, last in 0% of the steps" in shown
    assert "\n  Fair: 64% efficiency on 2 ranks\n" in done.stdout


def test_explain_reports_launches_without_a_profile(tmp_path):
    done = explain(tmp_path / "results.json", make_measurement(TWO, [0.0111]))
    assert done.exit_code == 0
    assert "no launch profiled its steps" in done.stdout


def test_collectives_have_no_parts_to_explain(tmp_path):
    case = make_collectives()[0]
    done = explain(tmp_path / "results.json", make_measurement(case, [0.0111]))
    assert done.exit_code == 0
    assert "this suite measures collectives: their steps have no parts" in done.stdout


def test_a_file_without_results_is_refused_in_one_line(tmp_path):
    done = CliRunner().invoke(app, ["explain", str(tmp_path / "missing.json")])
    assert done.exit_code == 4
    assert "missing.json: cannot be read" in done.stderr


def test_a_missing_argument_is_refused_with_where_such_files_come_from():
    done = CliRunner().invoke(app, ["explain"])

    assert done.exit_code == 4
    assert done.stderr == (
        "ddp-perf: Missing argument 'RESULTS.json': written by pytest --ddp-json=FILE;"
        " --ddp-report=DIR writes DIR/results.json.\n"
    )
