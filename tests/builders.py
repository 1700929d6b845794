"""Small values for tests: each factory has sensible defaults and takes what a test is about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.work import StoredWork
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import CollectivesSuite, ScriptSuite, TrainingSuite
from ddp_perf.core.baseline import TYPICAL_STEP, Acknowledgement, Baseline, CaseBaseline, Session
from ddp_perf.core.case import Case, CostOptions, with_training
from ddp_perf.core.decomposition import TERMS, Decomposition, RankPhases, RankProbe, RankShare
from ddp_perf.core.environment import Environment
from ddp_perf.core.gpu import Gpu, GpuLink, GpuMachine, PcieLevel
from ddp_perf.core.launch import (
    Collective,
    GpuUse,
    LaunchFailure,
    LaunchRequest,
    LaunchResult,
    Placement,
    RankConditions,
    RankResult,
    RankUtilisation,
    ScriptFacts,
    Structure,
    Unit,
)
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import METRICS
from ddp_perf.core.note import Note, NoteKind
from ddp_perf.core.verdict import Culprit, Outcome, Verdict
from ddp_perf.core.work import StepWork
from ddp_perf.launch.launcher import Runtime
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS

CPU_S = 0.009  # CPU time of a step
LOSSES = {"1": 0.8, "2": 0.7, "4": 0.6, "8": 0.5}
SUITE = {
    "suite": "quick",
    "tier": "cpu",
    "workload": "mlp",
    "model": {"input_dim": 16, "hidden_dim": 32, "output_dim": 8, "num_layers": 2},
    "world_sizes": [1, 2],
    "batch_sizes": [64],
    "steps": 12,
    "warmup": 2,
    "launches": 3,
}

SCRIPTS = {
    "suite": "scripts",
    "tier": "cpu",
    "script": "train.py",
    "args": ["--batch-size", "{batch_size}", "--epochs", "1"],
    "world_sizes": [1, 2],
    "batch_sizes": [64],
    "steps": 12,
    "warmup": 2,
    "launches": 3,
}


def make_suite(**changes: Any) -> TrainingSuite:
    return msgspec.convert({**SUITE, **changes}, TrainingSuite)


def make_cases(*, ranks_per_node: int | None = None, **changes: Any) -> list[Case]:
    """The cases of a suite; by default one rank without DDP, and two with it."""
    return cases_of(Variant(suite=make_suite(**changes), ranks_per_node=ranks_per_node))


def make_case(**changes: Any) -> Case:
    """Two ranks of DDP over gloo."""
    return changed_case(make_cases()[1], **changes)


def changed_case(case: Case, **changes: Any) -> Case:
    """Return the case with changed fields, those of its training and its cost among them."""
    fields = {name: changes.pop(name) for name in [*changes] if name not in Case.__struct_fields__}
    costs = {name: fields.pop(name) for name in [*fields] if name in CostOptions.__struct_fields__}
    cost = msgspec.structs.replace(case.cost, **costs)
    case = msgspec.structs.replace(case, cost=cost, **changes)
    return with_training(case, **fields) if fields else case


def make_request(
    workload: str,
    directory: Path | None = None,
    *,
    ranks_per_node: int | None = None,
    **suite: Any,
) -> LaunchRequest:
    """Return a launch of a small case of ``workload``, which is imported from ``directory``.

    By default the case has two ranks and no arguments of its model; ``suite`` changes that.
    """
    small = {"workload": workload, "model": {}, "world_sizes": [2], "batch_sizes": [4]}
    (case,) = make_cases(ranks_per_node=ranks_per_node, **{**small, **suite})
    paths = () if directory is None else (str(directory),)
    return LaunchRequest(case=case, round=0, import_paths=paths)


COLLECTIVES = {
    "suite": "links",
    "tier": "cpu",
    "collectives": ["all_reduce", "broadcast"],
    "sizes": ["1KiB", "64KiB", "1MiB", "16MiB"],
    "world_sizes": [2],
    "steps": 12,
    "warmup": 2,
    "launches": 3,
    "tolerances": {"step_time": 0.1, "tail": None},
}


def make_collectives(*, ranks_per_node: int | None = None, **changes: Any) -> list[Case]:
    """The cases of a suite of collectives; by default two of them over four sizes, two ranks."""
    suite = msgspec.convert({**COLLECTIVES, **changes}, CollectivesSuite)
    return cases_of(Variant(suite=suite, ranks_per_node=ranks_per_node))


SCRIPT = {
    "suite": "mine",
    "tier": "cpu",
    "script": "train.py",
    "args": ["--batch-size", "{batch_size}"],
    "world_sizes": [1, 2],
    "batch_sizes": [64],
    "steps": 12,
    "warmup": 2,
    "launches": 3,
}


def make_scripts(**changes: Any) -> list[Case]:
    """The cases of a script; by default of one and two ranks."""
    suite = msgspec.convert({**SCRIPT, **changes}, ScriptSuite)
    return cases_of(Variant(suite=suite, ranks_per_node=None))


def make_script_facts(**changes: Any) -> ScriptFacts:
    fields = {"steps_at": "train.py:25", "micro_steps": (1, 1), "optimizers": 1, "skipped": 0}
    return ScriptFacts(**{**fields, **changes})


def make_structure(**changes: Any) -> Structure:
    fields = {
        "parameters": 808,
        "gradient_bytes": 3232,
        "buckets": (3232,),
        "collectives": (Collective(kind="all_reduce", dtype="float32", bytes=3232),),
    }
    return Structure(**{**fields, **changes})


def make_stored_structure(case: Case, structure: Structure | None = None) -> StoredWork:
    step = StepWork(structure=structure or make_structure())
    return StoredWork(options=case.work(), step=step)


def make_placement(rank: int = 0, **changes: Any) -> Placement:
    fields = {
        "rank": rank,
        "device": "cpu",
        "device_id": f"cores {rank}",
        "device_name": "Some Processor",
        "cores": (rank,),
        "cuda_visible_devices": None,
        "host": "host",
    }
    return Placement(**{**fields, **changes})


def make_rank_result(rank: int = 0, **changes: Any) -> RankResult:
    fields = {
        "placement": make_placement(rank),
        "warmup_s": (0.5, 0.1),
        "step_s": (0.01,) * 10,
        "cpu_s": (CPU_S,) * len(changes.get("step_s", range(10))),
        "control_s": (0.002,) * 8,
        "peak_memory": 1000,
        "digest": 42,
        "structure": make_structure(),
        "losses": LOSSES,
        "ddp_logging": {},
    }
    return RankResult(**{**fields, **changes})


def make_utilisation(**changes: Any) -> RankUtilisation:
    """Half a core in 2 s, a fifth of it in the kernel; ``gpu``: fields of its use, if any."""
    gpu = changes.pop("gpu", None)
    fields: dict[str, Any] = {"period_s": 2.0, "cpu_s": 1.0, "system_s": 0.2, "loaders_cpu_s": 0.0}
    if gpu is not None:
        fields["gpu"] = GpuUse(**gpu)
    return RankUtilisation(**{**fields, **changes})


PHASES_S = {
    "data": 0.0001,
    "forward": 0.002,
    "backward": 0.004,
    "optimizer": 0.001,
    "idle": 0.0,
    "waiting": 0.0,
    "exposed": 0.003,
}


def make_probe(*, steps: int = 8, **changes: Any) -> RankProbe:
    """Every step alike; ``changes`` are seconds of a phase, or other fields of the probe."""
    phases = {name: changes.pop(name, seconds) for name, seconds in PHASES_S.items()}
    fields = {
        "phases": RankPhases(**{name: (seconds,) * steps for name, seconds in phases.items()}),
        "unsynchronised_backward": (phases["backward"],) * steps,
        "communication": (0.005,) * steps,
    }
    return RankProbe(**{**fields, **changes})


def make_decomposition(**terms: float) -> Decomposition:
    """Two ranks alike; a term is 1 ms where it is not given."""
    values = {term: terms.pop(term, 0.001) for term in TERMS}
    fields = {
        "step_s": sum(values.values()),
        "communication_s": 0.005,
        "host_reads": 0,
        "allocator_retries": 0.0,
        "sees_communication": True,
        "ranks": (RankShare(own_s=0.006, waits_s=0.001, last_share=0.5),) * 2,
    }
    return Decomposition(terms=values, **{**fields, **terms})


def make_launch(
    case: Case, round_: int = 0, *, step_s: float | tuple[float, ...] = 0.01, **rank: Any
) -> LaunchResult:
    """A launch whose ranks all took ``step_s`` a step. ``rank``: changes of every rank's result."""
    steps = step_s if isinstance(step_s, tuple) else (step_s,) * case.schedule.measured
    if case.collective is not None:
        unit = Unit(name="bytes", per_sample=case.collective.payload)
        rank = {"digest": None, "structure": None, "losses": {}, "unit": unit, **rank}
    ranks = tuple(make_rank_result(r, step_s=steps, **rank) for r in range(case.world_size))
    return LaunchResult(
        case_id=case.id,
        round=round_,
        ranks=ranks if case.nodes == 1 else tuple(_on_nodes(ranks, case)),
        started="2026-01-02T03:04:05+00:00",
        wall_s=1.0,
    )


def _on_nodes(ranks: Sequence[RankResult], case: Case) -> Iterator[RankResult]:
    """The ranks on the nodes of their case, whose hosts are a, b, c …"""
    for rank in ranks:
        node = rank.placement.rank // case.ranks_per_node
        place = msgspec.structs.replace(rank.placement, node=node, host="abcdefgh"[node])
        yield msgspec.structs.replace(rank, placement=place)


def make_failure(case: Case, round_: int = 0, **changes: Any) -> LaunchFailure:
    fields = {"kind": "exit", "rank": 1, "detail": "exited with code 3"}
    return LaunchFailure(case_id=case.id, round=round_, **{**fields, **changes})


def make_logged(
    arm: str,
    block: int = 0,
    turn: int = 0,
    *,
    arms: int = 1,
    case_id: str = "case",
    wall_s: float = 1.0,
    failure: str = "failed",
    **values: float,
) -> LoggedLaunch:
    """A launch of a log with these figures; without any, it failed."""
    began = "2026-01-02T03:04:05+00:00"
    fields = {"block": block, "turn": turn, "arms": arms, "case_id": case_id, "arm": arm}
    fields |= {"started": began, "ready_s": 0.0}
    if not values:
        why = LaunchFailure(case_id=case_id, round=block, kind="exit", rank=0, detail=failure)
        return LoggedLaunch(**fields, wall_s=0.0, failure=why)
    step_s = values["step_time"]
    summary = LaunchSummary(
        round=block,
        values=values,
        control_s=0.002,
        typical_step_s=step_s,
        mean_step_s=step_s,
        p95_step_s=step_s,
        throughput=128 / step_s,
        overhead_s=0.5,
    )
    return LoggedLaunch(**fields, wall_s=wall_s, summary=summary)


def make_measurement(
    case: Case, step_s: Sequence[float | tuple[float, ...]], **rank: Any
) -> Measurement:
    """One launch for each of ``step_s``."""
    launches = [make_launch(case, i, step_s=value, **rank) for i, value in enumerate(step_s)]
    return Measurement(case=case, launches=tuple(launches), failures=())


def with_conditions(measurement: Measurement, *each: RankConditions | None) -> Measurement:
    """One for each launch: of all of its ranks; None: nothing known."""
    launches = [
        launch if conditions is None else _under(launch, conditions)
        for launch, conditions in zip(measurement.launches, each, strict=True)
    ]
    return msgspec.structs.replace(measurement, launches=tuple(launches))


def _under(launch: LaunchResult, conditions: RankConditions) -> LaunchResult:
    ranks = [msgspec.structs.replace(rank, conditions=conditions) for rank in launch.ranks]
    return msgspec.structs.replace(launch, ranks=tuple(ranks))


def make_environment(**changes: Any) -> Environment:
    fields = {
        "accelerator": "Some Processor",
        "accelerator_key": "cpu-some-2c-host",
        "accelerator_count": 2,
        "interconnect": None,
        "host": "host",
        "os": "Linux",
        "python": "3.11.2",
        "torch": "2.13.0",
        "cuda": None,
        "cudnn": None,
        "nccl": None,
        "driver": None,
        "blas": "mkl",
        "commit": "0123456789ab",
    }
    return Environment(**{**fields, **changes})


def make_session(step_s: list[float], *, day: int = 1, **figures: float) -> Session:
    """One launch for each of ``step_s``; ``figures`` replace the other metrics of each."""
    others = {"tail": 1.0, "cpu_time": CPU_S, "peak_memory": 1000.0, "control": 0.002, **figures}
    return Session(
        date=f"2026-01-{day:02}T03:04:05+00:00",
        environment=make_environment(),
        launches=tuple({"step_time": value, TYPICAL_STEP: value, **others} for value in step_s),
        overhead_s=0.3,
    )


def make_case_baseline(case: Case, *sessions: Session, **changes: Any) -> CaseBaseline:
    fields = {
        "work": case.work(),
        "structure": make_structure(),
        "losses": LOSSES,
        "sessions": sessions or (make_session([0.01, 0.0101, 0.0099]),),
        "first": {"step_time": 0.01},
    }
    return CaseBaseline(**{**fields, **changes})


def make_baseline(cases: dict[str, CaseBaseline] | None = None, **changes: Any) -> Baseline:
    fields = {
        "accelerator": "cpu-some-2c-host",
        "units": {metric.name: metric.unit for metric in METRICS}
        | {"control": "s", TYPICAL_STEP: "s"},
        "cases": cases or {},
    }
    return Baseline(**{**fields, **changes})


def make_finding(case: Case, outcome: Outcome, **changes: Any) -> Finding:
    """Of the step time; ``ratio``, ``interval`` and so on go to its verdict."""
    verdict = {
        name: changes.pop(name)
        for name in Verdict.__struct_fields__
        if name != "outcome" and name in changes
    }
    fields = {
        "case_id": case.id,
        "metric": "step_time",
        "verdict": Verdict(outcome=outcome, **{"reason": "because", **verdict}),
    }
    return Finding(**{**fields, **changes})


def make_excuse(why: str, kind: NoteKind = NoteKind.DISTURBED) -> tuple[Note, ...]:
    return (Note(kind=kind, facts=(why,), was=Outcome.PASS),)


def make_result(measurements: list[Measurement], **changes: Any) -> SuiteResult:
    by_id = {measurement.case.id: measurement for measurement in measurements}
    fields = {
        "suite": "quick",
        "tier": "cpu",
        "date": "2026-01-02T03:04:05+00:00",
        "environment": make_environment(),
        "baseline_path": "baselines/some.json",
        "alpha": 0.001,
        "measurements": by_id,
        "summaries": {case_id: tuple(rows) for case_id, rows in summaries_of(by_id).items()},
    }
    return SuiteResult(**{**fields, **changes})


def make_gpu(index: int = 0, **changes: Any) -> Gpu:
    """UUIDs are told apart by their first figure: GPU-0…, GPU-1…"""
    fields = {
        "index": index,
        "uuid": f"GPU-{index}abc-0000",
        "name": "NVIDIA H200",
        "compute_capability": (9, 0),
    }
    return Gpu(**{**fields, **changes})


def make_gpus(count: int) -> list[Gpu]:
    return [make_gpu(index) for index in range(count)]


def make_gpu_machine(
    *names: str, nvlinks: int = 0, pcie: PcieLevel = "PHB", **changes: Any
) -> GpuMachine:
    """GPUs of these names, every pair linked alike. ``changes``: of every GPU."""
    gpus = tuple(make_gpu(index, name=name, **changes) for index, name in enumerate(names))
    pairs = itertools.combinations(range(len(names)), 2)
    links = [GpuLink(first=a, second=b, nvlinks=nvlinks, pcie=pcie) for a, b in pairs]
    return GpuMachine(gpus=gpus, links=tuple(links), driver="570.1")


def make_capacity(machine: GpuMachine = NO_GPUS, cores: int = 2) -> Capacity:
    return Capacity(machine=machine, cores=cores)


RUNTIME = Runtime(
    python="3.11.2", torch="2.13.0", cuda="12.8", cudnn="90100", nccl="2.27.3", blas="mkl"
)


class FakeLauncher:
    """Answers each launch with ``answer(request)``, and notes what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer or (lambda request: make_launch(request.case, request.round))
        self.asked: list[tuple[str, int]] = []

    def runtime(self, case: Case | None = None) -> Runtime:
        return RUNTIME

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        self.asked.append((request.case.id, request.round))
        outcome: LaunchResult | LaunchFailure = self._answer(request)
        return outcome

    def close(self) -> None:
        pass


class NotedProgress:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, dict[str, float]]] = []
        self.extended: list[tuple[int, str]] = []
        self.finished: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.ended = False

    def begin(self, suite: str, plan: Sized, expected_s: Mapping[str, float]) -> None:
        self.begun.append((suite, len(plan), dict(expected_s)))

    def extend(self, plan: Sized, why: str, *, judged: bool) -> None:
        self.extended.append((len(plan), why))

    def launched(self, request: LaunchRequest, outcome: Any) -> None:
        self.finished.append((request.case.id, request.round))

    def warn(self, line: str) -> None:
        self.said.append(line)

    def end(self) -> None:
        self.ended = True


def make_acknowledgement(case: Case, /, **changes: Any) -> Acknowledgement:
    """Of the step time, for all of 2026."""
    fields = {
        "case": case.id,
        "metric": "step_time",
        "reason": "new kernel, see #12",
        "until": "2026-12-31",
        "date": "2026-01-01T00:00:00+00:00",
    }
    return Acknowledgement(**{**fields, **changes})


def make_culprit(**changes: Any) -> Culprit:
    """A commit that launches found."""
    fields = {
        "kind": "commit",
        "name": "1a2b3c4d5e6f708192a3",
        "title": "Fuse the loss",
        "author": "Ada",
        "probability": 0.98,
        "ratio": 1.12,
        "interval": (1.101, 1.14),
        "launches": 24,
        "seconds": 60.0,
        "why": "step time of 24 launches",
    }
    return Culprit(**{**fields, **changes})


HOSTILE = '</title><script>alert("&1")</script><svg onload=x> `|%_$ \\ é\n::error::'


def make_hostile_result(text: str = HOSTILE) -> SuiteResult:
    """Every text that a report shows holds markup: of HTML, LaTeX, Markdown and GitHub."""
    case = make_case(id=f"mlp-{text}", suite=f"../{text}")
    measurement = make_measurement(case, [0.0111] * 3, probe=make_probe())
    failure = make_failure(case, detail=text, output=text, stacks={text: text})
    finding = make_finding(
        case, Outcome.REGRESSION, ratio=1.1, interval=(1.0, 1.2), reason=text, changed=(text,)
    )
    return make_result(
        [msgspec.structs.replace(measurement, failures=(failure,))],
        suite=case.suite,
        findings=(finding,),
        environment=make_environment(accelerator=text, commit=text, os=text),
        injections=(text,),
        baseline_path=text,
        commands={case.id: text},
    )
