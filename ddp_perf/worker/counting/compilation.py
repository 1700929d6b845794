"""The graphs, graph breaks and recompilations that torch.compile makes of a step, with lines."""

from __future__ import annotations

import functools
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from traceback import FrameSummary
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec
import torch

from ddp_perf.core.work import Compilation, GraphBreak, StepWork
from ddp_perf.torch_compat import (
    CapturedMode,
    compile_id,
    frames_not_captured,
    recompile_reason,
)
from ddp_perf.torch_compat.internals import dynamo_records, dynamo_settings
from ddp_perf.worker.counting.dry import DryRun
from ddp_perf.worker.counting.sites import Origin, SiteNames, SourceLine, Spot, line_of, origin_of
from ddp_perf.worker.steps.trainer import Trainer

# The source lines of what dynamo reports: it gives files and lines, and renames functions.


# Dynamo's own function for the rest of a function after a graph break.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")
_STEP = SourceLine(Trainer.step.__code__, Trainer.step.__code__.co_firstlineno)
_OURS = (Origin.WORKLOADS, Origin.STRATEGIES, Origin.TRAINER)


def lines_of(frames: Iterable[FrameSummary]) -> list[SourceLine]:
    """Return the lines of the frames, in their order; those without source are left out."""
    found = (_line(each.filename, each.lineno or 0, each.name) for each in frames)
    return [line for line in found if line is not None]


def stack_of(frame: FrameType | None) -> list[SourceLine]:
    """Return the lines of ``frame`` and its callers, the outermost first."""
    stack: list[SourceLine] = []
    while frame is not None:
        if _RESUMED.fullmatch(frame.f_code.co_name):
            stack += lines_of(
                [FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)]
            )
        else:
            stack.append(line_of(frame))
        frame = frame.f_back
    return stack[::-1]


def users_line(stack: Sequence[SourceLine]) -> SourceLine:
    """Return the innermost line of the user's, else of this package's workloads, else of all.

    The outermost line comes first in ``stack``. Of an empty one it is that of the whole step.
    """
    by_origin = {origin_of(line.code.co_filename): line for line in stack}  # the innermost of each
    own = (by_origin[each] for each in (Origin.USER, *_OURS) if each in by_origin)
    return next(own, stack[-1] if stack else _STEP)


def _line(file: str, number: int, name: str) -> SourceLine | None:
    name = _RESUMED.sub(r"\1", name)
    fitting = [
        code
        for code in _functions(file)
        if code.co_name == name
        # Python 3.10 has no instruction on a function's first line.
        and (number == code.co_firstlineno or any(line == number for *_, line in code.co_lines()))
    ]
    return SourceLine(fitting[-1], number) if fitting else None


@functools.cache
def _functions(file: str) -> tuple[CodeType, ...]:
    """Return the code of the file and of all its functions; nothing if it has no source."""
    source = "".join(linecache.getlines(file))
    return tuple(_nested(compile(source, file, "exec"))) if source else ()


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


# The graphs, graph breaks and recompilations that torch.compile makes of a step.
#
# Dynamo captures graphs as it does in training, and they run as they were captured: no backend
# compiles them, so the machine needs no compiler. DDP's split of a graph at its buckets is left
# out.


COMPILED_STEPS = 4  # dynamo makes a size dynamic at its second value, so more steps add little

_ATTEMPTS = 100_000  # compilations whose record dynamo keeps; it keeps 64 by default
_BRANCH = "generic_jump"
_EXPLANATION = "Explanation: "
_AGAIN = re.compile(r"\d+/[1-9]\d*")  # the id of a compilation of code that has been compiled
_GUARD_OF = re.compile(r"^\d+/\d+: ")
_COMMENT = re.compile(r"\s{2,}#.*")  # the place of a guard; it is cut short
# An address, the identity of an object, or a computed value.
_VALUE = re.compile(r"0x[0-9a-f]{6,}|\d+\.\d{3,}|\d{9,}")


class CapturedDryRun(CapturedMode, DryRun):  # type: ignore[no-untyped-call]
    """A dry run under which torch.compile captures graphs, and that also runs them dry."""


def add_compilation(
    work: StepWork, step: Callable[[], None], *, import_paths: Sequence[str] = ()
) -> StepWork:
    """Run ``step`` COMPILED_STEPS times while dynamo captures it, and add what it captured.

    Dynamo captures nothing under a dispatch mode, unless the mode is a CapturedMode.
    """
    captured = _capture(step)
    names = SiteNames(import_paths)
    sites = list(work.sites)

    def located(reason: str, line: SourceLine) -> GraphBreak:
        site = names.site(Spot(line, ""))
        if site not in sites:
            sites.append(site)
        return GraphBreak(reason=reason, site=sites.index(site))

    compilation = Compilation(
        graphs=captured.graphs,
        breaks=tuple(located(*one) for one in captured.breaks),
        recompilations=tuple(located(*one) for one in captured.recompilations),
    )
    return msgspec.structs.replace(work, sites=tuple(sites), compilation=compilation)


class _Captured(NamedTuple):
    graphs: int
    breaks: list[tuple[str, SourceLine]]
    recompilations: list[tuple[str, SourceLine]]


def _capture(step: Callable[[], None]) -> _Captured:
    callers: dict[str, list[SourceLine]] = {}

    def run_as_captured(graph: Any, inputs: Any) -> Any:
        callers[compile_id()] = stack_of(sys._getframe(1))
        return graph.forward

    _forget()
    with (
        dynamo_settings().patch(optimize_ddp=False),
        torch.compiler.set_stance(force_backend=run_as_captured),
    ):
        for _ in range(COMPILED_STEPS):
            step()
    records = dynamo_records()
    attempts = records.get_compilation_metrics()
    again = [one for one in attempts if _AGAIN.fullmatch(str(one.compile_id))]
    return _Captured(
        graphs=records.counters["stats"]["unique_graphs"],
        breaks=[
            (_break_reason(reason), users_line(lines_of(stack)))
            for reason, stack in _breaks(attempts)
        ],
        recompilations=[
            (
                _guard(recompile_reason(one)),
                users_line([*callers.get(str(one.compile_id), ()), *lines_of([_definition(one)])]),
            )
            for one in again
        ],
    )


def _forget() -> None:
    """Forget what dynamo has captured and recorded so far."""
    records = dynamo_records()
    torch.compiler.reset()
    records.counters.clear()
    records.graph_break_reasons.clear()
    records.clear_compilation_metrics()
    records.set_compilation_metrics_limit(_ATTEMPTS)


def _breaks(attempts: Sequence[Any]) -> Iterator[tuple[str, Sequence[FrameSummary]]]:
    """Yield the reason and the stack of each break, also where dynamo gave up the whole frame."""
    records = dynamo_records()
    for found in records.graph_break_reasons:
        if found.graph_break:
            yield found.reason, found.user_stack
    yield from frames_not_captured(attempts, records.counters["unimplemented"])


def _definition(one: Any) -> FrameSummary:
    """Return the first line of the function that is compiled."""
    return FrameSummary(
        str(one.co_filename), one.co_firstlineno, str(one.co_name), lookup_line=False
    )


def _break_reason(reason: str) -> str:
    """Return the title and the explanation in one line, without hints and values."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()] or ["unknown"]
    if lines[0].startswith(_BRANCH):
        return "Data-dependent branching: a branch on the value of a tensor"
    if len(lines) > 1 and lines[1].startswith(_EXPLANATION):
        lines[0] += ": " + lines[1].removeprefix(_EXPLANATION)
    return _VALUE.sub("…", lines[0])


def _guard(reason: str | None) -> str:
    """Return the guard that failed, in one line, without its place and values."""
    line = next(iter((reason or "").splitlines()), "") or "unknown"
    return _VALUE.sub("…", _COMMENT.sub("", _GUARD_OF.sub("", line))).strip()
