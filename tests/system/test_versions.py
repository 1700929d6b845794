"""``ci/versions``: which pairs it chooses, and what its record proves. It installs nothing here."""

from __future__ import annotations

import runpy

import pytest

from ddp_perf.system.gpu.torch_builds import DEFAULT_BUILD
from tests.projects import REPOSITORY

VERSIONS = runpy.run_path(str(REPOSITORY / "ci" / "versions.py"))
Pair, Run, few, page = (VERSIONS[name] for name in ("Pair", "Run", "few", "page"))


def test_each_python_has_its_oldest_and_newest_torch_and_each_torch_a_python():
    # The newest is not built for the oldest Python, nor the oldest for the newest.
    pairs = {Pair(t, p) for t in range(6, 16) for p in range(10, 15)} - {Pair(15, 10), Pair(6, 14)}

    chosen = few(pairs)

    assert {torch for torch, _ in chosen} == set(range(6, 16))
    for python in range(10, 15):
        having = [torch for torch, other in pairs if other == python]
        assert {Pair(min(having), python), Pair(max(having), python)} <= chosen
    between = [pair for pair in chosen if 6 < pair.torch < 15]
    assert len({python for _, python in between}) > 1


def test_one_torch_and_one_python_are_one_pair():
    assert few({Pair(8, 12)}) == {Pair(8, 12)}


def test_the_page_shows_what_failed_and_which_tests_a_version_lacks():
    runs = {
        "2.7-3.11": Run("2.7.1+cpu", "–", "3.11.7", 9, ["test_a::b"], ["no GPU", "older"]),
        "2.6-3.11": Run("2.6.0", "12.4", "3.11.7", 8, [], ["no GPU"]),
    }

    lines = page(runs).splitlines()

    assert "| 2.7.1 | 3.11.7 | 9 | `test_a::b` | 1 |" in lines
    assert "| 2.6.0 | 3.11.7 | 8 | – | – |" in lines
    assert lines[-1] == "1. older"


def test_the_results_are_read_from_the_file_of_pytest(tmp_path):
    (tmp_path / "junit.xml").write_text(
        "<testsuites><testsuite>"
        "<testcase classname='a' name='one'/>"
        "<testcase classname='a' name='two'><failure message='no'/></testcase>"
        "<testcase classname='a' name='three'><skipped message='no GPU'/></testcase>"
        "</testsuite></testsuites>"
    )

    assert VERSIONS["read"](tmp_path / "junit.xml") == (1, ["a::two"], ["no GPU"])
    assert VERSIONS["read"](tmp_path / "none.xml")[1] == ["pytest itself"]


def test_set_up_installs_a_torch_that_was_tested():
    runs = [run for run in VERSIONS["read_record"]().values() if run.torch == DEFAULT_BUILD.version]

    assert runs
    assert all(run.green for run in runs), DEFAULT_BUILD


@pytest.mark.parametrize("path", VERSIONS["TESTS"])
def test_the_tests_that_touch_torch_are_there(path):
    assert (REPOSITORY / path).exists()
