"""A misspelt command or option is refused in one line, with the one that was probably meant."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.errors import ExitCode


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["comapre", "a.json", "b.json"], "'compare'"),
        (["baseline", "lst"], "'list'"),
        (["compare", "--jsn", "a.json", "b.json"], "--json"),
        (["selftest", "--budgte=5m"], "--budget"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_misspelt_word_is_refused_with_the_one_that_was_meant(arguments, meant):
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == ExitCode.USAGE
    (line,) = done.stderr.splitlines()
    assert line.startswith("ddp-perf: No such ")
    assert meant in line


@pytest.mark.parametrize("words", [[], ["baseline"]], ids=" ".join)
def test_without_a_command_the_help_is_shown(words):
    done = CliRunner().invoke(app, words)

    assert done.exit_code == ExitCode.USAGE
    assert done.stderr == CliRunner().invoke(app, [*words, "--help"]).stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ddp-perf bis", "bisect"),
        ("ddp-perf baseline li", "list"),
        ("ddp-perf duel --bud", "--budget"),
    ],
)
def test_a_shell_completes_commands_and_options(typed, offered):
    environment = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}

    done = CliRunner().invoke(
        app, [], prog_name="ddp-perf", env={**environment, "_DDP_PERF_COMPLETE": "complete_bash"}
    )

    assert (done.exit_code, done.stdout.split()) == (0, [offered])


def test_the_help_has_panels_with_the_most_used_commands_first_and_nothing_cut_off():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    panels = shown.partition("Most used:\n")[2].split("\n\n")

    first = [line.split()[0] for line in panels[0].splitlines()]
    assert first == ["init", "try", "duel", "pr", "bisect", "explain", "doctor"]
    assert len(panels) == 4
    assert not any("..." in panel for panel in panels)
    lines = [line for panel in panels for line in panel.splitlines() if line.startswith("  ")]
    assert len(lines) == 20  # one line each
    below = CliRunner().invoke(app, ["baseline", "--help"], env={"COLUMNS": "80"}).stdout
    assert "..." not in below.partition("Commands:")[2]
