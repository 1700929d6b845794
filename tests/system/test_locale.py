"""A session in a terminal whose encoding lacks characters of the tables."""

from __future__ import annotations

import pytest

from tests.projects import TINY, make_project

GOOD = TINY.replace("[1, 2]", "[1]").replace("launches: 2", "launches: 1")
BROKEN = """
suite: broken
tier: cpu
workload: broken:build
world_sizes: [1]
batch_sizes: [16]
launches: 1
"""


@pytest.fixture
def ascii_terminal(monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("PYTHONUTF8", "0")


@pytest.mark.slow
@pytest.mark.usefixtures("ascii_terminal")
def test_a_session_shows_its_tables_in_an_ascii_terminal(pytester, monkeypatch):
    make_project(pytester, monkeypatch, good=GOOD, broken=BROKEN)
    pytester.makepyfile(broken="def build(context): raise ValueError('größer – als')")

    done = pytester.runpytest_subprocess("-m", "perf", "-k", "step_time")

    done.assert_outcomes(failed=1, errors=1)  # no baseline; no launch
    done.stdout.fnmatch_lines(
        ["ddp: FAILED: broken* launch 1: *gr\\xf6\\xdfer \\u2013 als*", "case * verdict *"]
    )
    done.stdout.no_fnmatch_line("*UnicodeEncodeError*")
