"""The live line on a terminal: what it shows, on narrow and plain terminals, and that it goes."""

from __future__ import annotations

import io
import re

import pytest

from ddp_perf.render.tables import LiveBar
from tests.terminals import Screen


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")


def test_the_line_shows_the_newest_text_and_disappears_at_the_end():
    screen = Screen()

    with LiveBar(screen) as bar:
        bar.show(1, 4, "one")
        bar.show(2, 4, "two [of four]")  # no markup
        (line,) = screen.lines

    assert line.split(maxsplit=1)[1] == "two [of four]"
    assert screen.lines == []


def test_lines_of_others_stay_above_it():
    screen = Screen()

    with LiveBar(screen) as bar:
        bar.show(1, 4, "one")
        with bar.hidden():
            screen.write("a failure\n")
        during = screen.lines

    assert during[0] == "a failure"
    assert during[1].endswith("one")
    assert screen.lines == ["a failure"]


@pytest.mark.parametrize("columns", [21, 30, 45])
def test_a_narrow_terminal_shows_the_beginning_in_one_line(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()

    with LiveBar(screen) as bar:
        bar.show(3, 20, "3/20, about 40 s left, mlp-ddp-fp32-ws2-b64: 12.41 ms a step")
        (line,) = screen.lines

    assert len(line) <= columns
    assert line.startswith("━")
    assert screen.lines == []


def test_no_color_writes_no_colours(monkeypatch):
    def colours():
        screen = Screen()
        with LiveBar(screen) as bar:
            bar.show(1, 4, "one")
            assert screen.lines[0].endswith("one")
        return re.findall(r"\x1b\[[\d;]*m", screen.getvalue())

    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


def test_a_terminal_that_lacks_a_character_of_a_name_shows_a_substitute():
    screen = Screen()
    screen.encoding = "ascii"

    with LiveBar(screen) as bar:
        bar.show(1, 4, "größe")
        (line,) = screen.lines

    assert line.endswith("gr??e")
    assert screen.getvalue().isascii()


@pytest.mark.parametrize(
    ("stream", "setting"),
    [
        (io.StringIO, ("TERM", "xterm")),
        (io.StringIO, ("FORCE_COLOR", "1")),
        (Screen, ("TERM", "dumb")),
    ],
    ids=["log", "log in colour", "dumb terminal"],
)
def test_elsewhere_nothing_is_written(monkeypatch, stream, setting):
    monkeypatch.setenv(*setting)
    stream = stream()

    with LiveBar(stream) as bar:
        bar.show(1, 4, "one")

    assert not bar.is_possible
    assert stream.getvalue() == ""
