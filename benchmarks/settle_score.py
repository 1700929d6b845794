"""The score of sessions that were to find an edit, and of others that were to find nothing.

A session is right if a case on the edited numbers of ranks is red, and if the edited line, or the
commit of the edit, is named for it. How a name is found: by the file and the number of the line, by
its text, or by the hash of the commit, anywhere in what the second stage states of the case. A line
that is only listed, as one of all that changed, counts, too; what points at it is counted apart.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from benchmarks.bounds import with_interval
from benchmarks.settle_edits import BY_NAME, SlowEdit
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import STRUCTURE
from ddp_perf.core.verdict import Outcome

Kind = Literal["edit", "neutral", "unchanged"]
_RANKS = re.compile(r"-ws(\d+)-")
_TIMES = ("step_time", "tail", "efficiency", "cpu_time", "peak_memory")
_LISTED = "changed line: "  # begins a cause that is in the list of all changed lines
_POINTED = ("line", "cause", "commit")
_SHORT = {
    "step_time": "step",
    "cpu_time": "CPU",
    "peak_memory": "memory",
    Outcome.REGRESSION.value: "RED",
    Outcome.UNDECIDED.value: "?",
}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a session on one metric of one case."""

    case_id: str
    metric: str
    outcome: str
    reason: str
    ratio: float | None = None

    @property
    def ranks(self) -> int:
        match = _RANKS.search(self.case_id)
        return int(match[1]) if match else 1

    @property
    def is_pass(self) -> bool:
        return self.outcome == Outcome.PASS.value

    @property
    def is_red(self) -> bool:
        return self.outcome == Outcome.REGRESSION.value


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One session: of an edit, of a change that does nothing, or of unchanged code."""

    name: str  # of the edit, or of the kind with a number
    kind: Kind
    stored: int  # sessions that it was judged by
    commit: str | None = None  # of the edit; None: the tree had it, or there is none
    lines: tuple[int, ...] = ()  # the numbers of the marked lines
    exit_code: int
    seconds: float
    judged: tuple[Judged, ...] = ()
    settled: dict[str, dict[str, Any]] = {}  # by case id, as the results file has it
    error: str = ""  # what was printed, if there are no results

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.stored

    @property
    def settling_s(self) -> float:
        return sum(one.get("seconds") or 0.0 for one in self.settled.values())

    @property
    def pairs(self) -> int:
        return sum(one.get("pairs") or 0 for one in self.settled.values())

    def red(self, ranks: Sequence[int] = ()) -> list[Judged]:
        """Return the red verdicts on these numbers of ranks; all of them without any."""
        return [one for one in self.judged if one.is_red and (not ranks or one.ranks in ranks)]


class _Suite(msgspec.Struct, frozen=True):
    findings: tuple[Finding, ...]
    settled: dict[str, dict[str, Any]] = {}


class _Results(msgspec.Struct, frozen=True):
    suites: tuple[_Suite, ...]


def with_results(run: Run, results: bytes) -> Run:
    """Return the run with the verdicts of its results file."""
    suites = msgspec.json.decode(results, type=_Results).suites
    judged = tuple(
        Judged(
            case_id=one.case_id,
            metric=one.metric,
            outcome=one.verdict.outcome.value,
            reason=one.reason,
            ratio=one.verdict.ratio,
        )
        for suite in suites
        for one in suite.findings
    )
    settled = {name: one for suite in suites for name, one in suite.settled.items()}
    return msgspec.structs.replace(run, judged=judged, settled=settled)


def named(run: Run, edit: SlowEdit) -> tuple[str, ...]:
    """Return what names the edit in the red cases on its ranks, such as ``line`` and ``commit``.

    ``listed`` is a place in the list of all changed lines, which points at no single one.
    """
    cases = {one.case_id for one in run.red(edit.ranks)}
    stated = [run.settled[case_id] for case_id in sorted(cases & run.settled.keys())]
    found = {
        "line": any(_is_line(site, run, edit) for one in stated for site in one.get("lines") or ()),
        "cause": any(
            _is_text(text, run, edit) and not text.startswith(_LISTED)
            for one in stated
            for text in _causes(one)
        ),
        "commit": any(_is_commit(one.get("culprit"), run.commit) for one in stated),
        "listed": any(
            _is_text(text, run, edit) and text.startswith(_LISTED)
            for one in stated
            for text in _causes(one)
        ),
    }
    return tuple(name for name, is_so in found.items() if is_so)


def _causes(settled: dict[str, Any]) -> list[str]:
    """Return the causes as text, whether they are text or have fields."""
    causes = settled.get("causes") or ()
    return [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in causes]


def _is_line(site: dict[str, Any], run: Run, edit: SlowEdit) -> bool:
    if site.get("file") != edit.file:
        return False
    text = site.get("text", "")
    return site.get("line") in run.lines or any(mark.strip() in text for mark in edit.marks)


def _is_text(text: str, run: Run, edit: SlowEdit) -> bool:
    places = re.findall(rf"{re.escape(edit.file)}:(\d+)", text)
    return any(int(number) in run.lines for number in places) or any(
        mark.strip() in text for mark in edit.marks
    )


def _is_commit(culprit: object, commit: str | None) -> bool:
    return commit is not None and commit[:7] in msgspec.json.encode(culprit).decode()


def is_right(run: Run) -> bool:
    """Return whether an edit is red, with its line, its cause or its commit."""
    return bool(named(run, BY_NAME[run.name]))


def is_pointed_out(run: Run) -> bool:
    """Return whether an edit is red and named by more than the list of all changed lines."""
    return any(name in _POINTED for name in named(run, BY_NAME[run.name]))


def is_false(run: Run) -> bool:
    """Return whether a time or the memory is red where nothing became slower."""
    ranks = BY_NAME[run.name].ranks if run.kind == "edit" else ()
    return any(one.metric in _TIMES and one.ranks not in ranks for one in run.red())


def report(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the table of all sessions, and the summary."""
    yield "| session | stored | truth | verdicts | named | session | settling | pairs |"
    yield "|---|--:|---|---|---|--:|--:|--:|"
    for run in sorted(runs, key=_place):
        yield _row(run)
    yield ""
    yield "truth: today ÷ stored code, of pairs of launches; in brackets: ÷ the stored sessions"
    yield "listed: among all changed lines; pointed out: named otherwise"
    yield from summary(runs)


def summary(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the rates with their 95 % intervals, and the times."""
    for stored in sorted({run.stored for run in runs}):
        some = [run for run in runs if run.stored == stored]
        yield f"{stored} stored:"
        edits = [run for run in some if run.kind == "edit"]
        for title, held_out in (("tuned", False), ("held out", True)):
            half = [run for run in edits if BY_NAME[run.name].held_out == held_out]
            if half:
                yield f"  {title}: {_rates(half)}"
        for kind in ("unchanged", "neutral"):
            others = [run for run in some if run.kind == kind]
            if others:
                yield f"  {kind}: red {_share(sum(map(is_false, others)), len(others))}"
        wrong = [run for run in edits if is_false(run)]
        if edits:
            yield f"  red on ranks that an edit leaves alone: {_share(len(wrong), len(edits))}"
        yield f"  time: {_times([run.seconds for run in some])}"
        if settled := [run.settling_s for run in some if run.pairs]:
            yield f"  of it settling, where pairs were launched: {_times(settled)}"
    broken = [run for run in runs if run.error]
    if broken:
        yield f"without results: {', '.join(f'{run.name} ({run.stored})' for run in broken)}"


def _rates(half: Sequence[Run]) -> str:
    red = sum(bool(run.red(BY_NAME[run.name].ranks)) for run in half)
    right, pointed = (sum(map(of, half)) for of in (is_right, is_pointed_out))
    number = len(half)
    return (
        f"red {_share(red, number)}; with line, cause or commit {_share(right, number)};"
        f" pointed out {_share(pointed, number)}"
    )


def _share(events: int, trials: int) -> str:
    return f"{events} of {trials}, {with_interval(events, trials, 0)} %"


def _times(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.0f} s, longest {max(seconds):.0f} s"


def _place(run: Run) -> tuple[int, int, str, int]:
    """Return the order of the table: the edits as they are listed, and then the others."""
    names = list(BY_NAME)
    place = names.index(run.name) if run.kind == "edit" else len(names)
    number = int(re.sub(r"\D", "", run.name) or 0) if run.kind != "edit" else 0
    return place, run.stored, run.kind, number


def _row(run: Run) -> str:
    if run.error:
        return f"| {run.name} | {run.stored} | | no results, exit code {run.exit_code} | | | | |"
    name, names = run.name, ""
    if run.kind == "edit":
        edit = BY_NAME[run.name]
        name += " (held out)" if edit.held_out else ""
        names = ", ".join(named(run, edit)) or "no"
    cells = [
        *(name, str(run.stored), _truth(run), _verdicts(run), names),
        *(f"{run.seconds:.0f} s", f"{run.settling_s:.0f} s", str(run.pairs)),
    ]
    return f"| {' | '.join(cells)} |"


def _by_ranks(run: Run) -> dict[int, list[Judged]]:
    return {
        ranks: [one for one in run.judged if one.ranks == ranks]
        for ranks in sorted({one.ranks for one in run.judged})
    }


def _truth(run: Run) -> str:
    """Return the change of the step time, and of the tail where it is larger, on each ranks."""
    return "; ".join(f"{ranks}: {_change(run, of)}" for ranks, of in _by_ranks(run).items())


def _change(run: Run, judged: Sequence[Judged]) -> str:
    found = [one for one in judged if one.metric in ("step_time", "tail") and one.ratio is not None]
    if not found:
        return "–"
    most = max(found, key=lambda one: one.ratio)
    text = f"{most.ratio - 1:+.0%}".replace("%", " %")
    text += " tail" if most.metric == "tail" else ""
    is_paired = bool(run.settled.get(most.case_id, {}).get("pairs"))
    return text if is_paired else f"({text})"


def _verdicts(run: Run) -> str:
    """Return the verdicts that are no PASS, on each number of ranks."""
    return "; ".join(
        f"{ranks}: {', '.join(_verdict(one) for one in of if not one.is_pass) or 'PASS'}"
        for ranks, of in _by_ranks(run).items()
    )


def _verdict(one: Judged) -> str:
    metric = "structure" if one.metric == STRUCTURE else _SHORT.get(one.metric, one.metric)
    return f"{metric} {_SHORT.get(one.outcome, one.outcome)}"
