"""The software of both sides, and its differences."""

from __future__ import annotations

import os
import sys

import msgspec

from ddp_perf.duel.open_sides import OpenSide, differences, option_differences, side_conditions
from ddp_perf.duel.values import SideCase
from tests.builders import FakeLauncher, make_capacity, make_case
from tests.duels import make_conditions
from tests.unit.duel.environments.environments import install
from tests.unit.duel.played_sides import make_prepared


def test_the_packages_of_the_interpreter_of_a_side_are_listed(tmp_path):
    case = make_case()
    prepared = make_prepared(
        "A", tmp_path, command=None, environ=dict(os.environ), interpreter=sys.executable
    )

    found = side_conditions(
        OpenSide(prepared, FakeLauncher()), [SideCase(a=case, b=case)], make_capacity()
    )

    assert found.packages["msgspec"] == msgspec.__version__
    assert found.runtime.torch == "2.13.0"


def test_of_two_versions_of_a_package_the_one_that_ranks_import_is_listed(tmp_path):
    """So it is in an environment that the tool makes: the driver's packages are behind its own."""
    for site, version in (("before", "2.0"), ("behind", "1.0")):
        install(tmp_path / site, "twice", version, "")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path / 'before'}:{tmp_path / 'behind'}"}
    case = make_case()
    prepared = make_prepared("A", tmp_path, command=None, environ=environ)

    found = side_conditions(
        OpenSide(prepared, FakeLauncher()), [SideCase(a=case, b=case)], make_capacity()
    )

    assert found.packages["twice"] == "2.0"


def test_versions_variables_and_packages_that_differ_are_named():
    a = msgspec.structs.replace(make_conditions(torch="2.11.0"), packages={"numpy": "1.26"})
    b = msgspec.structs.replace(
        make_conditions(torch="2.13.0", variables={"NCCL_ALGO": "Ring"}, commit="9d8e7f6"),
        packages={"numpy": "2.0", "extra": "1.0"},
    )

    found = differences(a, b)

    assert [one for one in found if not one.startswith("commit")] == list(found)
    assert set(found) == {
        "torch: 2.11.0 → 2.13.0",
        "NCCL_ALGO: unset → Ring",
        "numpy: 1.26 → 2.0",
        "extra: unset → 1.0",
    }


def test_the_variables_of_a_side_are_no_option_of_the_suite():
    cases = SideCase(a=make_case(env={"LC_ALL": "C"}), b=make_case(env={"OMP_NUM_THREADS": "2"}))
    b = make_prepared("B", variables={"OMP_NUM_THREADS": "2"})

    assert option_differences(cases, make_prepared("A"), b) == ("env.LC_ALL: C → unset",)
