"""Requirements as sides."""

from __future__ import annotations

import pytest

from ddp_perf.duel.sides.virtual_environment import parse_requirements


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
