"""A session of counting: each case is counted once, judged by what is stored, and stored."""

from __future__ import annotations

import datetime
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.work import (
    AcceptedWork,
    StoredWork,
    WorkBaseline,
    WorkStore,
    canonical,
    torch_minor,
)
from ddp_perf.config.loading import suite_file
from ddp_perf.config.yaml_file import line_of_key
from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.interpreter import package_directory
from ddp_perf.launch.launcher import Runtime
from ddp_perf.render.units import change_text
from ddp_perf.render.units import counted as number_of
from ddp_perf.system.host.host import current_commit
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.work.changes import grows, shrinks, work_changes
from ddp_perf.work.collectives import disagreement
from ddp_perf.work.text import change_sentence, in_all, more_flops
from ddp_perf.work.values import CountedCase, WorkChange, WorkVerdict, edited_lines

# Options of a suite that changed since the work was stored, with their lines in its file.


_LISTS = {"world_size": "world_sizes", "batch_size": "batch_sizes", "comm_hook": "comm_hooks"}


def option_changes(
    old: Mapping[str, Scalar],
    new: Mapping[str, Scalar],
    suite_file: Path | None,
    technique: str | None = None,
) -> tuple[str, ...]:
    """Return each option that changed: ``ddp.bucket_cap_mb: 25 → 5 (mlp.yaml:12)``.

    The line is left out if the file does not state the option. That of the case's technique is
    preferred.
    """
    changed = (name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))
    return tuple(
        change_text(f"{name}:", _value(old, name), _value(new, name))
        + _line(name, suite_file, technique)
        for name in changed
    )


def _value(options: Mapping[str, Scalar], name: str) -> Scalar | None:
    """Return a value as YAML writes it."""
    value = options.get(name)
    return str(value).lower() if isinstance(value, bool) else value


def _line(name: str, suite_file: Path | None, technique: str | None) -> str:
    if suite_file is None:
        return ""
    lines = (line_of_key(suite_file, keys) for keys in _keys(name, technique))
    line = next((line for line in lines if line is not None), None)
    return "" if line is None else f" ({suite_file.name}:{line})"


def _keys(name: str, technique: str | None) -> Iterator[tuple[str, ...]]:
    """Yield where the file may state an option, the most specific place first."""
    first, _, rest = name.partition(".")
    paths: list[tuple[str, ...]] = [(first, rest)] if rest else [(first,)]
    if first in _LISTS:
        paths.append((_LISTS[first],))
    for path in paths:
        if technique is not None:
            yield "techniques", technique, *path
        yield path
    if rest:
        if technique is not None:
            yield "techniques", technique, first
        yield (first,)


# The verdict on the work of a case: it is exact, and the same on every machine.


# Of the operations of a step. A call takes about a tenth of the time in which the host dispatches
# an operation, so these are a thousandth of the host's work: a function was extracted, or inlined.
_SMALL_SHARE = 0.01
_FEW_CALLS = 3  # of a step of few operations


def judge_work(
    case: Case,
    counted: StepWork,
    baselines: Sequence[WorkBaseline],
    *,
    torch: str,
    suite_file: Path | None = None,
    package_differs: bool = False,
) -> WorkVerdict:
    """Judge the counted step of a case by what is stored for it.

    More of anything is a REGRESSION, but for a few calls of Python functions. So is other work of
    the model: fewer FLOPs, parameters or bytes to send. Only less is an IMPROVEMENT. Work that only
    moved is UNDECIDED. ``baselines`` are those of this version of torch and of the others,
    nearest first; another version counts other operations, so its counts are shown and decide
    nothing. No reason states a remedy. ``package_differs``: an edited line may be one of this
    package, whose code may be another one than that of the stored counts.
    """
    found = comparison_of(case, baselines, torch)
    if found is None:
        return WorkVerdict(outcome=Outcome.NO_BASELINE, reason="no counts of this case are stored")
    version, stored = found
    changes = work_changes(stored.step, counted)
    alike = stored.step.computed == counted.computed
    if not alike:
        changes = tuple(change for change in changes if not _is_of_size(change))
    options = option_changes(stored.options, case.work(), suite_file, case.technique)
    if version == torch_minor(torch):
        outcome, reason = _outcome(stored.step, counted, changes)
        if options and outcome is Outcome.PASS:
            reason += ", but it is stored with other options"
        if changes and outcome is not Outcome.PASS:
            reason += f"; in all {in_all(stored.step, counted)}"
        if not alike:
            reason += "; bytes are not compared, since only one of the counts computed values"
    else:
        outcome = Outcome.INCOMPARABLE
        difference = number_of(len(changes), "difference") if changes else "no difference"
        reason = (
            f"no counts of torch {torch_minor(torch)} are stored, and torch {version} is not"
            f" compared with it: {difference}"
        )
    return WorkVerdict(
        outcome=outcome,
        reason=reason,
        changes=changes,
        options=options,
        # Other options run other lines of this package, which are no edit.
        lines=edited_lines(stored.step, counted, package_differs=package_differs and not options)
        if changes
        else (),
    )


def _is_of_size(change: WorkChange) -> bool:
    """Return whether only sizes differ: kernels that compute may allocate what others do not."""
    same = change.before == change.after and change.moved_from is None
    return change.kind == "memory" or (same and not change.flops)


def comparison_of(
    case: Case, baselines: Sequence[WorkBaseline], torch: str
) -> tuple[str | None, StoredWork] | None:
    """Return what the work of a case is compared with, and its version of torch, or None.

    That of this version comes first, and then that of the first other one that has the case.
    """
    version = torch_minor(torch)
    own_first = sorted(baselines, key=lambda baseline: baseline.torch != version)
    for baseline in own_first:
        stored = baseline.of(case)
        if stored is not None:
            return baseline.torch, stored
    return None


def _outcome(old: StepWork, new: StepWork, changes: Sequence[WorkChange]) -> tuple[Outcome, str]:
    """Return the outcome, and a sentence with the first change that decides it."""
    operations = sum(one.count for one in new.operations)
    calls = sum(one.after - one.before for one in changes if one.kind == "calls")
    if abs(calls) <= max(_FEW_CALLS, _SMALL_SHARE * operations):
        changes = [one for one in changes if one.kind != "calls"]
    if not changes:
        few = f", with {abs(calls)} {'more' if calls > 0 else 'fewer'} calls of Python functions"
        as_stored = f"{number_of(operations, 'operation')} a step, as stored"
        return Outcome.PASS, f"{as_stored}{few if calls else ''}"
    more = [change for change in changes if grows(change)]
    less = [change for change in changes if shrinks(change)]
    if more:
        text = f"the step does more work than stored{more_flops(old, new)}"
        return Outcome.REGRESSION, _sentence(text, more)
    if other := _other_work(old, new):
        return Outcome.REGRESSION, _sentence(
            f"the step does other work than stored: {other}", less or changes
        )
    if less:
        return Outcome.IMPROVEMENT, _sentence("the step does less work than stored", less)
    where = "elsewhere in it" if all(one.moved_from for one in changes) else "not the same"
    text = f"the step does as much work as stored, but {where}"
    return Outcome.UNDECIDED, _sentence(text, changes)


def _sentence(text: str, changes: Sequence[WorkChange]) -> str:
    return f"{text}: {change_sentence(changes[0])}"


def _other_work(old: StepWork, new: StepWork) -> str | None:
    """Return what of the model's own work is less, or None: a step that trains must do it."""
    if _lacks(_flops(old), _flops(new)):
        same = sum(_flops(old).values()) == sum(_flops(new).values())
        return "FLOPs in another precision" if same else "fewer FLOPs"
    if new.structure.parameters < old.structure.parameters:
        return "fewer parameters"
    if new.structure.gradient_bytes < old.structure.gradient_bytes:
        return "smaller gradients"
    return "fewer bytes to send" if _lacks(_sent(old), _sent(new)) else None


def _lacks(before: Counter[str], after: Counter[str]) -> bool:
    return any(after[name] < number for name, number in before.items())


def _flops(work: StepWork) -> Counter[str]:
    """Return the FLOPs of each dtype: the same in another precision is other work."""
    flops: Counter[str] = Counter()
    for one in work.operations:
        flops[one.dtype] += one.flops
    return flops


def _sent(work: StepWork) -> Counter[str]:
    sent: Counter[str] = Counter()
    for one in work.collectives:
        sent[f"{one.kind} {one.dtype}"] += one.bytes
    return sent


# Count the step of a case: on its first rank, and on its last one, which has to agree.


class StepCounter(Protocol):
    """A launcher that can count a step: it runs one rank of a case alone."""

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions that ranks of ``case`` run on. Raises LaunchError."""
        ...

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count one step of one rank. Raises LaunchError if the rank cannot be started."""
        ...

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        ...


def count_case(
    case: Case, counter: StepCounter, import_paths: Sequence[str] = ()
) -> StepWork | LaunchFailure:
    """Return the counts of rank 0, or why the step cannot be counted.

    A step that raises may need its values, which are zero: it is counted again with values
    computed. Those of a script always are. The last rank has to issue the collectives of rank 0,
    or training would hang. Raises LaunchError if a rank cannot be started.
    """
    first = CountRequest(
        case=case, compute=case.script is not None, import_paths=tuple(import_paths)
    )
    work = _count(first, counter)
    if isinstance(work, LaunchFailure) or case.world_size == 1:
        return work
    rank = case.world_size - 1
    last = _count(
        msgspec.structs.replace(first, rank=rank, compute=work.computed),
        counter,
    )
    if isinstance(last, LaunchFailure):
        return last
    difference = disagreement(work, last)
    if difference is None:
        return work
    return LaunchFailure(
        case_id=case.id,
        round=0,
        kind="disagreement",
        rank=None,
        detail=f"rank 0 and rank {rank} would wait for each other: {difference}",
    )


def _count(request: CountRequest, counter: StepCounter) -> StepWork | LaunchFailure:
    """Return the counts, with values computed if the step raises without them."""
    dry = counter.count(request)
    if request.compute or not isinstance(dry, LaunchFailure) or dry.kind != "exception":
        return dry
    computed = counter.count(msgspec.structs.replace(request, compute=True))
    if isinstance(computed, LaunchFailure) and computed.kind != "exception":
        why = f"{computed.detail}; values were computed, for without them: {dry.detail}"
        return msgspec.structs.replace(computed, detail=why)
    return computed


# A session of counting: each case is counted once, judged by what is stored, and stored.


class WorkSession:
    """The counted cases of one process. It measures nothing, and needs no quiet machine.

    Several processes may count beside each other, and store into the same files.
    """

    def __init__(
        self,
        counter: StepCounter,
        store: WorkStore,
        *,
        root: Path,
        suites: Sequence[Path] = (),
        import_paths: Sequence[str] = (),
        saving: Saving | None = None,
    ) -> None:
        self._counter = counter
        self._store = store
        self._root = root
        self._suites = tuple(suites)
        self._import_paths = tuple(import_paths)
        self._saving = saving
        self._counted: dict[tuple[str, str], CountedCase | LaunchFailure] = {}

    def check(self, cases: Iterable[Case]) -> None:
        """Check that the cases can be counted here, and that their stored files can be read.

        It starts nothing. Raises LaunchError and BaselineError.
        """
        suites = {case.suite for case in cases}
        if suites:
            check_can_launch()
        for suite in suites:
            for version in self._store.versions(suite):
                self._store.load(suite, version)

    def count(self, case: Case) -> CountedCase | LaunchFailure:
        """Return the case with its counts and the verdict on them, or why there are none.

        The verdict is that by what was stored before; then the counts are stored, if they are to
        be. Raises LaunchError if a rank cannot be started, and BaselineError for a file that cannot
        be read or written.
        """
        if case.key not in self._counted:
            self._counted[case.key] = self._judged(case)
        return self._counted[case.key]

    def other_work(self, case: Case) -> str | None:
        """Return what the step does beyond the stored counts, or None; nothing is stored.

        None as well if this torch has no counts of the case, or if it cannot be counted now. Raises
        LaunchError and BaselineError as `count` does.
        """
        if not self._store.versions(case.suite):
            return None
        torch = self._counter.runtime(case).torch
        if self._store.load(case.suite, torch).of(case) is None:
            return None
        counted = self._compared(case, torch)
        if isinstance(counted, LaunchFailure) or counted.verdict is None:
            return None
        is_other = counted.verdict.outcome is Outcome.REGRESSION
        path = self._store.path(case.suite, torch)
        return f"{path} has other counts: {counted.verdict.reason}" if is_other else None

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        self._counter.close()

    def _judged(self, case: Case) -> CountedCase | LaunchFailure:
        torch = self._counter.runtime(case).torch
        counted = self._compared(case, torch)
        if isinstance(counted, LaunchFailure):
            return counted
        return msgspec.structs.replace(counted, saved=self._save(counted, torch))

    def _compared(self, case: Case, torch: str) -> CountedCase | LaunchFailure:
        stored = self._store.load_nearest_first(case.suite, torch)
        work = count_case(case, self._counter, self._import_paths)
        if isinstance(work, LaunchFailure):
            return work
        file = suite_file(case.suite, self._suites)
        verdict = judge_work(
            case,
            work,
            stored,
            torch=torch,
            suite_file=file,
            package_differs=package_directory() == self._root.absolute(),
        )
        found = comparison_of(case, stored, torch)
        before = None if found is None else found[1].step
        return CountedCase(case=case, work=work, stored=before, verdict=verdict)

    def _save(self, counted: CountedCase, torch: str) -> str | None:
        """Store the counts if they are to be, and return the file that has them from now on."""
        if self._saving is None:
            return None
        suite = counted.case.suite
        merge = functools.partial(
            merge_work,
            counted=counted,
            saving=self._saving,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            commit=current_commit(self._root),
        )
        before = self._store.load(suite, torch)
        if merge(before) == before:
            return None
        self._store.update(suite, torch, merge)
        return str(self._store.path(suite, torch))


def merge_work(
    baseline: WorkBaseline,
    counted: CountedCase,
    saving: Saving,
    *,
    date: str,
    commit: str | None = None,
) -> WorkBaseline:
    """Return the baseline with the counted case, if the mode of ``saving`` stores it.

    ``missing`` stores what is not stored yet. ``append`` does the same: counts have no sessions.
    ``accept`` also replaces what differs, and logs a case whose counts or options changed: all that
    are accepted for one reason at one commit in one entry.
    """
    case, old, log = counted.case, baseline.of(counted.case), baseline.accepted
    if counted.work is None or (old is not None and saving.mode != "accept"):
        return baseline
    new = StoredWork(options=case.work(), step=canonical(counted.work))
    if old == new:
        return baseline
    if old is not None and (old.options != new.options or work_changes(old.step, new.step)):
        ids = {case.id}
        if log and (log[-1].commit, log[-1].reason) == (commit, saving.reason):
            ids |= set(log[-1].cases)
            log = log[:-1]
        entry = AcceptedWork(
            date=date, commit=commit, reason=saving.reason or "", cases=tuple(sorted(ids))
        )
        log = (*log, entry)
    cases = {**baseline.cases, case.id: new}
    return msgspec.structs.replace(baseline, cases=cases, accepted=log)
