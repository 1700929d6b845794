"""The results file contains the whole result, is read back, and is never half written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.save import Saved
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Delta, Explanation, Outcome
from ddp_perf.errors import ResultsError
from ddp_perf.session.result import ResultsFile, read_results, results_schema, write_results
from tests.builders import (
    make_baseline,
    make_case,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)


@pytest.fixture
def result():
    case = make_case()
    measurement = msgspec.structs.replace(
        make_measurement(case, [0.01, 0.011]),
        failures=(make_failure(case, stacks={"rank 0": "x"}),),
    )
    finding = make_finding(case, Outcome.REGRESSION, ratio=1.1, interval=(1.05, 1.15))
    finding = finding.noted(NoteKind.SUSPECTS, "3", outcome=Outcome.REGRESSION)
    return make_result(
        [measurement], findings=(finding,), saved={case.id: Saved(path="cpu.json", mode="append")}
    )


def test_results_are_read_back_as_written(tmp_path, result):
    path = tmp_path / "results.json"

    write_results(path, [result], complete=True)

    assert read_results(path) == ResultsFile(schema_version=1, complete=True, suites=(result,))


def test_a_baseline_file_is_refused_by_its_kind(tmp_path):
    path = BaselineStore(tmp_path).update("h200", lambda _: make_baseline(accelerator="h200"))

    with pytest.raises(ResultsError, match="this is a baseline file, not the results of a ") as why:
        read_results(path)
    assert "DIR/results.json of --ddp-report=DIR" in str(why.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param('"schema_version":1', '"version":1', "schema_version: missing", id="none"),
        pytest.param('"schema_version":1', '"schema_version":"3"', "is '3', this", id="text"),
        pytest.param('"suites":[', '"suits":[', "missing required field `suites`", id="field"),
        pytest.param('"complete":true', '"complete":1', "complete: Expected `bool`", id="type"),
        pytest.param(
            '"control_s":0.002,', '"control_s":-1,', "[0].control_s: -1.0 is no", id="negative"
        ),
        pytest.param(
            '"control_s":0.002,', '"control_s":1e999,', "[0].control_s: Expected", id="infinite"
        ),
        pytest.param('"control_s":[0.002', '"control_s":[NaN', "ranks[0].control_s[0]: ", id="NaN"),
        pytest.param('{"step_time":0.01,', "{", "[0].values.step_time: missing", id="no metric"),
        pytest.param('"date":"2026-01-02', '"date":"on 2026', "[0].date: 'on 2026", id="date"),
        pytest.param('"step_s":[0.01,', '"step_s":[0.0,', "a rank has no step", id="no time"),
        pytest.param('"world_size":2', '"world_size":3', "launches[0].ranks: 2 ranks,", id="ranks"),
        pytest.param('"case":{"id":"mlp', '"case":{"id":"x', ".case.id: is 'x-", id="id"),
    ],
)
def test_a_changed_file_is_refused_with_file_field_and_remedy(tmp_path, result, old, new, expected):
    path = tmp_path / "results.json"
    write_results(path, [result], complete=True)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(ResultsError) as caught:
        read_results(path)

    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "pytest --ddp-json" in message
    assert "\n" not in message


def test_an_explanation_is_read_back(tmp_path, result):
    term = Delta(name="forward", before=0.1, after=0.2, uncertainty=0.01)
    (case_id,) = result.measurements
    why = Explanation(case_id=case_id, step_change_s=0.1, causes=(), terms=(term,), launches=5)
    explained = msgspec.structs.replace(result, explanations={case_id: why})
    path = tmp_path / "results.json"

    write_results(path, [explained], complete=True)

    assert read_results(path).suites == (explained,)
    assert b'"before_s":0.1' in path.read_bytes()  # with the unit


def test_a_launch_without_overhead_is_read_back(tmp_path, result):
    path = tmp_path / "results.json"
    ((case_id, rows),) = result.summaries.items()
    rows = tuple(msgspec.structs.replace(row, overhead_s=0.0) for row in rows)
    written = msgspec.structs.replace(result, summaries={case_id: rows})
    write_results(path, [written], complete=True)

    assert read_results(path).suites == (written,)


def test_a_launch_without_its_summary_is_refused(tmp_path, result):
    path = tmp_path / "results.json"
    write_results(path, [msgspec.structs.replace(result, summaries={})], complete=True)

    with pytest.raises(ResultsError, match="0 summaries of 2 launches"):
        read_results(path)


def test_a_field_that_changes_its_type_needs_a_new_version():
    """The file is of an earlier state of this version: as long as it is the newest, it is read."""
    path = Path(__file__).parent / "recorded" / "results_version_1.json"

    (suite,) = read_results(path).suites

    assert suite.findings
    assert all(launch.losses for launch in suite.measurements["mlp-ddp-fp32-ws2-b64"].launches)


def test_a_case_of_another_shape_is_refused_by_its_field_and_not_read_with_defaults(tmp_path):
    """Its options would be those of another training, and so would its fingerprint."""
    recorded = Path(__file__).parent / "recorded" / "results_version_1.json"
    text = recorded.read_text(encoding="utf-8").replace('"training":{', '"trained":{')
    (tmp_path / "old.json").write_text(text, encoding="utf-8")

    with pytest.raises(
        ResultsError, match=r"old\.json: .*case: .*unknown field `trained`; write it"
    ):
        read_results(tmp_path / "old.json")


def test_a_session_without_results_is_written(tmp_path):
    path = tmp_path / "results.json"

    write_results(path, [], complete=True)

    assert msgspec.json.decode(path.read_bytes()) == {
        "schema_version": 1,
        "complete": True,
        "suites": [],
    }


def test_a_full_disk_leaves_the_last_results(tmp_path, result, monkeypatch):
    path = tmp_path / "results.json"
    write_results(path, [], complete=False)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_results(path, [result], complete=True)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_schema_describes_the_file_as_written(tmp_path, result):
    path = tmp_path / "results.json"
    write_results(path, [result], complete=True)
    written = msgspec.json.decode(path.read_bytes())

    schema = results_schema()["$defs"]

    assert schema["ResultsFile"]["properties"].keys() == written.keys()
    assert schema["SuiteResult"]["properties"].keys() == written["suites"][0].keys()


def test_a_file_without_asserted_metrics_is_read_as_one_in_which_all_verdicts_count(
    tmp_path, result
):
    path = tmp_path / "results.json"
    (case_id,) = result.measurements
    write_results(
        path, [msgspec.structs.replace(result, asserted={case_id: ("tail",)})], complete=True
    )
    text = path.read_text(encoding="utf-8")
    written = f',"asserted":{{"{case_id}":["tail"]}}'
    assert written in text

    path.write_text(text.replace(written, ""), encoding="utf-8")

    assert read_results(path).suites == (result,)
