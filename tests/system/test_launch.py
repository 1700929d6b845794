"""Real launches: the result of a successful one, and the report of every kind of failure."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from ddp_perf.core.launch import Collective, LaunchResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_case
from tests.torch_versions import needs_records_over_gloo


def _children(pid):
    """Return the descendants of ``pid``, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found += [int(entry.name), *_children(int(entry.name))]
    return found


def test_a_launch_measures_every_rank(launcher, request_of):
    outcome = launcher.launch(request_of("faulty:build", {"fault": "nothing"}))
    assert isinstance(outcome, LaunchResult)
    assert [rank.placement.rank for rank in outcome.ranks] == [0, 1]
    for rank in outcome.ranks:
        assert len(rank.warmup_s) == 2
        # A busy machine adds as many steps again, up to four times.
        assert len(rank.step_s) == len(rank.cpu_s) == len(outcome.step_s)
        assert len(rank.step_s) in (10, 20, 30, 40, 50)
        assert len(rank.waited_s) in (0, len(rank.step_s))  # not every kernel counts waits
        assert min(rank.step_s) > 0
        assert min(rank.control_s) > 0
        assert rank.peak_memory > 50 << 20
        assert rank.ddp_logging["world_size"] == 2
    assert outcome.ranks[0].digest == outcome.ranks[1].digest
    # Two Linear layers: 16·16 + 16 and 16·4 + 4 parameters of 4 bytes, in one bucket.
    structure = outcome.ranks[0].structure
    # Of a batch of 4: both products forward, both for the weights, the second for its input.
    assert outcome.ranks[1].flops == 2 * 4 * (2 * (16 * 16 + 16 * 4) + 16 * 4)
    assert outcome.ranks[1].flops_by_format == {"fp32": outcome.ranks[1].flops}
    assert structure.parameters == 340
    assert structure.gradient_bytes == 1360
    assert structure.buckets == (1360,)
    assert structure.collectives == (Collective(kind="all_reduce", dtype="float32", bytes=1360),)


@contextlib.contextmanager
def _busy_neighbours(cores):
    """Start three processes on each of the cores that use it all the time."""
    command = [sys.executable, "-m", "ddp_perf.worker.injection.hog", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for core in [*cores] * 3:
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            assert process.stdout.readline()
        yield


@pytest.mark.slow  # it takes both cores from the tests beside it
def test_a_launch_reports_contention_for_its_cores(launcher, request_of):
    sizes = {"input_dim": 512, "hidden_dim": 512, "output_dim": 64, "num_layers": 2}
    request = request_of("mlp", sizes, batch_sizes=[128], steps=80)
    launcher.runtime(request.case)  # imports torch before the busy processes start

    with _busy_neighbours(sorted(os.sched_getaffinity(0))[:2]):
        outcome = launcher.launch(request)

    assert isinstance(outcome, LaunchResult), str(outcome)
    # One rank may lose all and the other wait for it, hardly in need of its own core. More than
    # the tolerance is a disturbance; beside other tests it was 0.095 twice, and is far more alone.
    found = max(rank.conditions.foreign for rank in outcome.ranks)
    assert found > request.case.tolerances.step_time == 0.05


def test_ranks_run_on_cores_of_their_own(launcher, request_of):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores, found 1")
    outcome = launcher.launch(request_of("faulty:build", {"fault": "nothing"}))
    cores = [rank.placement.cores for rank in outcome.ranks]
    assert [len(of_rank) for of_rank in cores] == [1, 1]
    assert cores[0] != cores[1]


def test_one_rank_without_ddp_has_no_collectives(launcher, request_of):
    request = request_of("faulty:build", {"fault": "nothing"}, world_sizes=[1])
    outcome = launcher.launch(request)
    assert request.case.strategy == "none"
    assert outcome.ranks[0].structure.collectives == ()
    assert outcome.ranks[0].ddp_logging == {}


@pytest.mark.parametrize("fault_rank", [0, 1])
def test_the_first_failure_is_reported_and_not_its_symptom(launcher, request_of, fault_rank):
    model = {"fault": "raise", "fault_rank": fault_rank}
    outcome = launcher.launch(request_of("faulty:build", model))
    assert outcome.rank == fault_rank
    assert "ValueError" in outcome.traceback


def test_a_failure_has_the_users_frames_beside_the_whole_traceback(launcher, request_of):
    outcome = launcher.launch(request_of("faulty:build", {"fault": "raise"}))

    frames = re.findall(r'File "(.+)", line \d+, in (\w+)', outcome.user_frames)
    assert [(Path(file).name, function) for file, function in frames] == [
        *(("faulty.py", "loss"), ("faulty.py", "strike"), ("faulty.py", "_raise"))
    ]
    assert "in _end_with" in outcome.traceback


def test_the_users_frames_name_what_caused_the_exception(launcher, request_of):
    outcome = launcher.launch(request_of("faulty:build", {"fault": "raise-from"}))

    lines = outcome.user_frames.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "Traceback (most recent call last):",
        "KeyError: 'the key'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        "ValueError: the data are broken",
    ]
    assert "in _end_with" not in outcome.user_frames


@pytest.mark.parametrize(
    ("fault", "state", "stack"),
    [
        ("hang", "sleeping (S)", "faulty.py"),
        ("stop", "stopped (T)", "no stack: the process is stopped (T)"),
    ],
)
def test_a_silent_rank_is_found_by_its_deadline(launcher, request_of, fault, state, stack):
    request = request_of("faulty:build", {"fault": fault}, step_deadline_s=1)
    outcome = launcher.launch(request)
    assert (outcome.rank, outcome.kind) == (1, "hang")
    assert "step 8 of 12" in outcome.detail
    assert state in outcome.detail
    assert stack in outcome.stacks["rank 1"]
    assert "backward" in outcome.stacks["rank 0"]  # where it waits for rank 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("exit", "rank 1: SystemExit: 3"),
        ("os-exit", "rank 1: it exited with code 3"),
    ],
)
def test_a_rank_that_fails_while_it_is_examined_costs_no_times(launcher, request_of, fault, why):
    """At most 52 steps are timed, and the probe has at least two runs of 60."""
    patient = {"start_deadline_s": 600, "step_deadline_s": 600}  # no deadline ends it
    request = request_of("faulty:build", {"fault": fault, "at_step": 80}, **patient)

    outcome = launcher.launch(msgspec.structs.replace(request, probe_steps=60))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert all(len(rank.step_s) >= 10 for rank in outcome.ranks)
    assert all(len(rank.control_s) == 8 for rank in outcome.ranks)
    assert outcome.why_missing("probe").startswith(why)
    assert all(rank.probe is None for rank in outcome.ranks)


@pytest.mark.slow
def test_a_model_that_does_not_fit_uncompiled_keeps_its_times(launcher, request_of):
    """A step is counted uncompiled, and may then need more memory than there is."""
    model = {"fault": "out-of-memory-uncompiled", "at_step": 8}
    patient = {"start_deadline_s": 600, "step_deadline_s": 600}

    outcome = launcher.launch(request_of("faulty:build", model, compile=True, **patient))

    assert isinstance(outcome, LaunchResult), str(outcome)
    rank = outcome.ranks[0]
    assert len(rank.step_s) >= 10
    assert rank.structure is None
    assert rank.digest == outcome.ranks[1].digest
    assert {"1", "2", "4", "8"} <= rank.losses.keys()
    assert "OutOfMemoryError: CUDA out of memory" in outcome.why_missing("structure")


def test_a_private_function_that_this_torch_lacks_costs_its_facts_alone(launcher, request_of):
    outcome = launcher.launch(request_of("faulty:without_ddp_logging", {}))

    assert isinstance(outcome, LaunchResult), str(outcome)
    rank = outcome.ranks[0]
    assert len(rank.step_s) >= 10
    assert rank.digest == outcome.ranks[1].digest is not None
    assert rank.missing.keys() == {"ddp_logging", "structure", "probe"}
    assert "_get_ddp_logging_data" in rank.missing["structure"]


@needs_records_over_gloo
def test_ranks_that_hang_report_their_last_collectives(launcher, request_of, tmp_path):
    request = request_of("faulty:build", {"fault": "hang"}, step_deadline_s=1)
    request = msgspec.structs.replace(request, records=str(tmp_path / "hangs"))

    outcome = launcher.launch(request)

    ahead, behind = (outcome.collectives[f"rank {rank}"].splitlines() for rank in (0, 1))
    assert "all_reduce [340] Float: " in ahead[-1]
    assert not ahead[-1].endswith("done")  # rank 1 never joins
    assert behind[-1] == ahead[-2]  # the last one that both began
    assert behind[-1].endswith("done")
    for rank in (0, 1):
        entries = json.loads((tmp_path / "hangs" / f"rank{rank}.json").read_text())
        assert entries[-1]["profiling_name"] == "gloo:all_reduce"


@pytest.mark.slow
def test_a_rank_that_never_reaches_its_first_step_is_a_hang(launcher, request_of):
    model = {"fault": "hang", "at_step": 1}
    request = request_of("faulty:build", model, start_deadline_s=6)
    outcome = launcher.launch(request)
    assert (outcome.rank, outcome.kind) == (1, "hang")
    assert "step 1 of" in outcome.detail


def test_the_one_of_three_ranks_that_differs_is_named(launcher, request_of):
    model = {"fault": "tamper", "fault_rank": 2}
    outcome = launcher.launch(request_of("faulty:build", model, world_sizes=[3]))
    assert (outcome.rank, outcome.kind) == (2, "disagreement")


def test_a_workload_that_cannot_be_imported_is_named(launcher, request_of):
    outcome = launcher.launch(request_of("no_such_module:build", {}))
    assert outcome.kind == "exception"
    assert "no_such_module" in outcome.detail


def test_a_dead_forkserver_is_reported_and_replaced(request_of):
    launcher = ServerLauncher()
    try:
        outcome = launcher.launch(request_of("faulty:build", {"fault": "kill-server"}))
        assert outcome.kind == "server"
        assert "ended (SIGKILL), and its ranks with it" in outcome.detail
        assert outcome.detail.endswith("; out of memory? see the kernel's log")
        after = launcher.launch(request_of("faulty:build", {"fault": "nothing"}))
        assert isinstance(after, LaunchResult)
    finally:
        launcher.close()


@pytest.mark.slow
def test_the_environment_of_a_case_is_set_before_torch_is_imported(launcher, request_of):
    request = request_of("faulty:build", {"fault": "nothing"}, env={"OMP_NUM_THREADS": "2"})
    outcome = launcher.launch(request)
    wanted = min(2, len(os.sched_getaffinity(0)))
    assert [len(rank.placement.cores) for rank in outcome.ranks] == [wanted, wanted]


def test_an_interpreter_that_cannot_run_ranks_is_an_error_in_one_line(tmp_path):
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho no torch here >&2\nexit 1\n")
    interpreter.chmod(0o755)
    launcher = ServerLauncher(ThisMachine(interpreter=str(interpreter)))
    with pytest.raises(LaunchError, match="did not start: exit code 1: no torch here"):
        launcher.runtime(make_case())
    launcher.close()


def test_closing_ends_the_forkserver(request_of):
    before = set(_children(os.getpid()))
    launcher = ServerLauncher()
    launcher.runtime(make_case())
    assert set(_children(os.getpid())) - before
    launcher.close()
    launcher.close()  # a second call does nothing
    assert set(_children(os.getpid())) == before


def test_the_output_of_every_rank_is_kept_and_a_silent_launch_forgets_it(
    launcher, request_of, tmp_path
):
    kept = tmp_path / "kept"
    ask = {"output": str(kept)}
    printing = request_of("faulty:build", {"fault": "nothing"}, env={"GLOO_LOG_LEVEL": "INFO"})
    sizes = {"input_dim": 16, "hidden_dim": 16, "output_dim": 4, "num_layers": 2}
    silent = request_of("mlp", sizes)

    outcome = launcher.launch(msgspec.structs.replace(printing, **ask))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert (outcome.output.directory, outcome.output.problem) == (str(kept), None)
    printed = {path.name: path.read_text() for path in kept.iterdir()}
    logs = torch.__version__ >= "2.8"  # gloo, how each rank connects
    assert sorted(printed) == (["rank0.out", "rank1.out"] if logs else ["rank1.out"])
    assert "about to nothing\n" in printed["rank1.out"]
    assert "about to nothing" not in printed.get("rank0.out", "")

    launcher.launch(msgspec.structs.replace(silent, **ask))
    left = [line for path in kept.glob("*") for line in path.read_text().splitlines()]
    # Some versions of torch print gloo's line at any level.
    assert [line for line in left if not line.startswith("[Gloo] Rank ")] == []
    assert kept.exists() == bool(left)


def test_the_output_of_a_failed_launch_is_in_its_failure_alone(launcher, request_of, tmp_path):
    request = request_of("faulty:build", {"fault": "raise"})

    outcome = launcher.launch(msgspec.structs.replace(request, output=str(tmp_path / "kept")))

    assert "about to raise" in outcome.output
    assert not (tmp_path / "kept").exists()
