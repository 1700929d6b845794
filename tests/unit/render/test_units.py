"""Durations, numbers, shares and changes as text."""

import pytest

from ddp_perf.errors import ConfigError
from ddp_perf.render.units import (
    at_most_percent,
    change_range,
    change_text,
    counted,
    describe_duration,
    field_changes,
    layout_text,
    milliseconds,
    parse_duration,
    percent,
    percent_change,
    prefixed_number,
    short_number,
    short_percent,
    to_json,
    with_interval,
)
from ddp_perf.stats.interval import Estimate


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1.5h", 5400), ("0.5s", 0.5)]
)
def test_parse_duration_returns_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10 m", "10min", "-5s", "1e3s", "0s", "0.0m", "١s"]
)
def test_parse_duration_refuses_other_text_and_states_the_form(text):
    with pytest.raises(ConfigError, match="as in 90s, 10m or 1h"):
        parse_duration(text)


TEXTS = [
    (describe_duration, {(0,): "0 s", (119,): "119 s", (570,): "10 min"}),
    (milliseconds, {(0.01234,): "12.34", (1.5,): "1,500.00", (0.0000123, 3): "0.012"}),
    (percent, {(0.0404,): "4.0%", (0.92, 0): "92%", (None,): "–"}),
    (short_percent, {(0.04,): "4 %", (0.0025,): "0.25 %"}),
    (percent_change, {(1.05,): "+5.0 %", (0.9,): "-10.0 %", (1.0012, 2): "+0.12 %"}),
    (change_range, {((0.95, 1.1),): "-5.0 to +10.0 %"}),
    (
        at_most_percent,  # rounded up
        {
            (1.1 - 1,): "10 %",  # 0.10000000000000009
            (0.1001,): "11 %",
            (0.2301,): "24 %",
            (2.5,): "250 %",
            (0.0411,): "4.2 %",
            (0.0999,): "10.0 %",
            (1e-9,): "0.1 %",
        },
    ),
    (
        short_number,  # three digits, and no power of ten
        {
            (0.4567,): "0.457",
            (99.96,): "100",
            (999.7,): "1000",
            (12345,): "12345",
            (-250.4,): "-250",
            (float("inf"),): "inf",
        },
    ),
    (
        prefixed_number,
        {
            (0.4567,): "0.457",
            (12.3,): "12.3",
            (8765,): "8,765",
            (12345,): "12.3k",
            (3.2e6,): "3.2M",
            (0,): "0",
            (9e12,): "9T",
        },
    ),
    (
        counted,
        {
            (0, "case"): "0 cases",
            (1, "launch"): "1 launch",
            (2, "launch"): "2 launches",
            (2, "measured case"): "2 measured cases",
        },
    ),
    (change_text, {("torch", "2.12", None): "torch 2.12 → unset"}),
    (layout_text, {(8, None): "8", (8, 8): "8", (16, 8): "2×8", (12, 8): "12 on 2"}),
]


@pytest.mark.parametrize(("write", "texts"), TEXTS, ids=[one.__name__ for one, _ in TEXTS])
def test_a_figure_has_its_digits_and_its_unit(write, texts):
    assert {values: write(*values) for values in texts} == texts


def test_a_figure_has_its_interval_if_its_spread_is_known():
    assert with_interval(Estimate.within(2e-5, (1.8e-5, 2.2e-5)), 1e6, "µs") == "20 µs (18–22)"
    assert with_interval(Estimate(value=0.5)) == "0.5"
    assert with_interval(None, 100, "%") == "–"


def test_changes_of_fields_are_sorted_or_in_the_given_order():
    before = {"b": 1, "a": 2, "c": 3}

    assert field_changes(before, {"b": 2, "c": 3}) == ["a 2 → unset", "b 1 → 2"]
    assert field_changes(before, {}, ("b", "a")) == ["b 1 → unset", "a 2 → unset"]


def test_to_json_is_indented():
    assert to_json({"a": 1}) == '{\n "a": 1\n}'
