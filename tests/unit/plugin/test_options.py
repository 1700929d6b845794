"""Each option is parsed to its type, or refused in one line with the fault."""

from __future__ import annotations

import argparse

import pytest

from ddp_perf.core.injection import Injection
from ddp_perf.plugin.option_values import (
    parse_assignment,
    parse_count,
    parse_counts,
    parse_database,
    parse_machine,
    parse_rate,
    parse_save_mode,
    parse_slow_down,
    parse_whole,
)
from ddp_perf.plugin.options import read_options


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_whole, "0", 0),
        (parse_count, "12", 12),
        (parse_counts, "1,2,8", (1, 2, 8)),
        (parse_counts, " 4 , 1 ", (4, 1)),
        (parse_counts, "2", (2,)),
        (parse_rate, "0.01", 0.01),
        (parse_assignment, "NCCL_DEBUG=INFO", ("NCCL_DEBUG", "INFO")),
        (parse_assignment, "A=b=c", ("A", "b=c")),
        (parse_assignment, "A=", ("A", "")),
        (parse_save_mode, "append", "append"),
        (parse_machine, "ci-2core_v1.0", "ci-2core_v1.0"),
        (parse_database, "sqlite:///a/b.sqlite", "sqlite:///a/b.sqlite"),
        (parse_database, "postgresql://me@host/db", "postgresql://me@host/db"),
        (parse_slow_down, "no-overlap", Injection(text="no-overlap", kind="no-overlap")),
    ],
)
def test_valid_option_values_are_parsed(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_whole, "-1"),
        (parse_whole, "two"),
        (parse_whole, "1.5"),
        (parse_count, "0"),
        (parse_counts, ""),
        (parse_counts, ","),
        (parse_counts, "1,0"),
        (parse_counts, "2,2"),
        (parse_counts, "1 2"),
        (parse_database, "history.sqlite"),
        (parse_database, "mysql://host/db"),
        (parse_rate, "0"),
        (parse_rate, "0.5"),
        (parse_rate, "1"),
        (parse_rate, "nan"),
        (parse_rate, "big"),
        (parse_assignment, "NCCL_DEBUG"),
        (parse_assignment, "=1"),
        (parse_assignment, "A B=1"),
        (parse_save_mode, "apend"),
        (parse_machine, ""),
        (parse_machine, "two cores"),
        (parse_machine, "../ci"),
        (parse_machine, "ci@2"),
        (parse_machine, "größe"),
        (parse_machine, "a" * 65),
        (parse_save_mode, "tests/perf"),
        (parse_slow_down, "compute:5"),
    ],
)
def test_invalid_option_values_are_refused_in_one_line(parse, text):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)

    message = str(caught.value)
    assert message
    assert "\n" not in message


def test_an_unknown_save_mode_is_refused_with_the_list_of_modes():
    with pytest.raises(argparse.ArgumentTypeError, match="missing, append, accept"):
        parse_save_mode("all")


@pytest.fixture
def options(pytester):
    """``options("--ddp-steps=3", …)`` returns the options of such a run."""
    return lambda *arguments: read_options(
        pytester.parseconfig("-p", "ddp_perf.plugin", *arguments)
    )


def test_options_have_defaults(options, pytester):
    read = options()

    assert read.configs == ()
    assert read.config_directory == pytester.path / "bench_configs"
    assert read.baseline_directory == pytester.path / "baselines"
    assert read.overrides == type(read.overrides)()
    assert (read.session.save_mode, read.session.reason, read.json_path) == (None, None, None)
    assert (read.strict, read.expect_devices, read.false_alarm_rate) == (False, None, 0.01)
    assert read.injections == ()


def test_every_override_is_read(options):
    overrides = options(
        *("--ddp-world-sizes=1,2", "--ddp-batch-sizes=8", "--ddp-steps=9"),
        *("--ddp-launches=2", "--ddp-env=A=1", "--ddp-env=A=2"),
    ).overrides

    assert (overrides.world_sizes, overrides.batch_sizes) == ((1, 2), (8,))
    assert (overrides.steps, overrides.launches) == (9, 2)
    assert overrides.env == (("A", "1"), ("A", "2"))


def test_injections_are_read_in_order(options):
    read = options("--ddp-inject=no-overlap", "--ddp-inject", "data:5ms")

    assert [injection.text for injection in read.injections] == ["no-overlap", "data:5ms"]


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [(["--save-baseline"], "missing"), (["--save-baseline=append"], "append")],
    ids=["default", "named"],
)
def test_save_baseline_has_a_default_mode(options, arguments, mode):
    assert options(*arguments).session.save_mode == mode


def test_save_mode_accept_is_read_with_its_reason(options):
    read = options("--save-baseline=accept", "--ddp-reason", "wider layers").session

    assert (read.save_mode, read.reason) == ("accept", "wider layers")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--save-baseline=accept"], "--save-baseline=accept: needs --ddp-reason"),
        (["--save-baseline=accept", "--ddp-reason="], "needs --ddp-reason"),
        (["--save-baseline=accept", "--ddp-reason=…"], "--ddp-reason: '…' has no word"),
        (["--save-baseline=accept", "--ddp-reason= ..."], "--ddp-reason: ' ...' has no word"),
        (["--save-baseline", "--ddp-reason=why"], "--ddp-reason: needs --save-baseline=accept"),
        (["--ddp-reason=why"], "--ddp-reason: needs --save-baseline=accept"),
        (["--ddp-json=nowhere/x.json"], "--ddp-json: there is no directory nowhere"),
        (
            ["--ddp-inject=no-overlap", "--save-baseline"],
            "that --ddp-inject slowed is not stored",
        ),
        (
            ["--ddp-inject=no-overlap", "--save-baseline=accept", "--ddp-reason=why"],
            "that --ddp-inject slowed is not stored",
        ),
    ],
    ids=[
        *("no reason", "empty reason", "copied reason", "reason of dots"),
        *("reason of another mode", "reason alone", "no directory"),
        *("injected", "injected and accepted"),
    ],
)
def test_contradictory_options_are_refused(options, arguments, said):
    with pytest.raises(pytest.UsageError) as caught:
        options(*arguments)

    assert said in str(caught.value)


def test_the_pool_is_that_of_the_option_before_that_of_the_ini_file(options):
    assert options().machine is None
    assert options("--ddp-machine=ci").machine == "ci"
    assert options("-o", "ddp_machine=ini").machine == "ini"
    assert options("-o", "ddp_machine=ini", "--ddp-machine=ci").machine == "ci"


def test_a_bad_name_of_a_pool_in_the_ini_file_is_refused(options):
    with pytest.raises(pytest.UsageError, match="ddp_machine: 'two cores' is not a name"):
        options("-o", "ddp_machine=two cores")


def test_a_cluster_file_has_the_launcher_and_the_ranks_of_a_node(options, pytester):
    path = pytester.path / "cluster.yaml"
    path.write_text("launcher: ssh\nhosts: [a, b]\nnproc_per_node: 8\n")

    read = options(f"--ddp-cluster={path}")

    assert (read.overrides.launcher, read.overrides.ranks_per_node) == ("ssh", 8)
    assert read.cluster.hosts == ("a", "b")
    other = options(f"--ddp-cluster={path}", "--ddp-launcher=slurm")
    assert other.overrides.launcher == "slurm"


def test_a_broken_cluster_file_is_a_usage_error(options, pytester):
    path = pytester.path / "cluster.yaml"
    path.write_text("nodes: 2\n")

    with pytest.raises(pytest.UsageError, match=r"--ddp-cluster: .*cluster.yaml: nodes: unknown"):
        options(f"--ddp-cluster={path}")


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("3m", 180), ("1h", 3600), ("1.5m", 90)]
)
@pytest.mark.parametrize("where", ["option", "ini"])
def test_the_time_to_settle_is_read(options, pytester, text, seconds, where):
    if where == "ini":
        pytester.makeini(f"[pytest]\nddp_settle = {text}\n")
        assert options().settle_s == seconds
    else:
        assert options(f"--ddp-settle={text}").settle_s == seconds


def test_the_option_takes_the_place_of_the_ini(options, pytester):
    assert options().settle_s == 0
    pytester.makeini("[pytest]\nddp_settle = 5m\n")

    assert options("--ddp-settle=0").settle_s == 0
    assert options("--ddp-settle=1m").settle_s == 60


@pytest.mark.parametrize("text", ["soon", "60", "-1s", "", "0s", "nan", "infs"])
def test_a_time_to_settle_that_is_none_is_refused(options, pytester, text):
    pytester.makeini(f"[pytest]\nddp_settle = {text}\n")
    with pytest.raises(pytest.UsageError, match=r"^ddp_settle: .*nor 0"):
        options()

    pytester.makeini("[pytest]\n")
    with pytest.raises(pytest.UsageError, match=r"--ddp-settle: .*nor 0"):
        options(f"--ddp-settle={text}")


def test_settled_improvements_are_accepted_unless_the_ini_forbids_it(options, pytester):
    assert options().session.accept_improvements
    pytester.makeini("[pytest]\nddp_accept_improvements = false\n")

    assert not options().session.accept_improvements


def test_a_cluster_that_is_not_described_is_a_usage_error(project):
    done = project.run("--ddp-launcher=kubernetes")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "pod_template: FILE need each other" in done.stderr.str()
