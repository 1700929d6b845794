"""A misspelt option is refused by pytest, and the error names the one that was meant."""

from __future__ import annotations

import pytest


@pytest.fixture
def refuse(pytester, monkeypatch):
    """``refuse("--ddp-lanches")`` returns the lines of pytest's error."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["ddp_perf.plugin"]')
    pytester.makeini("[pytest]\nddp_configs = bench_configs\n")

    def refuse(*arguments):
        result = pytester.runpytest(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        return [line.strip() for line in result.errlines]

    return refuse


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        (["--ddp-lanches", "3"], "--ddp-launches"),
        (["--ddp-lanches=3"], "--ddp-launches"),
        (["--ddp_launches=3"], "--ddp-launches"),
        (["--ddp-batchsizes=64"], "--ddp-batch-sizes"),
        (["--ddp-world=2"], "--ddp-world-sizes"),
        (["--save-baselines"], "--save-baseline"),
        (["--save=append"], "--save-baseline"),
        (["--ddp-save-baseline"], "--save-baseline"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(refuse, misspelt, meant):
    name = misspelt[0].partition("=")[0]

    lines = refuse(*misspelt)

    assert any(f"error: unrecognized arguments: {misspelt[0]}" in line for line in lines)
    assert f"{name}: did you mean {meant}?" in lines


@pytest.mark.parametrize(
    "option", ["--ddp-xyzzy", "--ddp", "--ddp-launches", "--lanches", "--savings"]
)
def test_an_option_that_resembles_none_or_is_right_gets_no_suggestion(refuse, option):
    assert "did you mean" not in "".join(refuse(f"{option}=3", "--unknown"))


def test_a_plugin_that_is_named_on_the_command_line_suggests_too(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    result = pytester.runpytest("-p", "ddp_perf.plugin", "--ddp-lanches=3")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--ddp-lanches: did you mean --ddp-launches?"])


def test_a_wrong_value_is_refused_with_the_option_and_the_fault(refuse):
    lines = refuse("--ddp-launches=three")

    assert any(
        line.endswith("error: argument --ddp-launches: 'three' is not a whole number")
        for line in lines
    )
