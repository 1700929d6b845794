"""The packages of two interpreters are listed by these themselves, and their files compared."""

from __future__ import annotations

import os
import sys

import pytest

from ddp_perf.duel.environments.factors import changed_distributions, check_compatible
from ddp_perf.duel.inventory import read_inventory
from ddp_perf.errors import SideError
from tests.unit.duel.environments.environments import install, make_distribution, make_inventory


@pytest.fixture
def inventory(tmp_path):
    def listed(name):
        (tmp_path / name).mkdir(exist_ok=True)
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / name)}
        return read_inventory(sys.executable, environ)

    return listed


def changes_between(before, after):
    return [change.label for change in changed_distributions(before, after)]


def test_versions_and_patched_files_differ(tmp_path, inventory):
    for site in ("a", "b"):
        install(tmp_path / site, "same", "1.0", "x = 1\n")
        install(tmp_path / site, "patched", "1.0", "x = 1\n")
    install(tmp_path / "a", "newer", "1.0", "")
    install(tmp_path / "b", "newer", "2.0", "")
    install(tmp_path / "b", "added", "0.1", "")
    # Of the same size, and with the hash of RECORD as it was: only its content shows it.
    (tmp_path / "b" / "patched" / "__init__.py").write_text("x = 2\n")

    assert changes_between(inventory("a"), inventory("b")) == [
        "added 0.1 (absent before)",
        "newer 1.0 → 2.0",
        "patched 1.0 (other files)",
    ]


def test_a_package_that_both_see_at_one_place_is_the_same(inventory):
    found = inventory("a")

    assert "pytest" in found.distributions
    assert changes_between(found, inventory("b")) == []


def test_an_interpreter_that_does_not_answer_is_refused_in_one_line():
    with pytest.raises(SideError, match=r"/no/python: its packages cannot be listed"):
        read_inventory("/no/python", {})


def test_another_version_of_python_is_refused():
    other = make_inventory(make_distribution("x"), python="3.12.1", abi="cpython-312")

    with pytest.raises(SideError, match=r"Python 3.11.2 and 3.12.1 .*the same Python"):
        check_compatible(make_inventory(), other)
