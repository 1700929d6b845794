"""A baseline file is reviewed as a diff: it is stable, sorted, with one launch a line."""

from __future__ import annotations

import difflib
import json
import math

import msgspec
import pytest

from ddp_perf.baselines.writing import format_json
from tests.builders import make_baseline, make_case, make_case_baseline, make_session


def text_of(*sessions):
    case = make_case()
    baseline = make_baseline({case.id: make_case_baseline(case, *sessions)})
    return format_json(msgspec.to_builtins(baseline))


def test_each_launch_is_one_line():
    lines = [line for line in text_of(make_session([0.01, 0.02])).splitlines() if "step_t" in line]

    assert [line.strip() for line in lines[1:3]] == [
        '{"control": 0.002, "cpu_time": 0.009, "median_step_time": 0.01, "peak_memory": 1000.0,'
        ' "step_time": 0.01, "tail": 1.0},',
        '{"control": 0.002, "cpu_time": 0.009, "median_step_time": 0.02, "peak_memory": 1000.0,'
        ' "step_time": 0.02, "tail": 1.0}',
    ]


def test_an_appended_session_only_adds_lines():
    first, second = make_session([0.01, 0.02]), make_session([0.03, 0.04], day=2)

    diff = difflib.ndiff(text_of(first).splitlines(), text_of(first, second).splitlines())

    changed = [line for line in diff if not line.startswith("  ")]
    assert changed
    assert {line[0] for line in changed} == {"+"}


def test_keys_are_sorted_at_every_depth():
    value = {"b": {"d": 1, "c": [{"f": 1, "e": 2}]}, "a": {}}

    def keys(pairs):
        assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
        return dict(pairs)

    assert json.loads(format_json(value), object_pairs_hook=keys) == value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="empty object"),
        pytest.param({"a": []}, id="empty list"),
        pytest.param({"a": {"b": {}}}, id="empty inside"),
        pytest.param({"α": "µs “quoted” \\ \n"}, id="text"),
        pytest.param([[1, 2], [3]], id="lists of lists"),
        pytest.param({"a": None, "b": True, "c": 10**15}, id="scalars"),
    ],
)
def test_the_formatted_text_is_json(value):
    text = format_json(value)

    assert json.loads(text) == value
    assert text.endswith("\n")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_never_written(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        format_json({"step_s": value})
