"""``ci/gpu-proof``: the outcomes of its proofs, with commands that replace the real ones."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.save import Refused
from ddp_perf.session.results_file import write_results
from tests.builders import (
    FakeLauncher,
    make_case,
    make_cases,
    make_failure,
    make_gpu_machine,
    make_gpus,
    make_launch,
    make_measurement,
    make_result,
)
from tests.quality import gpu_proof, gpu_proof_runner
from tests.quality.gpu_pace import Pace, measure_pace
from tests.quality.gpu_proof import (
    PROOFS,
    START_S,
    WITHOUT_THESE,
    read_energy,
    read_slow_downs,
    read_suite,
    read_tests,
)
from tests.quality.gpu_proof_runner import CALIBRATED_S, PACE, Proof, ProofRunner, Reading
from tests.quality.slow_downs import SlowDown

ROOT = Path(__file__).parents[2]


def output_of(out):
    text = (out / "output.txt").read_text()
    return Reading(ok="wrong" not in text, figure=text.strip())


def make_proof(name, script="", **changes):
    fields = {
        "shows": f"what {name} shows",
        "gpus": 1,
        "limit_s": 60.0,
        "command": ("sh", "-c", script or f"echo {name} is right"),
        "read": output_of,
    }
    return Proof(name=name, **{**fields, **changes})


@pytest.fixture
def prove(tmp_path, capsys):
    """``prove(proofs, gpus=1, only=…)``: the exit code, and each row of the table by its name."""

    def run(*proofs, gpus=1, only=None):
        directory = tmp_path / "gpu-proof"
        runner = ProofRunner(proofs, gpus=make_gpus(gpus), root=tmp_path, directory=directory)
        code = runner.run(only or [proof.name for proof in proofs])
        *_, table, archive = capsys.readouterr().out.rsplit("\n\n", 2)
        assert archive.strip() == f"{directory}.tar.gz"
        return code, {line.split()[0]: line for line in table.splitlines()[1:]}

    return run


def test_proofs_that_pass_give_a_table_and_exit_code_0(prove, tmp_path):
    code, rows = prove(make_proof("one"), make_proof("two"))

    assert code == 0
    assert "passed" in rows["one"]
    assert rows["two"].endswith("two is right")
    assert (tmp_path / "gpu-proof" / "table.txt").read_text().count("passed") == 2


def test_the_archive_contains_every_file_and_the_versions(prove, tmp_path):
    prove(make_proof("one", "echo fine; echo odd >&2; echo {} >'{out}/results.json'"))

    with tarfile.open(tmp_path / "gpu-proof.tar.gz") as archive:
        names = [member.name for member in archive if member.isfile()]
        files = {name: archive.extractfile(name).read() for name in names}
    assert files["gpu-proof/one/errors.txt"] == b"odd\n"
    assert {Path(name).name for name in files} == {
        *("errors.txt", "outcome.json", "output.txt", "results.json"),
        *("table.txt", "versions.json"),
    }
    versions = json.loads(files["gpu-proof/versions.json"])
    assert versions["gpus"][0]["name"] == "NVIDIA H200"
    assert "pytest" in versions["packages"]


def test_a_failed_proof_does_not_stop_the_others(prove):
    code, rows = prove(make_proof("bad", "echo some; exit 3"), make_proof("good"))

    assert code == 1
    assert "failed" in rows["bad"]
    assert rows["bad"].endswith("exit code 3; some")
    assert "passed" in rows["good"]


@pytest.mark.parametrize("script", ["echo wrong", "rm '{out}/output.txt'"])
def test_exit_code_0_without_the_figure_is_a_failure(prove, script):
    code, rows = prove(make_proof("bad", script))

    assert code == 1
    assert "failed" in rows["bad"]


def test_a_proof_over_its_time_limit_is_ended_and_the_next_runs(prove, tmp_path):
    script = f"echo $$ >{tmp_path}/pid; exec sleep 600"
    code, rows = prove(make_proof("slow", script, limit_s=0.5), make_proof("next"))

    assert code == 1
    assert "timed out" in rows["slow"]
    assert "not done after" in rows["slow"]
    assert "passed" in rows["next"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_proof_that_needs_more_gpus_is_listed_and_never_run(prove, tmp_path):
    many = make_proof("many", f"touch {tmp_path}/ran", gpus=2)

    code, rows = prove(many, make_proof("one"))

    assert code == 0  # all that could run has passed
    assert rows["many"].split(maxsplit=3)[1:] == ["needs", "2", "GPUs          what many shows"]
    assert "passed" not in rows["many"]
    assert not (tmp_path / "ran").exists()


def test_nothing_is_proved_without_a_gpu(prove):
    code, rows = prove(make_proof("doctor", gpus=0), make_proof("one"), gpus=0)

    assert code == 1
    assert "passed" in rows["doctor"]
    assert "needs 1 GPU " in rows["one"]


def test_proofs_can_be_run_one_by_one_and_keep_their_outcome(prove):
    proofs = make_proof("one"), make_proof("two")

    code, rows = prove(*proofs, only=["one"])
    assert code == 1  # two is not proved yet
    assert "passed" in rows["one"]
    assert "not run" in rows["two"]
    assert rows["two"].endswith("ci/gpu-proof --only two")

    code, rows = prove(*proofs, only=["two"])
    assert code == 0
    assert "passed" in rows["one"]


def test_an_outcome_of_another_commit_proves_nothing(prove, monkeypatch):
    prove(make_proof("one"), make_proof("two"), only=["one"])
    monkeypatch.setattr(gpu_proof_runner, "current_commit", lambda root: "0123456789ab")

    code, rows = prove(make_proof("one"), make_proof("two"), only=["two"])

    assert code == 1
    assert "not run" in rows["one"]


def test_an_interrupt_ends_the_command_and_still_writes_the_table(tmp_path):
    driver = f"""
from pathlib import Path
from tests.system.test_gpu_proof import ProofRunner, make_gpus, make_proof

path = Path({str(tmp_path)!r})
proof = make_proof("long", f"echo $$ >{{path}}/pid; echo >{{path}}/began; exec sleep 600")
ProofRunner([proof], gpus=make_gpus(1), root=path, directory=path / "proof").run(["long"])
"""
    began = tmp_path / "began"
    os.mkfifo(began)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", driver],
        env=env,
        stderr=subprocess.PIPE,
        # A shell that runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    began.read_text()  # until the command runs
    pid = os.pidfd_open(int((tmp_path / "pid").read_text()))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert select.select([pid], [], [], 30)[0]
    os.close(pid)
    assert "not run" in (tmp_path / "proof" / "table.txt").read_text()
    assert (tmp_path / "proof.tar.gz").exists()


def test_a_proof_of_one_rank_sees_one_gpu_and_its_copies(prove, tmp_path):
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "some.json").write_text("{}")
    script = "echo $CUDA_VISIBLE_DEVICES $(ls {out}/baselines)"

    _, rows = prove(make_proof("one", script, most_gpus=1, copies=("baselines",)), gpus=2)

    assert rows["one"].endswith("GPU-0abc-0000 some.json")


# Seconds of a launch by its ranks, and of a step of one rank: 0.89 TFLOP of fp32.
MACHINES = {
    "H200": (1, Pace(launch_s={1: 8.0}, step_s=0.018)),
    "8 x A100": (8, Pace(launch_s={1: 12.0, 2: 13.0, 4: 14.0, 8: 16.0}, step_s=0.048)),
    "2 x V100": (2, Pace(launch_s={1: 15.0, 2: 17.0}, step_s=0.072)),
    "4 x T4": (4, Pace(launch_s={1: 40.0, 2: 60.0, 4: 70.0}, step_s=0.22)),
}


@pytest.mark.parametrize(("gpus", "pace"), MACHINES.values(), ids=MACHINES)
def test_every_machine_can_end_every_proof_within_its_limit(gpus, pace):
    limits = {proof.name: proof.time_limit_s(pace, gpus) for proof in PROOFS}

    a_launch = pace.launch_s[1] + pace.steps_of(CALIBRATED_S) * pace.step_s
    assert limits["energy"] > START_S + 3 * a_launch
    of_suite = sum(10 * seconds for seconds in pace.launch_s.values())  # two batch sizes
    assert min(limits["suite"], limits["gate"]) > START_S + 1.5 * of_suite
    slow = 20 * pace.launch_s[1] + 15 * pace.launch_s.get(2, 0.0)
    assert limits["slow-downs"] > START_S + 1.5 * slow
    assert limits["one-rank"] > START_S + 11 * pace.launch_s[1]


@pytest.mark.parametrize("step_s", [0.0015, 0.018, 0.22])
def test_the_calibrated_steps_take_as_long_on_every_card(step_s):
    steps = Pace(launch_s={1: 1.0}, step_s=step_s).steps_of(CALIBRATED_S)

    assert CALIBRATED_S <= steps * step_s < CALIBRATED_S + 2 * step_s or steps == 20


def test_names_of_proofs_are_unique():
    assert len({proof.name for proof in PROOFS}) == len(PROOFS)


def test_a_number_of_ranks_that_was_not_measured_takes_as_long_as_the_next_smaller():
    pace = Pace(launch_s={1: 1.0, 2: 3.0}, step_s=0.1)

    assert pace.launches_s({1: 2, 4: 5}) == 2 + 15


def test_the_pace_is_measured_by_a_launch_of_each_number_of_ranks():
    cases = make_cases()
    launcher = FakeLauncher(lambda request: make_launch(request.case, step_s=0.02))

    *_, pace = measure_pace(cases, launcher)

    assert pace == Pace(
        launch_s={1: make_launch(cases[0]).wall_s, 2: pace.launch_s[2]}, step_s=0.02
    )


@pytest.mark.slow
def test_launches_of_tests_are_as_many_as_the_tests_that_a_machine_of_eight_gpus_runs():
    wanted = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu"]
    done = subprocess.run(
        [*wanted, "tests/correctness", *WITHOUT_THESE], cwd=ROOT, capture_output=True, text=True
    )

    tests = [line for line in done.stdout.splitlines() if "::" in line]
    correctness = next(proof for proof in PROOFS if proof.name == "correctness")
    assert 0 < len(tests) <= sum(correctness.launches.values()), done.stdout


PACE_SCRIPT = 'echo \'{{"launch_s": {{"1": 0.5}}, "step_s": 0.5}}\' >{{out}}/pace.json; echo {}'


def test_the_pace_is_measured_first_and_sets_the_steps_and_the_limit(prove, tmp_path):
    pace = make_proof(PACE, PACE_SCRIPT.format("fine"))
    script = f"echo {{steps}} steps; exec cat {tmp_path}/never"
    os.mkfifo(tmp_path / "never")
    slow = make_proof("slow", script, limit_s=0.1, launches={1: 1, 2: 90})

    _, rows = prove(pace, slow, only=["slow"])

    assert "passed" in rows[PACE]
    assert rows["slow"].endswith("not done after 1 s; 20 steps")  # 0.1 + 2 x 0.5 s; no second GPU


def test_without_a_pace_no_launch_of_a_proof_is_run(prove):
    broken = make_proof(PACE, "exit 3")

    code, rows = prove(broken, make_proof("one", launches={1: 5}), make_proof("two"))

    assert code == 1
    assert "failed" in rows[PACE]
    assert "not run" in rows["one"]
    assert "passed" in rows["two"]


def test_every_file_that_a_proof_names_exists():
    words = [word for proof in PROOFS for word in proof.command]
    paths = [word.rpartition("=")[2] for word in words if ".py" in word or ".yaml" in word]

    assert len(paths) > 8
    assert all((ROOT / path).exists() for path in paths)


def junit(out, *tests):
    cases = "".join(f"<testcase name='t'>{end}</testcase>" for end in tests)
    (out / "junit.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


@pytest.mark.parametrize(
    ("tests", "ok", "figure"),
    [
        (["", ""], True, "2 passed"),
        (["", "<skipped message='needs 2 CUDA devices, found 1'/>"], True, "1 passed, 1 skipped; "),
        (["<skipped message='needs 2 CUDA devices'/>"], False, "1 skipped; 1 x needs 2 CUDA"),
        (["", "<failure message='no'/>"], False, "1 passed, 1 failure"),
        (["", "<error message='no'/>"], False, "1 passed, 1 error"),
        ([], False, ""),
    ],
    ids=["passed", "some skipped", "all skipped", "failed", "error", "none"],
)
def test_tests_are_a_proof_if_some_pass_and_none_fails(tmp_path, tests, ok, figure):
    junit(tmp_path, *tests)

    reading = read_tests(tmp_path)

    assert reading.ok is ok
    assert reading.figure.startswith(figure)


def test_figures_that_tests_record_are_shown(tmp_path):
    exposed = "<properties><property name='exposed_ms' value='4.2'/></properties>"
    junit(tmp_path, exposed)

    assert read_tests(tmp_path).figure == "1 passed, exposed_ms 4.2"


def test_a_suite_is_a_proof_if_every_launch_succeeded_and_is_stored(tmp_path):
    case = make_case()
    measurement = make_measurement(case, [0.010, 0.011, 0.012])
    failed = msgspec.structs.replace(measurement, failures=(make_failure(case),))

    def read(*results, complete=True):
        write_results(tmp_path / "results.json", results, complete=complete)
        return read_suite(tmp_path)

    assert read(make_result([measurement])) == Reading(ok=True, figure=f"{case.id} 11.00 ms")
    refused = read(make_result([measurement], not_saved={case.id: Refused(reason="too noisy")}))
    assert (refused.ok, "is not stored: too noisy" in refused.figure) == (False, True)
    assert not read(make_result([failed])).ok
    assert not read(make_result([measurement]), complete=False).ok
    assert read() == Reading(ok=False, figure="nothing was measured")


@pytest.mark.parametrize(
    ("joules", "ok", "figure"),
    [
        (60.0, True, "500 to 500 W, limit 700 W"),  # over 12 steps of 10 ms
        (120.0, False, "1000 to 1000 W"),
        (None, False, "2 of 2 readings lack"),
    ],
)
def test_energy_is_a_proof_if_the_card_can_draw_that_power(tmp_path, joules, ok, figure):
    machine = make_gpu_machine("NVIDIA H200", power_limit_w=700.0)
    measurement = make_measurement(make_cases()[0], [0.01] * 2, energy_j=joules)
    write_results(
        tmp_path / "results.json", [make_result([measurement], machine=machine)], complete=True
    )

    reading = read_energy(tmp_path)

    assert (reading.ok, figure in reading.figure) == (ok, True)


def test_slow_downs_are_a_proof_if_each_has_the_requested_size(tmp_path):
    row = SlowDown(case="c", injection="compute:5%", asked="+5.0%", measured="+4.9%", holds=True)
    missed = msgspec.structs.replace(row, holds=False)
    file = tmp_path / "slow_downs.json"

    file.write_bytes(msgspec.json.encode([row]))
    assert read_slow_downs(tmp_path) == Reading(ok=True, figure="compute:5%: +4.9%")
    file.write_bytes(msgspec.json.encode([row, missed]))
    assert not read_slow_downs(tmp_path).ok


@pytest.mark.slow
def test_doctor_is_a_proof_on_any_machine_with_a_runtime(prove):
    doctor = next(proof for proof in PROOFS if proof.name == "doctor")

    _, rows = prove(doctor, gpus=0)

    assert "passed" in rows["doctor"], rows


def test_an_unknown_proof_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stopped:
        gpu_proof.main(["--only", "everything"])

    assert stopped.value.code == 2
    assert "invalid choice: 'everything'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_python_with_all_packages_is_used_without_a_venv(tmp_path):
    shutil.copytree(ROOT / "ci", tmp_path / "ci")
    (tmp_path / "tests" / "quality").mkdir(parents=True)
    shutil.copytree(ROOT / "bench_configs", tmp_path / "bench_configs")
    for name in ("gpu_proof.py", "gpu_proof_runner.py", "gpu_pace.py", "slow_downs.py"):
        shutil.copy(ROOT / "tests" / "quality" / name, tmp_path / "tests" / "quality")
    env = {"PATH": os.defpath, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [tmp_path / "ci" / "gpu-proof", "--list"], env=env, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [p.name for p in PROOFS]
    assert not (tmp_path / ".venv").exists()
