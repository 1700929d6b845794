"""One table of exit codes: what the pages, the scripts and every command say of them."""

from __future__ import annotations

import re

import pytest
import typer.main
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.errors import ExitCode
from tests.projects import REPOSITORY

ALL = {int(code) for code in ExitCode}
OF_COMMANDS = {0: "", 1: "", 4: "usage", 75: "undecided"}


def text(path):
    return (REPOSITORY / path).read_text(encoding="utf-8")


def leaves(command, *names):
    """Yield the words of each command that has no other below it."""
    below = getattr(command, "commands", {})
    for name, one in below.items():
        yield from leaves(one, *names, name)
    if not below:
        yield names


def test_those_of_pytest_keep_its_meaning():
    assert ExitCode.GREEN == pytest.ExitCode.OK
    assert ExitCode.RED == pytest.ExitCode.TESTS_FAILED
    assert ExitCode.ERROR == pytest.ExitCode.INTERNAL_ERROR
    assert ExitCode.USAGE == pytest.ExitCode.USAGE_ERROR
    assert ExitCode.NO_TESTS == pytest.ExitCode.NO_TESTS_COLLECTED
    assert ExitCode.UNDECIDED not in {int(code) for code in pytest.ExitCode}


PAGES = sorted((REPOSITORY / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_the_pages_have_these_and_no_others(page):
    tables = re.findall(r"^\| exit code \|.*\n\|.*\n((?:\|.*\n)+)", text(page), re.MULTILINE)

    for table in tables:
        cells = [row.split("|")[1] for row in table.splitlines()]
        codes = [int(code) for cell in cells for code in cell.split(",")]
        assert codes == sorted(ALL & set(codes))


def test_each_has_a_meaning_and_a_remedy():
    assert all(code.meaning and code.remedy for code in ExitCode)


def test_the_nightly_gate_states_all_of_them():
    (head,) = re.findall(r"^# Exit code[^\n]*\n((?:#   .*\n)+)", text("ci/nightly"), re.MULTILINE)

    stated = re.findall(r"^#   (\d+) |; (143): ", head, re.MULTILINE)
    assert {int(first or second) for first, second in stated} == ALL


@pytest.mark.parametrize("words", list(leaves(typer.main.get_command(app))), ids=" ".join)
def test_the_help_of_a_command_states_its_own_in_order(words):
    shown = CliRunner().invoke(app, [*words, "--help"]).stdout
    stated = re.findall(r"^ +(\d+)  (\w+)", shown.partition("Exit code:")[2], re.MULTILINE)

    codes = [int(code) for code, _ in stated]
    assert codes == sorted(set(codes))
    assert all(OF_COMMANDS[int(code)] in ("", word) for code, word in stated)
    if words in (("duel",), ("judge",), ("compare",)):
        assert codes == [*OF_COMMANDS]
