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


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119, "119 s"), (570, "10 min")])
def test_describe_duration_has_the_precision_of_an_estimate(seconds, text):
    assert describe_duration(seconds) == text


def test_milliseconds_have_fixed_digits_and_a_thousands_separator():
    assert [milliseconds(0.01234), milliseconds(1.5), milliseconds(0.0000123, 3)] == [
        "12.34",
        "1,500.00",
        "0.012",
    ]


def test_percent_writes_a_share_and_a_dash_for_an_absent_one():
    assert [percent(0.0404), percent(0.92, 0), percent(None)] == ["4.0%", "92%", "–"]


def test_short_percent_has_three_significant_digits():
    assert [short_percent(0.04), short_percent(0.0025)] == ["4 %", "0.25 %"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.1 - 1, "10 %"),  # 0.10000000000000009
        (0.1001, "11 %"),
        (0.2301, "24 %"),
        (2.5, "250 %"),
        (0.0411, "4.2 %"),
        (0.0999, "10.0 %"),
        (1e-9, "0.1 %"),
    ],
)
def test_a_bound_is_rounded_up(share, text):
    assert at_most_percent(share) == text


def test_a_figure_has_its_interval_if_its_spread_is_known():
    assert with_interval(Estimate.within(2e-5, (1.8e-5, 2.2e-5)), 1e6, "µs") == "20 µs (18–22)"
    assert with_interval(Estimate(value=0.5)) == "0.5"
    assert with_interval(None, 100, "%") == "–"
    assert change_range((0.95, 1.1)) == "-5.0 to +10.0 %"


def test_percent_change_has_a_sign():
    assert [percent_change(1.05), percent_change(0.9), percent_change(1.0012, 2)] == [
        "+5.0 %",
        "-10.0 %",
        "+0.12 %",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.4567, "0.457"),
        (99.96, "100"),
        (999.7, "1000"),
        (12345, "12345"),
        (-250.4, "-250"),
        (float("inf"), "inf"),
    ],
)
def test_short_number_has_three_digits_and_no_power_of_ten(value, text):
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.4567, "0.457"),
        (12.3, "12.3"),
        (8765, "8,765"),
        (12345, "12.3k"),
        (3.2e6, "3.2M"),
        (0, "0"),
        (9e12, "9T"),
    ],
)
def test_prefixed_number_has_three_digits(value, text):
    assert prefixed_number(value) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "case", "0 cases"),
        (1, "launch", "1 launch"),
        (2, "launch", "2 launches"),
        (2, "measured case", "2 measured cases"),
    ],
)
def test_counted_adds_the_plural_ending(count, noun, text):
    assert counted(count, noun) == text


def test_change_text_writes_both_values():
    assert change_text("torch", "2.12", None) == "torch 2.12 → unset"


def test_field_changes_are_sorted_and_name_absent_fields():
    assert field_changes({"b": 1, "a": 2, "c": 3}, {"b": 2, "c": 3}) == [
        "a 2 → unset",
        "b 1 → 2",
    ]


def test_field_changes_keep_the_order_of_the_given_names():
    assert field_changes({"a": 1, "b": 1, "c": 1}, {}, ("b", "a")) == [
        "b 1 → unset",
        "a 1 → unset",
    ]


def test_to_json_is_indented():
    assert to_json({"a": 1}) == '{\n "a": 1\n}'


@pytest.mark.parametrize(
    ("ranks", "per_node", "text"),
    [(8, None, "8"), (8, 8, "8"), (16, 8, "2×8"), (12, 8, "12 on 2")],
)
def test_ranks_are_shown_by_node_if_there_are_several(ranks, per_node, text):
    assert layout_text(ranks, per_node) == text
