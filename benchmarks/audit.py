"""Audit a gate on thirty nights of played launches, and print what its history says.

    python benchmarks/audit.py [--nights N] [--seed N] [--without-pairs]

A session of six cases is played every night: sessions differ by an sd of 1 %, and launches by as
much. The code never changes. After ten nights that only store their sessions, each night ends with
an audit, by the functions of --ddp-audit; its second stage has three minutes of played launches.
The tolerance of the step time is 5 %.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.verdict import GateAudit
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.touched import Project
from ddp_perf.history.text import audit_lines, audit_sentence
from ddp_perf.session.gate_audit import AuditRequest, HiddenSlowDown, draw_slow_down, run_audit
from ddp_perf.session.measure.rounds import Bench, SessionCode, SessionOptions, no_packages
from ddp_perf.session.measure.suite import SuiteRequest, run_suite
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import append
from ddp_perf.settle.settling import SettleRequest, Settling
from ddp_perf.stats.rule.error_rate import OF_SESSION, alpha_per_metric
from ddp_perf.system.git import CodeState, tree_of
from tests.builders import NotedProgress, make_baseline, make_capacity
from tests.repositories import Repository
from tests.unit.duel.played_sides import PlayedSide, make_prepared

SUITE = """
suite: nights
tier: cpu
workload: mlp
model: {input_dim: 64, hidden_dim: 64, output_dim: 8}
world_sizes: [1, 2]
batch_sizes: [16, 32, 64]
steps: 12
warmup: 2
launches: 5
"""
FILE = "bench_configs/nights.yaml"
WARM_UP = 10  # nights that only store their session
SESSION_SD, LAUNCH_SD = 0.01, 0.01
SETTLE_S, FALSE_ALARM_RATE, METRICS = 180.0, 0.01, 4.5  # gated ones of a case, on average
START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
CAPACITY = make_capacity()


class Clock:
    """The clock of the played launches, which nothing else reads."""

    now = 0.0


class Nights:
    """A machine on which nothing changes, and its baseline."""

    def __init__(self, root: Path, *, seed: int, settle_s: float) -> None:
        repository = Repository(root / "project")
        commit = repository.commit({FILE: SUITE}, "suite")
        self._root, self._settle_s = repository.path, settle_s
        self._store = BaselineStore(root / "baselines")
        state = CodeState(commit=commit, tree=tree_of(self._root, commit))
        self._code = SessionCode(state=state, problem=None, packages=no_packages)
        self._cases = load_cases([self._root / FILE], Overrides(), ())
        rate = FALSE_ALARM_RATE * (OF_SESSION if settle_s else 1.0)
        self._alpha = alpha_per_metric(rate, round(METRICS * len(self._cases)))
        self._seed, self._random = seed, random.Random(seed)
        self._baseline = make_baseline({}, accelerator=CAPACITY.accelerator_key("cpu"))

    def audited(self, night: int) -> GateAudit | None:
        """Measure a night and store it; return its audit, once there are sessions enough."""
        before, slower = self._baseline, math.exp(self._random.gauss(0.0, SESSION_SD))
        bench = Bench(
            launcher=self._side(slower),
            progress=NotedProgress(),
            capacity=CAPACITY,
            store=self._store,
            code=self._code,
            root=self._root,
        )
        result = self._measured(bench, night)
        self._baseline, _ = append(result, before)
        hidden = self._drawn(result) if night >= WARM_UP else None
        return None if hidden is None else self._audit(hidden, before, bench, slower)

    def _drawn(self, result: SuiteResult) -> HiddenSlowDown | None:
        """Draw by the date and the seed alone, so that each run of this script draws the same."""
        environment = msgspec.structs.replace(
            result.environment, host="played", commit=f"{self._seed}"
        )
        return draw_slow_down([msgspec.structs.replace(result, environment=environment)])

    def _measured(self, bench: Bench, night: int) -> SuiteResult:
        result = run_suite(
            SuiteRequest(
                suite="nights",
                cases=tuple(self._cases),
                alpha=self._alpha,
                options=SessionOptions(budget_s=0.0, explain_budget_s=0.0),
                baseline=self._baseline,
                keeps_output=False,
            ),
            bench,
            on_partial=lambda partial: None,
        )
        date = (START + datetime.timedelta(days=night)).isoformat()
        return msgspec.structs.replace(result, date=date)

    def _audit(
        self, hidden: HiddenSlowDown, before: Baseline, bench: Bench, slower: float
    ) -> GateAudit:
        return run_audit(
            AuditRequest(hidden=hidden, baseline=before, alpha=self._alpha),
            bench,
            settle=self._settling(hidden, slower),
        )

    def _settling(self, hidden: HiddenSlowDown, slower: float) -> Settling:
        @contextlib.contextmanager
        def played(*_: object) -> Iterator[tuple[OpenSide, OpenSide]]:
            a, b = (OpenSide(make_prepared(name, self._root), self._side(slower)) for name in "AB")
            yield a, b

        return Settling(
            SettleRequest(
                project=Project(root=self._root, suites=(self._root / FILE,), import_paths=()),
                store=self._store,
                capacity=CAPACITY,
                budget_s=self._settle_s,
                false_alarm_rate=FALSE_ALARM_RATE / len(self._cases),
                cases=1,
                state=self._code.state,
                overrides=Overrides(),
                injections=hidden.injections,
                blind=True,
            ),
            say=lambda line: None,
            sides=played,
        )

    def _side(self, slower: float) -> PlayedSide:
        return PlayedSide(Clock(), self._random.getrandbits(32), slower=slower, noise=LAUNCH_SD)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=30, help="with an audit (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the noise (%(default)s)")
    parser.add_argument("--without-pairs", action="store_true", help="stored sessions alone judge")
    options = parser.parse_args()
    settle_s = 0.0 if options.without_pairs else SETTLE_S
    with tempfile.TemporaryDirectory() as directory:
        nights = Nights(Path(directory), seed=options.seed, settle_s=settle_s)
        found = [nights.audited(night) for night in range(WARM_UP + options.nights)]
    audits = [audit for audit in found if audit is not None]
    for audit in audits:
        print(audit_sentence(audit))
    print(f"{len(audits)} of {options.nights} nights had a case to audit")
    print("\n".join(audit_lines(audits)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
