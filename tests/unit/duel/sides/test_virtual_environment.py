"""Requirements as sides, and pip's failures in two lines."""

from __future__ import annotations

import sys

import pytest

from ddp_perf.duel.sides.requirements import parse_requirements
from ddp_perf.duel.sides.virtual_environment import failure_of_pip

PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"
TORCH = parse_requirements("torch==2.10.5")


def unknown(version, known):
    return [
        "Looking in indexes: https://pypi.org/simple",
        "ERROR: Could not find a version that satisfies the requirement"
        f" torch=={version} (from versions: {known})",
        f"ERROR: No matching distribution found for torch=={version}",
    ]


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("2.10.5", "2.9.1, 2.10.0, 2.11.0"),
        ("2.99.0", "2.10.0, 2.11.0, 2.12.0rc1"),
        ("1.0", "2.6.0, 2.9.1, 2.10.0"),
    ],
)
def test_a_version_that_pip_does_not_find_gets_the_nearest_ones(version, nearest):
    known = "2.6.0, 2.9.1, 2.10.0, 2.11.0, 2.12.0rc1"
    assert failure_of_pip(unknown(version, known), TORCH).splitlines() == [
        f"torch=={version}: there is no such version for {PYTHON}",
        f"the nearest: {nearest}",
    ]


def test_a_package_that_pip_does_not_find_is_a_wrong_name_or_index():
    first, second = failure_of_pip(unknown("2.11.0", "none"), TORCH).splitlines()
    assert first == "torch==2.11.0: cannot be installed"
    assert second.endswith("check the name and the index")


def test_an_index_that_cannot_be_reached_is_the_reason():
    retry = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'"
    text = failure_of_pip([retry, *unknown("2.11.0", "none")], TORCH)
    assert text.splitlines()[1] == retry


def test_any_other_failure_has_pips_first_error():
    lines = ["Collecting torch", "ERROR: No space left on device", "ERROR: more"]
    assert failure_of_pip(lines, TORCH).splitlines() == [
        "torch==2.10.5: pip cannot install it:",
        "No space left on device",
    ]


@pytest.mark.parametrize(
    ("required", "installed", "met"),
    [
        ("2.11.0", "2.11.0", True),
        ("2.11.0", "2.11.0+cu130", True),
        ("2.11", "2.11.0", True),
        ("2.10", "2.1", False),
        ("2.11.0", "2.11.1", False),
        ("2.11.0+cpu", "2.11.0+cu130", False),
    ],
)
def test_an_installed_version_meets_a_requirement(required, installed, met):
    (requirement,) = parse_requirements(f"torch=={required}")
    assert requirement.is_met_by(installed) == met
