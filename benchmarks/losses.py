"""Measure what rounding changes in the golden losses of the CPU twins, and what mistakes change.

    python benchmarks/losses.py [--precision bf16] [--no-mistakes] [-k TEXT] [suite ...]

Every case of two ranks is launched for 32 steps: plainly, with other last bits, and with the
instructions of a processor without AVX. The mistakes are made in one process that trains on the
batches of both ranks, once for each workload.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.case import LOSS_TOLERANCES, Case, Schedule
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.session.gate.exact import losses_of, losses_to_store
from tests.correctness.one_process import batches_of, comparable, parts_of_ranks

ROOT = Path(__file__).parents[1]
STEPS = 32
KEPT = tuple(str(step) for step in (1, 2, 4, 8, 16, 32))
SHORT = Schedule(steps=STEPS - 5, warmup=5, launches=1, start_deadline_s=300, step_deadline_s=60)
OLDER = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}
MISTAKES = {
    "half": "half of each batch",
    "rank 0": "all ranks have the batch of rank 0",
    "alone": "gradients are not exchanged",
    "summed": "gradients are summed instead of averaged",
    "rate": "learning rate 10 % too high",
}

Losses = Mapping[str, float]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The losses of a case by step, and the changes of each further launch as shares."""

    case: Case
    stored: tuple[str, ...]  # the steps that a session would store
    changes: dict[str, dict[str, float]]  # by launch and step

    @property
    def name(self) -> str:
        return f"{self.case.suite} {self.case.id}"

    @property
    def share_of_tolerance(self) -> float:
        """The largest change of a stored step, as a share of the tolerance."""
        assert self.case.loss_tolerance is not None
        largest = max((_largest(each, self.stored)[0] for each in self.changes.values()), default=0)
        return largest / self.case.loss_tolerance


def main() -> None:
    options = _options()
    suites = {path.stem: path for path in find_suites(ROOT / "bench_configs" / "cpu")}
    chosen = [suites[name] for name in options.suites or suites]
    cases = [_short(case, options.precision) for case in load_cases(chosen, Overrides())]
    cases = [
        case for case in cases if case.trains and case.world_size == 2 and options.k in case.id
    ]
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    print("changes of stored steps | of later steps, as shares of the largest loss:")
    measured = []
    for each in _measured(cases):
        measured.append(each)
        print(_changes_text(each), flush=True)
    worst = max(measured, key=lambda each: each.share_of_tolerance)
    print(f"least margin: {1 / worst.share_of_tolerance:.1f} ({worst.name})")
    if options.mistakes:
        print("mistakes, in fp32: the first change of a stored step beyond the tolerance | largest")
        for each in {one.case.workload: one for one in reversed(measured)}.values():
            for line in _mistakes_text(each):
                print(line, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("-k", default="", metavar="TEXT", help="only cases with TEXT in their ids")
    parser.add_argument("--precision", choices=LOSS_TOLERANCES)
    parser.add_argument("--no-mistakes", dest="mistakes", action="store_false")
    return parser.parse_args()


def _short(case: Case, precision: str | None) -> Case:
    """Return the case with 32 steps, and in another precision if one is given."""
    short = msgspec.structs.replace(case, schedule=SHORT)
    return msgspec.structs.replace(short, precision=precision) if precision else short


def _measured(cases: list[Case]) -> Iterator[Measured]:
    with (
        contextlib.closing(ServerLauncher()) as plain,
        contextlib.closing(ServerLauncher(ThisMachine(environ={**os.environ, **OLDER}))) as older,
    ):
        for case in cases:
            first = _launched(plain, case, 0)
            others = {
                "last bits": _launched(plain, case, 1),
                "older": _launched(older, case, 0),
            }
            stored = losses_to_store([first, others["last bits"]], case.loss_tolerance)
            old = losses_of(first)
            changes = {name: _changes(old, losses_of(other)) for name, other in others.items()}
            yield Measured(case=case, stored=tuple(stored), changes=changes)


def _launched(launcher: ServerLauncher, case: Case, round_: int) -> LaunchResult:
    outcome = launcher.launch(LaunchRequest(case=case, round=round_, import_paths=(str(ROOT),)))
    assert isinstance(outcome, LaunchResult), outcome
    return outcome


def _changes(old: Losses, new: Losses) -> dict[str, float]:
    scale = max(map(abs, old.values()))
    return {step: abs(new[step] - loss) / scale for step, loss in old.items()}


def _largest(changes: Losses, steps: tuple[str, ...]) -> tuple[float, str]:
    return max(((changes[step], step) for step in steps), default=(0.0, "–"))


def _changes_text(measured: Measured) -> str:
    later = tuple(step for step in KEPT if step not in measured.stored)
    figures = []
    for name, changes in measured.changes.items():
        upto, beyond = (_largest(changes, steps) for steps in (measured.stored, later))
        figures.append(f"{name} {upto[0]:.1e}" + (f" | {beyond[0]:.1e}" if later else ""))
    return f"  {measured.name}: {', '.join(figures)}; stored: {', '.join(measured.stored)}"


def _mistakes_text(measured: Measured) -> Iterator[str]:
    """Yield a line for each mistake. Half precision has its tolerance, but the changes of fp32."""
    right = _trained(measured.case)
    yield f"  {measured.case.workload} ({measured.case.suite})"
    for mistake, text in MISTAKES.items():
        changes = _changes(right, _trained(measured.case, mistake))
        stored = {step: changes[step] for step in measured.stored}
        found = ", ".join(_found_text(stored, name) for name in LOSS_TOLERANCES)
        largest, step = _largest(stored, measured.stored)
        yield f"    {text}: {found} | {largest:.1e} in step {step}"


def _found_text(changes: Losses, precision: str) -> str:
    """Return the first step that is beyond the tolerance of a precision, in words."""
    bound = LOSS_TOLERANCES[precision]
    for step, change in changes.items():
        if change > bound:
            return f"{precision} step {step} ({change:.1e})"
    return f"{precision} not found"


def _trained(case: Case, mistake: str | None = None) -> dict[str, float]:
    """Return the losses of one process that trains on the batches of all ranks, with a mistake."""
    case = comparable(case)
    parts = parts_of_ranks(case)
    models = [part.model for part in parts] if mistake == "alone" else [parts[0].model] * len(parts)
    distinct = models if mistake == "alone" else models[:1]
    optimizers = [
        part.optimizer(model.parameters()) for part, model in zip(parts, distinct, strict=False)
    ]
    if mistake == "rate":
        for group in optimizers[0].param_groups:
            group["lr"] *= 1.1
    batches = [batches_of(part) for part in parts]
    divisor = 1 if mistake in ("alone", "summed") else len(parts)
    kept = {}
    for step in range(1, STEPS + 1):
        each = [next(of_rank) for of_rank in batches]
        if mistake == "rank 0":
            each = [each[0]] * len(parts)
        if mistake == "half":
            each = [tuple(tensor[: len(tensor) // 2] for tensor in batch) for batch in each]
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = [parts[0].loss(model, batch) for model, batch in zip(models, each, strict=True)]
        (torch.stack(losses).sum() / divisor).backward()
        for optimizer in optimizers:
            optimizer.step()
        if str(step) in KEPT:
            kept[str(step)] = sum(loss.item() for loss in losses) / len(losses)
    return kept


if __name__ == "__main__":
    main()
