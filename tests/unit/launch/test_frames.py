"""Messages as marked lines among the lines of other programs."""

from __future__ import annotations

import pytest

from ddp_perf.launch import protocol
from ddp_perf.launch.protocol import framed, is_framed, unframed


@pytest.mark.parametrize("data", [b"", b"\xff\n ddp-perf-outcome ", b"{}" * 10**5])
def test_a_message_survives_beside_other_text(data):
    line = framed(data)

    assert "\n" not in line
    assert unframed(line) == unframed(f"== no end of line {line}\r") == data


@pytest.mark.parametrize("line", ["== banner ==", framed(b"{}")[:-3]])
def test_a_line_without_a_whole_message_has_none(line):
    assert unframed(line) is None


def test_a_part_of_a_message_is_told_from_other_text():
    assert is_framed(framed(b"{}")[:-3])
    assert not is_framed("== banner ==")


def test_a_message_that_unpacks_to_more_than_the_limit_is_none(monkeypatch):
    monkeypatch.setattr(protocol, "_MOST", 1000)

    assert unframed(framed(b"0" * 1000)) == b"0" * 1000
    assert unframed(framed(b"0" * 1001)) is None
