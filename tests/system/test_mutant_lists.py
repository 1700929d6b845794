"""The lists of mutants fit the code: each changes one line, and names tests that exist."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.projects import REPOSITORY
from tests.quality.mutants import LISTS, MutantList


@pytest.fixture(params=sorted(LISTS.glob("*.yaml")), ids=lambda path: path.stem)
def mutants(request):
    return msgspec.yaml.decode(request.param.read_bytes(), type=MutantList).mutants


def test_a_mutant_changes_exactly_one_line_of_the_package(mutants):
    for mutant in mutants:
        text = (REPOSITORY / "ddp_perf" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.line) == 1, mutant.name


def test_each_pattern_of_a_mutant_begins_like_a_test_or_a_parameter(mutants):
    for mutant in mutants:
        paths = [REPOSITORY / "tests" / name for name in mutant.tests]
        files = [
            file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))
        ]
        text = "\n".join(str(file) + file.read_text(encoding="utf-8") for file in files)
        for pattern in mutant.kills:
            begin = re.split(r"[.*+?|()\[\]\\^$]", pattern)[0]
            assert begin in text, f"{mutant.name}: no test of {mutant.tests} is named {pattern}"
