"""The proofs of ``ci/gpu-proof``: what each runs, what it needs, and which figure shows it."""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
from gpu_pace import LARGEST_BATCH, SUITE, Pace
from gpu_proof_runner import CALIBRATED_S, PACE, PYTHON, Proof, ProofRunner, Reading
from slow_downs import COMPUTE, ROUNDS, SlowDown

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.session.result import read_results
from ddp_perf.system.gpu.gpus import find_gpus

ROOT = Path(__file__).parents[1]
START_S = 90.0  # Python, the collection of tests, and a server that imports torch
DDP_PERF = (PYTHON, "-c", "from ddp_perf.cli.app import app; app()")
PYTEST = (PYTHON, "-m", "pytest", "-m", "gpu", "--junitxml", "{out}/junit.xml")
BASELINES = "{all}/suite/baselines"
MEASURE_SUITE = (
    *PYTEST,
    "tests/perf",
    "--ddp-config=bench_configs/mlp_scaling.yaml",
    f"--override-ini=ddp_baselines={BASELINES}",
    "--ddp-json={out}/results.json",
    "--ddp-report={out}/report",
)
SHARED, GRAPHS = "tests/correctness/test_shared_gpu.py", "tests/correctness/test_fixed_batch.py"
FAULTS = "tests/correctness/test_faults.py"
_BUDGETS_S = 60.0 + 30.0  # of a case: more launches while it is undecided, and to explain it
# The launches of tests/correctness by the number of ranks, and of the files that are left out.
_TESTS = {1: 22, 2: 160, 4: 80}
WITHOUT_THESE = tuple(f"--ignore={file}" for file in (SHARED, GRAPHS, FAULTS))


def read_doctor(out: Path) -> Reading:
    """Read the machine and the first remedies of doctor. Doctor is what this proof proves."""
    found = msgspec.json.decode((out / "output.txt").read_bytes())
    (out / "doctor.json").write_bytes((out / "output.txt").read_bytes())
    gpus, spoilers = found["machine"]["gpus"], found["spoilers"]
    runtime = found["runtime"]
    figure = f"{len(gpus)} x {gpus[0]['name']}, " if gpus else "no GPU, "
    figure += f"{len(spoilers)} to mend" + (f": {spoilers[0]['what']}" if spoilers else "")
    return Reading(ok=runtime is not None, figure=figure)


def read_tests(out: Path) -> Reading:
    """Count the tests, and list the reasons of skipped ones. If none passed, nothing is proved."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    figures = []
    for test in ElementTree.parse(out / "junit.xml").iter("testcase"):
        ends = [child for child in test if child.tag in ("failure", "error", "skipped")]
        counts[ends[0].tag if ends else "passed"] += 1
        reasons.update(end.get("message", "") for end in ends if end.tag == "skipped")
        figures += [f"{p.get('name')} {p.get('value')}" for p in test.iter("property")]
    text = ", ".join(f"{number} {what}" for what, number in counts.items())
    text += "".join(f"; {number} x {why}" for why, number in reasons.most_common(2))
    failed = counts["failure"] + counts["error"]
    return Reading(ok=counts["passed"] > 0 and not failed, figure=", ".join([text, *figures[:3]]))


def read_suite(out: Path) -> Reading:
    """Read the typical step of each case, and count the verdicts of each kind."""
    file = read_results(out / "results.json")
    figures, verdicts, problems = [], Counter[str](), []
    for suite in file.suites:
        verdicts.update(finding.verdict.outcome.value for finding in suite.findings)
        problems += [
            f"{case_id} is not stored: {why.reason}" for case_id, why in suite.not_saved.items()
        ]
        for case_id, measurement in suite.measurements.items():
            problems += [f"{case_id}: {failure.detail}" for failure in measurement.failures]
            values = [row.values["step_time"] for row in suite.summaries.get(case_id, ())]
            if values:
                figures.append(f"{case_id} {1e3 * statistics.median(values):.2f} ms")
    ok = bool(figures) and not problems and file.complete
    figures += [f"{number} {outcome}" for outcome, number in verdicts.items()]
    return Reading(ok=ok, figure="; ".join([*figures, *problems[:1]]) or "nothing was measured")


def read_slow_downs(out: Path) -> Reading:
    """Compare each slow-down that was asked for with the measured one."""
    rows = msgspec.json.decode((out / "slow_downs.json").read_bytes(), type=list[SlowDown])
    text = "; ".join(f"{row.injection}: {row.measured}" for row in rows)
    return Reading(ok=all(row.holds for row in rows), figure=text)


def read_energy(out: Path) -> Reading:
    """Return the mean power of one GPU while it trained. Its power limit must exceed it."""
    watts: list[float | None] = []
    limits: list[float] = []
    for suite in read_results(out / "results.json").suites:
        gpus = suite.machine.gpus if suite.machine else ()
        limits += [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w]
        for row in itertools.chain.from_iterable(suite.summaries.values()):
            joules_per_sample = row.values.get("energy")
            watts.append(joules_per_sample and joules_per_sample * row.throughput)
    known = [w for w in watts if w is not None]
    if not known or len(known) < len(watts):
        return Reading(ok=False, figure=f"{len(watts) - len(known)} of {len(watts)} readings lack")
    # The limit is one of the mean, and NVML states its counter to a few per cent.
    within = not limits or max(known) < 1.1 * max(limits)
    limit = f", limit {max(limits):.0f} W" if limits else ""
    return Reading(ok=within, figure=f"{min(known):.0f} to {max(known):.0f} W{limit}")


def read_pace(out: Path) -> Reading:
    """Read the seconds of a launch at each number of ranks."""
    pace = msgspec.json.decode((out / "pace.json").read_bytes(), type=Pace)
    each = [f"{ranks} ranks {seconds:.1f} s" for ranks, seconds in pace.launch_s.items()]
    return Reading(ok=True, figure=", ".join([*each, f"a step {pace.step_s * 1e3:.1f} ms"]))


def suite_launches() -> dict[int, int]:
    """Return the launches of a session of the suite, by the number of ranks."""
    counts: Counter[int] = Counter()
    for case in load_cases([SUITE], Overrides()):
        counts[case.world_size] += case.schedule.launches
    return dict(counts)


PROOFS = (
    Proof(
        name="doctor",
        shows="GPUs, links, limits and the torch of the ranks are read",
        gpus=0,
        limit_s=START_S,
        command=(*DDP_PERF, "doctor", "--json"),
        fine=(0, 1),
        read=read_doctor,
    ),
    Proof(
        name=PACE,
        shows="a launch of every world size there is succeeds, and how long it takes",
        gpus=1,
        limit_s=600.0,  # a launch that hangs is ended before
        command=(PYTHON, "ci/gpu_pace.py", "{out}/pace.json"),
        read=read_pace,
    ),
    Proof(
        name="suite",
        shows="mlp_scaling is measured and stored at every world size there is",
        gpus=1,
        limit_s=START_S,
        launches=suite_launches(),
        spare_s=_BUDGETS_S / 5,
        command=(*MEASURE_SUITE, "--save-baseline"),
        copies=("baselines/structure",),  # as shipped; no times
        read=read_suite,
    ),
    Proof(
        name="gate",
        shows="measured again, nothing got slower",
        gpus=1,
        limit_s=START_S,
        launches=suite_launches(),
        spare_s=_BUDGETS_S / 5,
        command=MEASURE_SUITE,
        read=read_suite,
    ),
    Proof(
        name="one-rank",
        shows="NCCL's process group, precisions and workloads train right on one rank",
        gpus=1,
        most_gpus=1,
        limit_s=START_S,
        launches=_TESTS,
        command=(*PYTEST, "tests/correctness", *WITHOUT_THESE),
        read=read_tests,
    ),
    Proof(
        name="correctness",
        shows="DDP, FSDP, hooks and accumulation train right over NCCL",
        gpus=2,
        limit_s=START_S,
        launches=_TESTS,
        command=(*PYTEST, "tests/correctness", *WITHOUT_THESE),
        read=read_tests,
    ),
    Proof(
        name="shared",
        shows="two ranks on one GPU over gloo: DDP's events, buckets, hooks, communication",
        gpus=1,
        limit_s=START_S,
        launches={1: 2 * 25},  # two ranks share the GPU
        command=(*PYTEST, SHARED),
        read=read_tests,
    ),
    Proof(
        name="graphs",
        shows="a captured step trains as an eager one",
        gpus=1,
        limit_s=START_S,
        launches={1: 4, 2: 2},
        command=(*PYTEST, GRAPHS),
        read=read_tests,
    ),
    Proof(
        name="slow-downs",
        shows="injections slow the step by what was asked",
        gpus=1,
        limit_s=START_S,
        launches={1: ROUNDS * (1 + len(COMPUTE)), 2: ROUNDS * 3},
        command=(PYTHON, "ci/slow_downs.py", "--json", "{out}/slow_downs.json"),
        read=read_slow_downs,
    ),
    Proof(
        name="energy",
        shows="joules per step, at a power that the card can draw",
        gpus=1,
        limit_s=START_S,
        launches={1: 3},
        spare_s=2 * CALIBRATED_S,
        command=(
            *(*PYTEST, "tests/perf", "-k", "step_time"),
            "--ddp-config=bench_configs/mlp_scaling.yaml",
            *("--ddp-world-sizes=1", f"--ddp-batch-sizes={LARGEST_BATCH}", "--ddp-steps={steps}"),
            *("--ddp-launches=3", "--ddp-json={out}/results.json", "--save-baseline"),
            "--override-ini=ddp_baselines={out}/baselines",
        ),
        read=read_energy,
    ),
    Proof(
        name="hang",
        shows="a hung rank is found, named and ended",
        gpus=1,
        limit_s=START_S,
        launches={1: 4, 2: 4},
        command=(*PYTEST, FAULTS, "-k", "hang"),
        read=read_tests,
    ),
    Proof(
        name="kill",
        shows="a killed rank is named; a killed driver leaves no rank behind",
        gpus=1,
        limit_s=START_S,
        launches={1: 4, 2: 4},
        command=(*PYTEST, FAULTS, "-k", "kill"),
        read=read_tests,
    ),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ci/gpu-proof")
    names = [proof.name for proof in PROOFS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PROOF")
    parser.add_argument("--list", action="store_true", help="show the proofs, and run none")
    options = parser.parse_args(arguments)
    if options.list:
        for proof in PROOFS:
            print(f"{proof.name:12} {proof.needs:13} {proof.shows}")
        return 0
    directory = ROOT / "artifacts" / "gpu-proof"
    runner = ProofRunner(PROOFS, gpus=find_gpus().gpus, root=ROOT, directory=directory)
    return runner.run(options.only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
