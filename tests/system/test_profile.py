"""``--ddp-profile`` on real gloo ranks: traces that can be read, a merged one, and a summary."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.core.launch import LaunchRequest, LaunchResult, Profiling
from ddp_perf.traces.analysis import analyse_traces
from tests.builders import make_case
from tests.projects import TINY, make_project

STEPS = 2

SUITE = TINY.replace("[1, 2]", "[2]")


@pytest.fixture(scope="module")
def profiled(launcher, tmp_path_factory):
    """A profiled launch of two ranks: its outcome, and its traces by rank."""
    directory = tmp_path_factory.mktemp("profile") / "made" / "by the rank"
    profiling = Profiling(steps=STEPS, directory=str(directory))
    outcome = launcher.launch(LaunchRequest(case=make_case(), round=0, profiling=profiling))
    return outcome, [Path(profiling.file(rank)) for rank in (0, 1)]


def test_profiling_does_not_change_the_number_of_timed_steps(profiled):
    outcome, _ = profiled

    assert isinstance(outcome, LaunchResult)
    measured, steps = make_case().schedule.measured, len(outcome.step_s)
    assert steps % measured == 0  # a busy machine adds as many steps again
    assert steps // measured in range(1, 6)


def test_every_rank_writes_a_trace_of_the_requested_steps(profiled):
    _, paths = profiled

    analysis = analyse_traces(paths)

    assert [(rank.rank, rank.world_size, rank.backend) for rank in analysis.ranks] == [
        (0, 2, "gloo"),
        (1, 2, "gloo"),
    ]
    for rank in analysis.ranks:
        assert len(rank.steps) == STEPS
        assert rank.device == "CPU"
        assert rank.split.communication_s > 0
        assert 0 <= rank.split.overlap <= 1
        assert rank.dropped == 0


def test_the_all_reduces_of_ddp_are_found_with_their_bytes_and_matched(profiled):
    outcome, paths = profiled

    analysis = analyse_traces(paths)

    (gradients,) = analysis.collectives
    assert (gradients.message.kind, gradients.message.dtype) == ("all_reduce", "float32")
    assert (gradients.message.bytes,) == outcome.ranks[0].structure.buckets
    assert gradients.calls == 2 * STEPS
    assert (analysis.comparison.matched, analysis.comparison.one_clock) == (STEPS, True)


@pytest.fixture
def session(pytester, monkeypatch):
    """A session of pytest with one small suite, profiled."""
    return make_project(pytester, monkeypatch, addopts="-m cpu -p no:cacheprovider", tiny=SUITE)


@pytest.mark.slow
def test_a_session_ends_with_a_summary_of_the_traces_and_their_paths(session):
    result = session.runpytest(
        *("-k", "structure", f"--ddp-profile={STEPS}", "--ddp-json=results.json"),
        *("--save-baseline", "--ddp-budget=0"),
    )

    result.stdout.fnmatch_lines(
        [
            "profiles",
            "*longest collective*",
            "*mlp-ddp-fp32-ws2*",  # beside the figures, or above them if they are wide
            "*artifacts/profile/tiny/mlp-ddp-fp32-ws2-b16/merged.json.gz*",
        ]
    )
    directory = session.path / "artifacts" / "profile" / "tiny" / "mlp-ddp-fp32-ws2-b16"
    _check_merged(directory / "merged.json.gz")
    (suite,) = json.loads((session.path / "results.json").read_text())["suites"]
    (profile,) = suite["profiles"].values()
    (measurement,) = suite["measurements"].values()
    assert len(profile["analysis"]["ranks"]) == 2
    assert len(measurement["launches"]) == 2  # the profiled one is not among them

    done = CliRunner().invoke(app, ["trace", *map(str, directory.glob("rank*.json.gz"))])
    assert done.exit_code == 0, done.output
    assert "rank 1 of 2, CPU, gloo" in done.stdout


def _check_merged(path):
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.partition(":")[0] for name in names} == {"rank 0", "rank 1"}
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    assert len({event["pid"] for event in steps}) == 2
    assert len(steps) == 2 * STEPS


def test_profiled_steps_that_are_no_number_are_refused_before_any_launch(session):
    result = session.runpytest("--ddp-profile=many")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--ddp-profile: 'many' is not a whole number"])
