"""Messages as marked lines among the lines of other programs, and the signs of life in them."""

from __future__ import annotations

import contextlib
import os

import pytest

from ddp_perf.launch import protocol
from ddp_perf.launch.protocol import BrokenMessageError, Channel, framed, unframed


@pytest.mark.parametrize("data", [b"", b"\xff\n ddp-perf-message ", b"{}" * 10**5])
def test_a_message_survives_beside_other_text(data):
    line = framed(data)

    assert b"\n" not in line
    assert unframed(line) == unframed(b"== no end of line " + line + b"\r") == data


@pytest.mark.parametrize(
    "line",
    [b"== banner ==", framed(b"{}")[:-3], b"ddp-perf-message eJw=", b"ddp-perf-message \xe4"],
    ids=["another line", "a part of it", "half of it", "not base64"],
)
def test_a_line_without_a_whole_message_has_none(line):
    assert unframed(line) is None


def test_a_message_that_unpacks_to_more_than_the_limit_is_none(monkeypatch):
    monkeypatch.setattr(protocol, "_MOST", 1000)

    assert unframed(framed(b"0" * 1000)) == b"0" * 1000
    assert unframed(framed(b"0" * 1001)) is None


@pytest.fixture
def ends():
    """The ends of a server and of a driver."""
    to_driver, to_server = os.pipe(), os.pipe()
    server, driver = Channel(to_server[0], to_driver[1]), Channel(to_driver[0], to_server[1])
    with contextlib.closing(server), contextlib.closing(driver):
        yield server, driver


def test_messages_arrive_in_order_among_other_lines(ends):
    server, driver = ends

    server.send(b"first")
    server.send_line(b"pulling the image\n")
    server.send(b"second")

    assert [driver.receive(), driver.receive()] == [b"first", b"second"]
    assert driver.printed() == ["pulling the image"]
    assert driver.receive(0) is None


def test_a_beat_is_a_sign_of_life_and_no_message(ends):
    server, driver = ends

    server.beat()

    assert driver.receive(0) is None
    assert driver.beats == 1


def test_beats_that_nobody_reads_do_not_pile_up(ends):
    server, driver = ends

    for _ in range(1000):
        server.beat()

    assert driver.receive(0) is None
    assert driver.beats == 1


def test_the_parts_of_a_long_message_are_signs_of_life(ends):
    server, driver = ends
    line = framed(os.urandom(2**18)) + b"\n"

    for start in range(0, len(line), 2**15):
        server.send_line(line[start : start + 2**15])
        driver.read()

    assert driver.beats == -(-len(line) // 2**15)
    assert driver.pending


def test_a_line_of_another_program_is_no_sign_of_life(ends):
    server, driver = ends

    server.send_line(b"a progress bar without an end")
    driver.read()

    assert driver.beats == 0
    assert driver.printed() == ["a progress bar without an end"]


def test_an_end_that_is_closed_ends_the_wait_of_the_other(ends):
    server, driver = ends
    server.close()

    with pytest.raises(EOFError):
        driver.receive()
    with pytest.raises(BrokenPipeError):
        driver.send(b"x")
    driver.beat()  # the end shows when it reads
    server.close()  # a second call does nothing


@pytest.mark.parametrize("line", [framed(b"{}")[:-3], b"ddp-perf-message \xe4"])
def test_a_message_that_something_was_printed_into_ends_the_wait(ends, line):
    """Both ends would wait for each other, and give signs of life."""
    server, driver = ends

    server.send_line(b"text " + line + b"\n")

    with pytest.raises(BrokenMessageError):
        driver.receive(10)
