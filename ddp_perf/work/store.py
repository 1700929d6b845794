"""The files of the work gate, in which nothing is repeated that cases share."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ddp_perf.baselines.store import write_json, writing
from ddp_perf.core.case import Scalar
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.work import (
    CallCount,
    CollectiveCount,
    Compilation,
    KeptMemory,
    MemoryCount,
    OperationCount,
    Phase,
    Site,
    StepWork,
)
from ddp_perf.errors import BaselineError
from ddp_perf.system.files import VersionedJson
from ddp_perf.work.baseline import AcceptedWork, StoredWork, WorkBaseline, canonical, torch_minor

# The works of a row in a file: "0-2,5" for the works 0, 1, 2 and 5.


def with_works(rows: Iterable[tuple[tuple[Any, ...], int]]) -> Iterator[tuple[Any, str]]:
    """Yield each row once, with the numbers of its works. A row may be in a work several times."""
    left = sorted(rows)
    while left:
        again = []
        for row, group in itertools.groupby(left, key=lambda item: item[0]):
            numbers = [number for _, number in group]
            yield row, _ranges(sorted(set(numbers)))
            again += [(row, n) for n in sorted(set(numbers)) for _ in range(numbers.count(n) - 1)]
        left = again


def _ranges(numbers: Sequence[int]) -> str:
    """Return ``0-2,5`` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@functools.cache
def numbers_of(text: str) -> frozenset[int]:
    """Return the numbers of a text such as ``0-2,5``."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


# The layout of a file of ``baselines/work/``, in which nothing is repeated that cases share.
#
# Cases that do the same work share its number. What a site does is a table below it, whose rows
# state the works that have them: "0-2,5". So one more operation is one more line.


WORK_VERSION = 1
_Works = Annotated[str, Meta(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$", description='As in "0-2,5".')]


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row of a table: a list in the file."""


class OperationRow(_Row, frozen=True):
    phase: Phase
    name: str
    dtype: str
    works: _Works
    count: int
    read: int
    written: int
    flops: int


class CountRow(_Row, frozen=True):
    """A number of calls of a function or by a line, or of bytes that are kept."""

    works: _Works
    count: int


class NodeRow(_Row, frozen=True):
    """A number of nodes of the autograd graph."""

    name: str
    works: _Works
    count: int


class CollectiveRow(_Row, frozen=True):
    phase: Phase
    kind: str
    dtype: str
    bytes: int
    group: int | None
    asynchronous: bool
    flops_after: int
    site: int


class MemoryRow(_Row, frozen=True):
    allocations: int
    allocated: int
    saved_tensors: int
    saved: int
    peak: int
    kept: int
    held: int


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An object of the file, without the fields that have their usual value."""


class FileSite(_Part, frozen=True, kw_only=True):
    file: str
    function: str
    text: str
    line: int
    module: str = ""
    operations: tuple[OperationRow, ...] = ()
    calls: tuple[CountRow, ...] = ()
    callers: tuple[CountRow, ...] = ()
    kept: tuple[CountRow, ...] = ()
    held: tuple[CountRow, ...] = ()


class FileWork(_Part, frozen=True, kw_only=True):
    """The work of a step, without the tables of its sites."""

    parameters: int
    gradient_bytes: int
    buckets: tuple[int, ...] = ()
    structure: tuple[Collective, ...] | None = None  # None: as collectives
    collectives: int | None = None  # number of a list of the file's; None: there are none
    memory: MemoryRow
    compilation: Compilation | None = None
    computed: bool = False


class FileWorkCase(_Part, frozen=True, kw_only=True):
    options: dict[str, Scalar] = {}  # those that not all cases share
    work: int


class FileWorkBaseline(_Part, frozen=True, kw_only=True):
    """A file of ``baselines/work/<torch>/``: the cases of one suite, by id."""

    schema_version: int
    suite: str
    torch: str
    options: dict[str, Scalar] = {}  # of all cases
    cases: dict[str, FileWorkCase] = {}
    works: tuple[FileWork, ...] = ()
    collectives: tuple[tuple[CollectiveRow, ...], ...] = ()  # each in the order of issue
    sites: tuple[FileSite, ...] = ()
    autograd: tuple[NodeRow, ...] = ()
    accepted: tuple[AcceptedWork, ...] = ()


def work_to_file(baseline: WorkBaseline) -> FileWorkBaseline:
    """Return the baseline as its file has it."""
    numbers: dict[bytes, int] = {}
    works: list[StepWork] = []
    cases: dict[str, FileWorkCase] = {}
    shared = _shared_options([stored.options for stored in baseline.cases.values()])
    for case_id, stored in sorted(baseline.cases.items()):
        step = canonical(stored.step)
        key = msgspec.json.encode(step, order="sorted")
        if key not in numbers:
            numbers[key] = len(works)
            works.append(step)
        options = {name: value for name, value in stored.options.items() if name not in shared}
        cases[case_id] = FileWorkCase(options=options, work=numbers[key])
    sites = sorted({site for step in works for site in step.sites})
    index = {site: number for number, site in enumerate(sites)}
    issued = [_collectives(step, index) for step in works]
    lists = list(dict.fromkeys(rows for rows in issued if rows))
    return FileWorkBaseline(
        schema_version=WORK_VERSION,
        suite=baseline.suite,
        torch=baseline.torch,
        options=shared,
        cases=cases,
        works=tuple(
            _file_work(step, index, rows, lists) for step, rows in zip(works, issued, strict=True)
        ),
        collectives=tuple(lists),
        sites=tuple(_file_site(site, works) for site in sites),
        autograd=_autograd(works),
        accepted=baseline.accepted,
    )


def work_from_file(stored: FileWorkBaseline) -> WorkBaseline:
    """Return the baseline of a file without `work_problems`."""
    works = [_step(stored, number) for number in range(len(stored.works))]
    cases = {
        case_id: StoredWork(options={**stored.options, **case.options}, step=works[case.work])
        for case_id, case in stored.cases.items()
    }
    return WorkBaseline(
        suite=stored.suite, torch=stored.torch, cases=cases, accepted=stored.accepted
    )


def work_problems(stored: FileWorkBaseline) -> Iterator[str]:
    """Yield each number of a work or of a site that the file does not have, with its field."""
    works, sites = len(stored.works), len(stored.sites)
    for case_id, case in stored.cases.items():
        if not 0 <= case.work < works:
            yield f"cases.{case_id}.work: there is no work {case.work}"
    for number, work in enumerate(stored.works):
        compiled = work.compilation or Compilation(graphs=0)
        if work.collectives is not None and not 0 <= work.collectives < len(stored.collectives):
            yield f"works[{number}].collectives: there is no list {work.collectives}"
        for one in (*compiled.breaks, *compiled.recompilations):
            if not 0 <= one.site < sites:
                yield f"works[{number}]: there is no site {one.site}"
    for number, issued in enumerate(stored.collectives):
        for row in issued:
            if not 0 <= row.site < sites:
                yield f"collectives[{number}]: there is no site {row.site}"
    rows = [("autograd", node.works) for node in stored.autograd]
    for number, place in enumerate(stored.sites):
        rows += [(f"sites[{number}].operations", row.works) for row in place.operations]
        counts = (*place.calls, *place.callers, *place.kept, *place.held)
        rows += [(f"sites[{number}]", row.works) for row in counts]
    for where, text in rows:
        if any(number >= works for number in numbers_of(text)):
            yield f"{where}: there is no work {max(numbers_of(text))}"


def work_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file in ``baselines/work/``."""
    return msgspec.json.schema(FileWorkBaseline)


def _shared_options(each: Sequence[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the options that all cases have alike. 1 and True are not alike."""
    first = each[0] if each else {}
    return {
        name: value
        for name, value in first.items()
        if all(name in one and _is_same(one[name], value) for one in each)
    }


def _is_same(one: Scalar, other: Scalar) -> bool:
    return type(one) is type(other) and one == other


def _collectives(step: StepWork, index: Mapping[Site, int]) -> tuple[CollectiveRow, ...]:
    return tuple(
        CollectiveRow(**{**msgspec.structs.asdict(one), "site": index[step.sites[one.site]]})
        for one in step.collectives
    )


def _file_work(
    step: StepWork,
    index: Mapping[Site, int],
    collectives: tuple[CollectiveRow, ...],
    lists: Sequence[tuple[CollectiveRow, ...]],
) -> FileWork:
    structure = step.structure.collectives
    return FileWork(
        parameters=step.structure.parameters,
        gradient_bytes=step.structure.gradient_bytes,
        buckets=step.structure.buckets,
        structure=None if structure == _of_structure(collectives) else structure,
        collectives=lists.index(collectives) if collectives else None,
        memory=MemoryRow(**msgspec.structs.asdict(step.memory)),
        compilation=_renumbered(step.compilation, [index[site] for site in step.sites]),
        computed=step.computed,
    )


def _of_structure(rows: Iterable[CollectiveRow]) -> tuple[Collective, ...]:
    return tuple(Collective(kind=row.kind, dtype=row.dtype, bytes=row.bytes) for row in rows)


def _renumbered(compilation: Compilation | None, sites: Sequence[int]) -> Compilation | None:
    if compilation is None:
        return None
    breaks, again = (
        tuple(msgspec.structs.replace(one, site=sites[one.site]) for one in of)
        for of in (compilation.breaks, compilation.recompilations)
    )
    return msgspec.structs.replace(compilation, breaks=breaks, recompilations=again)


def _file_site(site: Site, works: Sequence[StepWork]) -> FileSite:
    """Return a site with what each work does there."""
    there = [(n, step.sites.index(site)) for n, step in enumerate(works) if site in step.sites]
    operations = [
        ((one.phase, one.name, one.dtype, one.count, one.read, one.written, one.flops), number)
        for number, at in there
        for one in works[number].operations
        if one.site == at
    ]

    def rows(field: str) -> tuple[CountRow, ...]:
        found = [
            ((_number(one),), number)
            for number, at in there
            for one in getattr(works[number], field)
            if one.site == at
        ]
        return tuple(CountRow(of_works, *row) for row, of_works in with_works(found))

    return FileSite(
        **msgspec.structs.asdict(site),
        operations=tuple(_operation_row(row, text) for row, text in with_works(operations)),
        calls=rows("calls"),
        callers=rows("callers"),
        kept=rows("kept"),
        held=rows("held"),
    )


def _number(one: CallCount | KeptMemory) -> int:
    return one.bytes if isinstance(one, KeptMemory) else one.count


def _operation_row(row: tuple[Any, ...], works: str) -> OperationRow:
    return OperationRow(*row[:3], works, *row[3:])  # type: ignore[call-arg]


def _autograd(works: Sequence[StepWork]) -> tuple[NodeRow, ...]:
    nodes = [(node, number) for number, w in enumerate(works) for node in w.autograd_nodes.items()]
    return tuple(NodeRow(name, text, count) for (name, count), text in with_works(nodes))


def _step(stored: FileWorkBaseline, number: int) -> StepWork:
    """Return a work from the file's tables."""
    work = stored.works[number]
    issued = () if work.collectives is None else stored.collectives[work.collectives]
    structure = _of_structure(issued) if work.structure is None else work.structure
    return canonical(
        StepWork(
            structure=Structure(
                parameters=work.parameters,
                gradient_bytes=work.gradient_bytes,
                buckets=work.buckets,
                collectives=structure,
            ),
            sites=tuple(_site(site) for site in stored.sites),
            operations=tuple(
                _operation(row, at)
                for at, site in enumerate(stored.sites)
                for row in site.operations
                if number in numbers_of(row.works)
            ),
            collectives=tuple(CollectiveCount(**msgspec.structs.asdict(row)) for row in issued),
            memory=MemoryCount(**msgspec.structs.asdict(work.memory)),
            kept=_memory((site.kept for site in stored.sites), number),
            held=_memory((site.held for site in stored.sites), number),
            calls=_calls((site.calls for site in stored.sites), number),
            callers=_calls((site.callers for site in stored.sites), number),
            autograd_nodes={
                row.name: row.count for row in stored.autograd if number in numbers_of(row.works)
            },
            compilation=work.compilation,
            computed=work.computed,
        )
    )


def _memory(rows_of_sites: Iterable[Sequence[CountRow]], number: int) -> tuple[KeptMemory, ...]:
    return tuple(KeptMemory(site=at, bytes=size) for at, size in _counts(rows_of_sites, number))


def _calls(rows_of_sites: Iterable[Sequence[CountRow]], number: int) -> tuple[CallCount, ...]:
    return tuple(CallCount(site=at, count=count) for at, count in _counts(rows_of_sites, number))


def _counts(rows_of_sites: Iterable[Sequence[CountRow]], number: int) -> Iterator[tuple[int, int]]:
    """Yield the index of each site with each of its counts in the work."""
    for at, rows in enumerate(rows_of_sites):
        yield from ((at, row.count) for row in rows if number in numbers_of(row.works))


def _site(site: FileSite) -> Site:
    return Site(
        file=site.file,
        function=site.function,
        text=site.text,
        line=site.line,
        module=site.module,
    )


def _operation(row: OperationRow, site: int) -> OperationCount:
    fields = msgspec.structs.asdict(row)
    del fields["works"]
    return OperationCount(**fields, site=site)


# The files of the work gate: ``baselines/work/<minor version of torch>/<suite>.json``.


_REMEDY = "restore it from version control"
_FILES = VersionedJson(
    schema=FileWorkBaseline,
    version=WORK_VERSION,
    kind="a file of the work gate",
    error=BaselineError,
    remedy=_REMEDY,
    anew="move it away and count again: pytest -m work --save-baseline",
)


class WorkStore:
    """The files of the work gate below one directory of baselines."""

    def __init__(self, baselines_directory: Path) -> None:
        self.directory = baselines_directory

    def path(self, suite: str, torch: str) -> Path:
        return self.directory / "work" / torch_minor(torch) / f"{suite}.json"

    def versions(self, suite: str) -> list[str]:
        """Return the minor versions of torch that have a file of the suite, oldest first."""
        found = (self.directory / "work").glob(f"*/{suite}.json")
        return sorted((path.parent.name for path in found), key=_as_numbers)

    def load(self, suite: str, torch: str) -> WorkBaseline:
        """Return what is stored for a version of torch. Raises BaselineError for a broken file."""
        path, version = self.path(suite, torch), torch_minor(torch)
        stored = _FILES.read_if_present(path)
        if stored is None:
            return WorkBaseline(suite=suite, torch=version)
        for field, expected in (("suite", suite), ("torch", version)):
            if (found := getattr(stored, field)) != expected:
                raise BaselineError(f"{path}: {field} is {found!r}, not {expected!r}; {_REMEDY}")
        for problem in work_problems(stored):
            raise BaselineError(f"{path}: {problem}; {_REMEDY}")
        return work_from_file(stored)

    def load_nearest_first(self, suite: str, torch: str) -> list[WorkBaseline]:
        """Return what is stored for this version of torch, then for the others, nearest first.

        The first one is always of this version, and may be empty. Raises BaselineError.
        """
        own = torch_minor(torch)
        others = [version for version in self.versions(suite) if version != own]
        near = sorted(others, key=lambda version: _distance(version, own))
        return [self.load(suite, version) for version in (own, *near)]

    def update(
        self, suite: str, torch: str, change: Callable[[WorkBaseline], WorkBaseline]
    ) -> WorkBaseline:
        """Read, change and replace a file under the lock of the baselines, and return its content.

        An unchanged one is not written. Raises BaselineError if the file is broken, is locked for
        too long, or cannot be written.
        """
        path = self.path(suite, torch)
        with writing(self.directory, path):
            before = self.load(suite, torch)
            after = change(before)
            if after != before:
                write_json(path, work_to_file(after))
        return after


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))


def _distance(version: str, own: str) -> tuple[tuple[int, ...], bool]:
    """Return the order of a version by its distance; of two as far, the older one comes first."""
    one, other = _as_numbers(version), _as_numbers(own)
    apart = tuple(abs(a - b) for a, b in zip(one, other, strict=False))
    return apart, one > other
