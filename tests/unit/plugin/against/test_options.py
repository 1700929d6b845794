"""What a duel cannot do is refused in one line, before anything is launched."""

from __future__ import annotations

import pytest

from ddp_perf.plugin.options import read_against, read_options

SIDE = "--ddp-against=env:OMP_NUM_THREADS=1"


@pytest.fixture
def parsed(pytester):
    return lambda *arguments: pytester.parseconfig("-p", "ddp_perf.plugin", *arguments)


def test_the_budget_is_that_of_the_tier_by_default(parsed):
    assert read_against(parsed(SIDE)).budget_s is None
    assert read_against(parsed(SIDE, "--ddp-budget=60s")).budget_s == 60
    assert read_against(parsed()) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ddp-against="], "name a side"),
        ([SIDE, "--save-baseline"], "--save-baseline with --ddp-against: a duel stores nothing"),
        ([SIDE, "--ddp-launcher=ssh"], "a duel launches by forkserver"),
        ([SIDE, "--ddp-cluster=c.yaml"], "--ddp-cluster with --ddp-against: a duel is of one"),
        ([SIDE, "--ddp-inject=compute:5%"], "--ddp-inject with --ddp-against: "),
        ([SIDE, "--ddp-profile"], "--ddp-profile with --ddp-against: "),
        ([SIDE, "--ddp-settle=60s"], "--ddp-settle with --ddp-against: a duel decides by itself"),
        ([SIDE, "--ddp-history=sqlite:///h.sqlite"], "--ddp-history with --ddp-against: "),
        ([SIDE, "--ddp-launches=9"], "bound it with --ddp-budget"),
        ([SIDE, "--ddp-budget=0"], "--ddp-budget with --ddp-against: 0 is too little"),
        ([SIDE, "--ddp-machine=pool"], "--ddp-machine with --ddp-against: "),
        (["--ddp-touched"], "--ddp-touched: needs --ddp-against SIDE"),
    ],
)
def test_an_option_that_makes_no_sense_with_a_duel_is_refused_in_one_line(parsed, arguments, said):
    with pytest.raises(pytest.UsageError) as caught:
        read_options(parsed(*arguments))

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_ini_file_sets_for_other_sessions_counts_too(pytester):
    pytester.makeini("[pytest]\naddopts = -p ddp_perf.plugin --ddp-machine=pool\n")
    with pytest.raises(pytest.UsageError, match="--ddp-machine"):
        read_options(pytester.parseconfig(SIDE))
    pytester.makeini("[pytest]\naddopts = -p ddp_perf.plugin --ddp-budget 0\n")
    with pytest.raises(pytest.UsageError, match="--ddp-budget"):
        read_options(pytester.parseconfig(SIDE))

    assert read_options(pytester.parseconfig(SIDE, "--ddp-budget=3m")).against.budget_s == 180


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("no-such-branch", "not in a git repository"),
        ("env:", "env:"),
        ("python:/no/such/python", "/no/such"),
    ],
)
def test_a_side_that_does_not_exist_is_a_usage_error_and_runs_no_duel(against, side, said):
    done = against.run(side=side)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert said in str(done.stderr)
    assert against.asked == []


def test_a_suite_with_another_launcher_is_a_usage_error(against):
    suite = against.path / "bench_configs" / "tiny.yaml"
    suite.write_text(suite.read_text() + "launcher: slurm\n")

    done = against.run()

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "tiny has launcher: slurm, and a duel launches by forkserver" in str(done.stderr)
