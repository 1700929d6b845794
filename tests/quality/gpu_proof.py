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

from ddp_perf.session.results_file import read_results
from ddp_perf.system.gpu.gpus import find_gpus
from tests.quality.gpu_proof_runner import PYTHON, Proof, ProofRunner, Reading
from tests.quality.slow_downs import SlowDown

ROOT = Path(__file__).parents[2]
MINUTE_S = 60
DDP_PERF = (PYTHON, "-c", "from ddp_perf.cli.app import app; app()")
PYTEST = (PYTHON, "-m", "pytest", "-m", "gpu", "--junitxml", "{out}/junit.xml")
BASELINES = "{all}/suite/baselines"
SUITE = (
    *PYTEST,
    "tests/perf",
    "--ddp-config=bench_configs/mlp_scaling.yaml",
    f"--override-ini=ddp_baselines={BASELINES}",
    "--ddp-json={out}/results.json",
    "--ddp-report={out}/report",
)
SHARED, GRAPHS = "tests/correctness/test_shared_gpu.py", "tests/correctness/test_fixed_batch.py"
FAULTS = "tests/correctness/test_faults.py"
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


PROOFS = (
    Proof(
        name="doctor",
        shows="GPUs, links, limits and the torch of the ranks are read",
        gpus=0,
        limit_s=1.5 * MINUTE_S,
        command=(*DDP_PERF, "doctor", "--json"),
        fine=(0, 1),
        read=read_doctor,
    ),
    Proof(
        name="suite",
        shows="mlp_scaling is measured and stored at every world size there is",
        gpus=1,
        limit_s=4 * MINUTE_S,
        command=(*SUITE, "--save-baseline"),
        copies=("baselines/structure",),  # as shipped; no times
        read=read_suite,
    ),
    Proof(
        name="gate",
        shows="measured again, nothing got slower",
        gpus=1,
        limit_s=3.5 * MINUTE_S,
        command=SUITE,
        read=read_suite,
    ),
    Proof(
        name="one-rank",
        shows="NCCL's process group, precisions and workloads train right on one rank",
        gpus=1,
        most_gpus=1,
        limit_s=2.5 * MINUTE_S,
        command=(*PYTEST, "tests/correctness", *WITHOUT_THESE),
        read=read_tests,
    ),
    Proof(
        name="correctness",
        shows="DDP, FSDP, hooks and accumulation train right over NCCL",
        gpus=2,
        limit_s=9 * MINUTE_S,
        command=(*PYTEST, "tests/correctness", *WITHOUT_THESE),
        read=read_tests,
    ),
    Proof(
        name="shared",
        shows="two ranks on one GPU over gloo: DDP's events, buckets, hooks, communication",
        gpus=1,
        limit_s=4 * MINUTE_S,
        command=(*PYTEST, SHARED),
        read=read_tests,
    ),
    Proof(
        name="graphs",
        shows="a captured step trains as an eager one",
        gpus=1,
        limit_s=2 * MINUTE_S,
        command=(*PYTEST, GRAPHS),
        read=read_tests,
    ),
    Proof(
        name="slow-downs",
        shows="injections slow the step by what was asked",
        gpus=1,
        limit_s=4 * MINUTE_S,
        command=(PYTHON, "tests/quality/slow_downs.py", "--json", "{out}/slow_downs.json"),
        read=read_slow_downs,
    ),
    Proof(
        name="energy",
        shows="joules per step, at a power that the card can draw",
        gpus=1,
        limit_s=1.5 * MINUTE_S,
        command=(
            *(*PYTEST, "tests/perf/test_throughput.py"),
            "--ddp-config=bench_configs/mlp_scaling.yaml",
            *("--ddp-world-sizes=1", "--ddp-batch-sizes=4096", "--ddp-steps=600"),
            *("--ddp-launches=3", "--ddp-json={out}/results.json", "--save-baseline"),
            "--override-ini=ddp_baselines={out}/baselines",
        ),
        read=read_energy,
    ),
    Proof(
        name="hang",
        shows="a hung rank is found, named and ended",
        gpus=1,
        limit_s=MINUTE_S,
        command=(*PYTEST, FAULTS, "-k", "hang"),
        read=read_tests,
    ),
    Proof(
        name="kill",
        shows="a killed rank is named; a killed driver leaves no rank behind",
        gpus=1,
        limit_s=MINUTE_S,
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
            print(f"{proof.name:12} {proof.needs:13} {proof.limit_s:4.0f} s  {proof.shows}")
        return 0
    directory = ROOT / "artifacts" / "gpu-proof"
    runner = ProofRunner(PROOFS, gpus=find_gpus().gpus, root=ROOT, directory=directory)
    return runner.run(options.only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
