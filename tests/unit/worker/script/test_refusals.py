"""The errors of a script that cannot be measured: docs/scripts.md has a row for each of them."""

from __future__ import annotations

import re

import pytest

from ddp_perf.errors import ScriptError
from ddp_perf.worker.script import refusals
from tests.projects import REPOSITORY
from tests.unit.worker.script.scripts import make_script_case

# A value for each parameter of an error but the case; the table shows the same ones, or others.
VALUES = {
    "how": "at the end of the file",
    "done": 12,
    "steps_at": "train.py:57",
    "needed": 65,
    "others": {1: None},
    "ranks": 1,
    "device": "cpu",
    "wanted": "cuda:0",
    "line": "train.py:80",
}
ERRORS = {
    name: error
    for name, error in vars(refusals).items()
    if getattr(error, "__annotations__", {}).get("return") == ScriptError.__name__
}


def words(text):
    """Return the words of a message without figures, places and what is in brackets."""
    plain = re.sub(r"\([^)]*\)|\S*[\d…]\S*|[,;`]", " ", text)
    return " ".join(plain.replace(" steps", " step").split())


def shown():
    """Return the words of each message in the first column of the page's table."""
    page = (REPOSITORY / "docs" / "scripts.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page.partition("## What goes wrong")[2], re.MULTILINE)
    return [words(message) for row in rows for message in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("steps_by", ["optimizer", "package.engine:step"])
@pytest.mark.parametrize("name", ERRORS)
def test_the_page_has_a_row_for_every_error(name, steps_by):
    names = [one for one in ERRORS[name].__annotations__ if one not in ("case", "return")]
    case = make_script_case(steps_by=steps_by, tier="gpu")
    message = words(str(ERRORS[name](case, **{one: VALUES[one] for one in names})))

    rows = [row for row in shown() if len(row.split()) > 2 and row in message]

    assert rows, message
