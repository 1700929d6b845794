"""Sizes of collectives as text, and the number of calls in a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.subject import calls_of, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"), [("1KiB", 1024), ("96KiB", 98304), ("1MiB", 2**20), ("1GiB", 2**30)]
)
def test_a_size_is_the_same_after_writing_and_reading(text, size):
    assert parse_size(text) == size
    assert size_text(size) == text


@given(count=st.integers(1, 9999), unit=st.sampled_from(["KiB", "MiB", "GiB"]))
def test_two_texts_of_the_same_size_are_written_in_one_way(count, unit):
    size = parse_size(f"{count}{unit}")

    assert parse_size(size_text(size)) == size
    assert size_text(1024 * 2**10) == "1MiB"


@pytest.mark.parametrize(
    ("payload", "calls"),
    [(2**10, 20), (2**17, 20), (2**18, 16), (2**20, 4), (2**22, 1), (2**30, 1)],
)
def test_a_step_has_the_calls_that_move_4_mib_and_at_most_20(payload, calls):
    assert calls_of(payload) == calls
