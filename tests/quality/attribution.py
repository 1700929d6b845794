"""Measure how often the cause that is named first is the injected one, on real gloo launches.

A run is three sessions of a case as it is, and sessions that are slowed in one way, in two at once,
or in a way that no rule has, all in random order: the machine's own drift is in both. Each
session is written as a results file without a mark of what was done to it, and explained from
that file alone, against the run's sessions.
"""

from __future__ import annotations

import collections
import contextlib
import random
import sys
import tempfile
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import merge
from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.core.baseline import Baseline, CaseBaseline
from ddp_perf.core.explanation import Cause, Explanation
from ddp_perf.core.injection import parse_injection
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.explanation import explain_case
from ddp_perf.session.measure.environment import describe_environment
from ddp_perf.session.measure.explainer import PROBE_STEPS
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.results_file import read_results, write_results
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.lease import machine_lease

SESSIONS, LAUNCHES, STEPS = 3, 5, 20
SESSION: tuple[str, ...] = ()  # nothing is injected
Run = dict[tuple[str, ...], list[SuiteResult]]  # by what was injected
WORKLOADS = Path(__file__).parent / "workloads"
UNKNOWN = "(no rule has it)"
# What is injected, and what must be named: first, or where there are two, both in any order.
EXPECTED = {
    ("compute:20%",): {"compute"},
    ("straggler:0:10ms",): {"straggler of rank 0"},
    ("straggler:1:10ms",): {"straggler of rank 1"},
    ("extra-allreduce:4MB",): {"more communication"},
    ("small-buckets:64KB",): {"smaller buckets"},
    ("no-overlap",): {"lost overlap"},
    ("data:10ms",): {"data"},
    ("sync-each-step",): {"host sync"},
    ("straggler:1:10ms", "data:10ms"): {"straggler of rank 1", "data"},
    ("compute:20%", "extra-allreduce:4MB"): {"compute", "more communication"},
    (UNKNOWN,): {"unexplained"},
}


def main(runs: int = 10) -> int:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        machine = Machine(directory, stack.enter_context(contextlib.closing(ForkserverLauncher())))
        tally = Tally(machine)
        for run in range(runs):
            tally.add(machine.run(random.Random(run)))
            print(f"run {run + 1} of {runs} is done", file=sys.stderr)
    tally.report()
    enough = all(right >= 0.9 * runs for right in tally.right.values())
    print(f"named rightly at least 9 times of 10, each of them: {'yes' if enough else 'no'}")
    return int(not enough or tally.false > 0.1 * tally.slower)


class Tally:
    """The causes that were named, run by run."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.right = dict.fromkeys(EXPECTED, 0)
        self.named = {injected: collections.Counter[str]() for injected in EXPECTED}
        self.false, self.slower = 0, 0  # of sessions in which nothing was injected
        self.stored: CaseBaseline | None = None

    def add(self, run: Run) -> None:
        if self.stored is not None:  # of the run before: nothing changed between these sessions
            found = [self.machine.explain(session, self.stored) for session in run[SESSION]]
            slower = [one for one in found if one.step_change_s > 0]  # others: no cause
            self.slower += len(slower)
            self.false += sum(any(map(_is_certain, one.causes)) for one in slower)
        self.stored = self.machine.baseline(run[SESSION])
        for injected, expected in EXPECTED.items():
            (session,) = run[injected]
            first = self.machine.explain(session, self.stored).causes[: len(expected)]
            names = [f"{'likely ' if cause.likely else ''}{_name(cause)}" for cause in first]
            self.named[injected][" + ".join(names) or "nothing"] += 1
            self.right[injected] += set(map(_name, first)) == expected

    def report(self) -> None:
        for injected, counts in self.named.items():
            answers = ", ".join(f"{cause} {count}" for cause, count in counts.most_common())
            right = f"{self.right[injected]:2} of {counts.total()}"
            print(f"{' + '.join(injected):35} {right}   named first: {answers}")
        found = f"{self.false} of the {self.slower} that were slower by chance"
        print(f"{'nothing, held against the run before':37} {found} have a certain cause")
        print(f"{self.machine.disturbed} sessions were disturbed by others, and measured again")


class Machine:
    """A machine that measures sessions of one case, each in the form of its results file."""

    def __init__(self, directory: Path, launcher: ForkserverLauncher) -> None:
        self.directory, self.launcher = directory, launcher
        self.trouble = directory / "trouble"
        self.disturbed = 0
        (self.case,) = cases_of(Variant(suite=_suite(self.trouble)))
        self.environment = describe_environment(
            find_capacity(), "cpu", launcher.runtime(self.case), directory
        )

    def run(self, order: random.Random) -> Run:
        kinds = [*[SESSION] * SESSIONS, *EXPECTED]
        order.shuffle(kinds)
        sessions: Run = collections.defaultdict(list)
        for kind in kinds:
            sessions[kind].append(self.session(kind))
        return sessions

    def baseline(self, sessions: list[SuiteResult]) -> CaseBaseline:
        baseline = Baseline(accelerator=self.environment.accelerator_key, units={})
        for session in sessions:
            baseline = merge(baseline, new_sessions(session), mode="append", reason=None)
        return baseline.cases[self.case.id]

    def explain(self, session: SuiteResult, stored: CaseBaseline) -> Explanation:
        found = explain_case(session.measurements[self.case.id], stored, self.environment)
        assert found is not None  # every launch looks into its steps
        return found

    def session(self, injected: tuple[str, ...]) -> SuiteResult:
        """Measure a session, again if it was disturbed: the gate calls that INVALID, and explains
        nothing.
        """
        while True:
            result = self._session(injected)
            measured = result.measurements
            if prevailing_disturbance(self.case.id, measured, with_single=False) is None:
                return result
            self.disturbed += 1

    def _session(self, injected: tuple[str, ...]) -> SuiteResult:
        if UNKNOWN in injected:
            self.trouble.touch()
        with machine_lease(patience_s=600, on_wait=lambda message: None, gpus=()):
            launches = tuple(self._launch(round_, injected) for round_ in range(LAUNCHES))
        self.trouble.unlink(missing_ok=True)
        measured = {self.case.id: Measurement(case=self.case, launches=launches, failures=())}
        summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measured).items()}
        path = self.directory / "results.json"
        write_results(path, [self._result(measured, summaries)], complete=True)
        (result,) = read_results(path).suites
        assert not result.injections
        return result

    def _result(self, measured: dict[str, Measurement], summaries: dict) -> SuiteResult:
        return SuiteResult(
            suite="attribution",
            tier="cpu",
            date="2026-01-01T00:00:00+00:00",
            environment=self.environment,
            baseline_path="",
            alpha=0.01,
            measurements=measured,
            summaries=summaries,
        )

    def _launch(self, round_: int, injected: tuple[str, ...]) -> LaunchResult:
        outcome = self.launcher.launch(
            LaunchRequest(
                case=self.case,
                round=round_,
                import_paths=(str(WORKLOADS),),
                injections=tuple(map(parse_injection, set(injected) - {UNKNOWN})),
                **({"probe_steps": PROBE_STEPS} if injected else {}),
            )
        )
        if not isinstance(outcome, LaunchResult):
            raise SystemExit(str(outcome))
        return outcome


def _suite(trouble: Path) -> Suite:
    return msgspec.convert(
        {
            "suite": "attribution",
            "tier": "cpu",
            "workload": "accelerated:build",
            "model": {
                "width": 224,
                "blocks": 48,
                "timed_steps": STEPS,
                "trouble": str(trouble),
            },
            "ddp": {"bucket_cap_mb": 1, "gradient_as_bucket_view": True},
            "world_sizes": [2],
            "batch_sizes": [8],
            "steps": STEPS,
            "warmup": 5,
            "launches": LAUNCHES,
        },
        Suite,
    )


def _is_certain(cause: Cause) -> bool:
    return not cause.likely and cause.kind != "unexplained"


def _name(cause: Cause) -> str:
    return cause.kind if cause.rank is None else f"{cause.kind} of rank {cause.rank}"


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
