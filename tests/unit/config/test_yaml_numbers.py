"""Numbers in suite files are read as in YAML 1.2, and everything else as PyYAML does."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ddp_perf.config.loading import load_suite
from ddp_perf.config.yaml_file import _UniqueKeyLoader

# What YAML 1.2 reads as a number, and YAML 1.1 as text.
EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("2E5", 2e5), ("-1e+3", -1e3), (".5e2", 50.0)]
)
def test_a_number_with_an_exponent_is_a_number(text, value):
    assert _read(text, _UniqueKeyLoader) == repr({"field": value})


def test_a_tolerance_may_have_an_exponent(suite_file):
    path = suite_file(tolerances={"step_time": 0.25})
    path.write_text(path.read_text("utf-8").replace("0.25", "25e-2"), encoding="utf-8")

    assert load_suite(path).tolerances.step_time == 0.25


@given(st.text("0123456789eE+-._:xnaift~\"' ", min_size=1, max_size=8))
@example("1e")
@example("e5")
@example("0x1e3")
@example("1e3.5")
@example("1:30")
@example("12e")
@example("1_000")
@example('"1e3"')
@example("'1e3'")
def test_every_other_text_is_read_as_before(text):
    if EXPONENT.fullmatch(text.strip()):
        return

    assert _read(text, _UniqueKeyLoader) == _read(text, yaml.SafeLoader)


def _read(text, loader):
    """Return what the text of a field is read as; repr, because NaN differs from itself."""
    try:
        return repr(yaml.load(f"field: {text}", Loader=loader))
    except (yaml.YAMLError, ValueError):
        return "refused"
