"""The policy that ARCHITECTURE.md shows, with its own tests."""

from __future__ import annotations

import re

import pytest

from tests.projects import REPOSITORY

TEXT = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
SHOWN: dict = {}
exec(compile(CODE, "ARCHITECTURE.md", "exec"), SHOWN)


@pytest.mark.parametrize("name", [name for name in SHOWN if name.startswith("test_")])
def test_the_shown_policy_does_what_its_tests_say(name):
    SHOWN[name]()


def test_a_policy_takes_few_lines():
    assert len(CODE.strip().splitlines()) < 60
