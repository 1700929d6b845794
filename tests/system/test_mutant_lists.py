"""The lists of mutants fit the code: each changes one line, and names tests that exist."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.projects import REPOSITORY
from tests.quality.mutants import LISTS, MutantList

MUTANTS = [
    pytest.param(mutant, id=f"{path.stem}: {mutant.name}")
    for path in sorted(LISTS.glob("*.yaml"))
    for mutant in msgspec.yaml.decode(path.read_bytes(), type=MutantList).mutants
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_changes_exactly_one_line_of_the_package(mutant):
    text = (REPOSITORY / "ddp_perf" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.line) == 1


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_pattern_of_a_mutant_begins_like_a_test_or_a_parameter(mutant):
    paths = [REPOSITORY / "tests" / name for name in mutant.tests]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    text = "\n".join(str(file) + file.read_text(encoding="utf-8") for file in files)
    for pattern in mutant.kills:
        begin = re.split(r"[.*+?|()\[\]\\^$]", pattern)[0]
        assert begin in text, f"no test of {mutant.tests} is named like {pattern}"
