"""Durations as people write and read them."""

import pytest

from ddp_perf.errors import ConfigError
from ddp_perf.render.units import describe_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1.5h", 5400), ("0.5s", 0.5)]
)
def test_a_duration_is_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10 m", "10min", "-5s", "1e3s", "0s", "0.0m", "١s"]
)
def test_what_is_no_duration_is_refused_with_the_form(text):
    with pytest.raises(ConfigError, match="as in 90s, 10m or 1h"):
        parse_duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (119, "119 s"), (570, "10 min")])
def test_a_duration_is_told_no_finer_than_it_is_known(seconds, text):
    assert describe_duration(seconds) == text
