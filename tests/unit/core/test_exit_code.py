"""One table of exit codes: what the pages, the scripts and every command say of them."""

from __future__ import annotations

import re

import pytest
import typer.main
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import ExitCode
from ddp_perf.session.result import conclude
from tests.builders import make_case, make_finding
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


@pytest.mark.parametrize("page", ["docs/ci.md", "docs/duel.md"])
def test_the_tables_of_the_pages_have_these_and_no_others(page):
    tables = re.findall(r"^\| exit code \|.*\n\|.*\n((?:\|.*\n)+)", text(page), re.MULTILINE)

    assert tables
    for table in tables:
        cells = [row.split("|")[1] for row in table.splitlines()]
        codes = [int(code) for cell in cells for code in cell.split(",")]
        assert codes == sorted(ALL & set(codes))
    if page == "docs/ci.md":
        assert set(codes) == ALL


def test_the_table_of_verdicts_has_each_with_the_exit_code_of_the_commands_that_judge():
    rows = re.findall(r"^\| ([A-Z_, ]+) \|.*\|.*\| (\d+) \|", text("docs/getting-started.md"), re.M)
    stated = {word: int(code) for words, code in rows for word in words.split(", ")}

    def concluded(outcome):
        finding = make_finding(make_case(), outcome)
        return conclude([finding], failed=False, missing=False).exit_code

    assert stated == {outcome.value: concluded(outcome) for outcome in Outcome}


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
