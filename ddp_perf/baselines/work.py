"""The stored work of steps: the structures of a suite, and its counts under a version of torch."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ddp_perf.baselines.writing import write_json, writing
from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.work import (
    NO_MEMORY,
    CallCount,
    CollectiveCount,
    Compilation,
    GraphBreak,
    KeptMemory,
    MemoryCount,
    OperationCount,
    Phase,
    Site,
    StepWork,
)
from ddp_perf.errors import BaselineError
from ddp_perf.system.files import VersionedJson, file_in

# What is stored of the cases of a suite.


_Placed = CallCount | CollectiveCount | GraphBreak | KeptMemory | OperationCount
_Count = TypeVar("_Count", bound=_Placed)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class StoredWork(msgspec.Struct, frozen=True, kw_only=True):
    """The stored work of one case: all counts of a step, or its structure alone."""

    options: dict[str, Scalar]  # the fingerprint
    step: StepWork


class AcceptedWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted change of stored counts, by --save-baseline=accept."""

    date: str
    commit: str | None
    reason: str
    cases: tuple[str, ...]


class WorkBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The stored work of a suite, by case id."""

    suite: str
    torch: str | None = None  # "2.13"; None: structures, which are the same under every version
    cases: dict[str, StoredWork] = {}
    accepted: tuple[AcceptedWork, ...] = ()  # oldest first

    def of(self, case: Case) -> StoredWork | None:
        """Return the stored work of a case, or None.

        A case with another id and the same options does the same work. A case with this id whose
        options changed is compared all the same.
        """
        return of_same_options(case, self.cases) or self.cases.get(case.id)


def of_same_options(case: Case, stored: Mapping[str, StoredWork]) -> StoredWork | None:
    """Return what is stored with the options of the case, by its own id if possible, or None."""
    own_first = [stored[case.id]] if case.id in stored else []
    options = case.work()
    return next((one for one in (*own_first, *stored.values()) if one.options == options), None)


def torch_minor(version: str) -> str:
    """Return the minor version of torch, by which counts are stored: ``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def canonical(work: StepWork) -> StepWork:
    """Return the work as it is stored: only sites that are used, each once, and sorted.

    What is only reported is left out: it is not exact.
    """
    counts: tuple[Sequence[_Placed], ...] = (
        *(work.operations, work.collectives, work.kept, work.held, work.calls, work.callers),
        *_breaks(work.compilation),
    )
    used = {one.site for group in counts for one in group}
    return _placed(work, sorted({work.sites[index] for index in used}))


def _breaks(compilation: Compilation | None) -> tuple[tuple[GraphBreak, ...], ...]:
    return () if compilation is None else (compilation.breaks, compilation.recompilations)


def _placed(work: StepWork, sites: Sequence[Site]) -> StepWork:
    """Return the work with the indexes of these sites, which have all of its own that are used."""
    numbers = {site: number for number, site in enumerate(sites)}
    index = {old: numbers[site] for old, site in enumerate(work.sites) if site in numbers}
    compilation = work.compilation
    if compilation is not None:
        breaks, again = (_moved(one, index) for one in _breaks(compilation))
        compilation = msgspec.structs.replace(compilation, breaks=breaks, recompilations=again)
    return msgspec.structs.replace(
        work,
        sites=tuple(sites),
        operations=tuple(sorted(_moved(work.operations, index))),
        collectives=_moved(work.collectives, index),
        kept=tuple(sorted(_moved(work.kept, index))),
        held=tuple(sorted(_moved(work.held, index))),
        calls=tuple(sorted(_moved(work.calls, index))),
        callers=tuple(sorted(_moved(work.callers, index))),
        autograd_nodes=dict(sorted(work.autograd_nodes.items())),
        compilation=compilation,
        reported={},
    )


def _moved(counts: Iterable[_Count], index: Mapping[int, int]) -> tuple[_Count, ...]:
    """Return the counts with the new indexes of their sites."""
    return tuple(msgspec.structs.replace(one, site=index[one.site]) for one in counts)


# The layout of a file, in which nothing is repeated that cases share.
#
# Cases that do the same work share its number. What a site does is a table below it, whose rows
# state the works that have them: "0-2,5" for the works 0, 1, 2 and 5. So one more operation is one
# more line.


WORK_VERSION = 1
_Works = Annotated[str, Meta(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$", description='As in "0-2,5".')]
_OperationRow = tuple[Phase, str, str, _Works, int, int, int, int]
_CountRow = tuple[_Works, int]  # calls of a function or by a line, or bytes that are kept
_NodeRow = tuple[str, _Works, int]  # nodes of the autograd graph, by name
_CollectiveRow = tuple[Phase, str, str, int, int | None, bool, int, int]  # a CollectiveCount
_MemoryRow = tuple[int, int, int, int, int, int, int]  # a MemoryCount

# The tables of a site. A row is a count of this type whose site is replaced by its works.
_TABLES: dict[str, type[OperationCount | CallCount | KeptMemory]] = {
    "operations": OperationCount,
    "calls": CallCount,
    "callers": CallCount,
    "kept": KeptMemory,
    "held": KeptMemory,
}


class FileSite(Site, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A site, with what the works do there."""

    operations: tuple[_OperationRow, ...] = ()
    calls: tuple[_CountRow, ...] = ()
    callers: tuple[_CountRow, ...] = ()
    kept: tuple[_CountRow, ...] = ()
    held: tuple[_CountRow, ...] = ()


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An object of the file, without the fields that have their usual value."""


class FileWork(_Part, frozen=True, kw_only=True):
    """The work of a step, without the tables of its sites."""

    parameters: int
    gradient_bytes: int
    buckets: tuple[int, ...] = ()
    structure: tuple[Collective, ...] | None = None  # None: as collectives
    collectives: int | None = None  # number of a list of the file's; None: there are none
    memory: _MemoryRow | None = None  # None: of a structure alone
    compilation: Compilation | None = None
    computed: bool = False


class FileWorkCase(_Part, frozen=True, kw_only=True):
    options: dict[str, Scalar] = {}  # those that not all cases share
    work: int


class FileWorkBaseline(_Part, frozen=True, kw_only=True):
    """A file of ``baselines/structure/`` or ``baselines/work/<torch>/``: the cases of one suite."""

    schema_version: int
    suite: str
    torch: str | None = None
    options: dict[str, Scalar] = {}  # of all cases
    cases: dict[str, FileWorkCase] = {}
    works: tuple[FileWork, ...] = ()
    collectives: tuple[tuple[_CollectiveRow, ...], ...] = ()  # each in the order of issue
    sites: tuple[FileSite, ...] = ()
    autograd: tuple[_NodeRow, ...] = ()
    accepted: tuple[AcceptedWork, ...] = ()


def work_to_file(baseline: WorkBaseline) -> FileWorkBaseline:
    """Return the baseline as its file has it."""
    numbers: dict[bytes, int] = {}
    steps: list[StepWork] = []
    cases: dict[str, FileWorkCase] = {}
    shared = _shared_options(stored.options for stored in baseline.cases.values())
    for case_id, stored in sorted(baseline.cases.items()):
        step = canonical(stored.step)
        number = numbers.setdefault(msgspec.json.encode(step, order="sorted"), len(steps))
        if number == len(steps):
            steps.append(step)
        options = {name: value for name, value in stored.options.items() if name not in shared}
        cases[case_id] = FileWorkCase(options=options, work=number)
    sites = sorted({site for step in steps for site in step.sites})
    works = [_placed(step, sites) for step in steps]
    tables: list[dict[str, Any]] = [
        {field: _table(field, at, works) for field in _TABLES} for at in range(len(sites))
    ]
    lists = list(dict.fromkeys(work.collectives for work in works if work.collectives))
    nodes = (
        ((name, None, count), number)
        for number, work in enumerate(works)
        for name, count in work.autograd_nodes.items()
    )
    return FileWorkBaseline(
        schema_version=WORK_VERSION,
        suite=baseline.suite,
        torch=baseline.torch,
        options=shared,
        cases=cases,
        works=tuple(_file_work(one, lists, counted=baseline.torch is not None) for one in works),
        collectives=tuple(tuple(map(_row, issued)) for issued in lists),
        sites=tuple(
            FileSite(**msgspec.structs.asdict(site), **tables[at]) for at, site in enumerate(sites)
        ),
        autograd=_with_works(nodes, 1),
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
    placed = [
        (f"collectives[{number}]", [row[-1] for row in rows])
        for number, rows in enumerate(stored.collectives)
    ]
    for number, work in enumerate(stored.works):
        if work.collectives is not None and not 0 <= work.collectives < len(stored.collectives):
            yield f"works[{number}].collectives: there is no list {work.collectives}"
        if work.memory is None and stored.torch is not None:
            yield f"works[{number}].memory: missing"
        breaks = itertools.chain(*_breaks(work.compilation))
        placed.append((f"works[{number}]", [one.site for one in breaks]))
    for where, places in placed:
        for at in places:
            if not 0 <= at < sites:
                yield f"{where}: there is no site {at}"
    found = [("autograd", works_of) for _, works_of, _ in stored.autograd]
    for number, site in enumerate(stored.sites):
        for field in _TABLES:
            where, place = f"sites[{number}].{field}", _place(field)
            found += [(where, row[place]) for row in getattr(site, field)]
    for where, text in found:
        if max(numbers_of(text)) >= works:
            yield f"{where}: there is no work {max(numbers_of(text))}"


def work_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file in ``baselines/structure/`` or ``baselines/work/``."""
    return msgspec.json.schema(FileWorkBaseline)


def _shared_options(each: Iterable[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the options that all cases have alike. 1 and True are not alike."""
    typed = [{(name, type(value), value) for name, value in one.items()} for one in each]
    return {name: value for name, _, value in set.intersection(*typed)} if typed else {}


def _file_work(
    work: StepWork, lists: Sequence[tuple[CollectiveCount, ...]], *, counted: bool
) -> FileWork:
    structure = work.structure.collectives
    return FileWork(
        parameters=work.structure.parameters,
        gradient_bytes=work.structure.gradient_bytes,
        buckets=work.structure.buckets,
        structure=None if structure == _of_structure(work.collectives) else structure,
        collectives=lists.index(work.collectives) if work.collectives else None,
        memory=_row(work.memory) if counted else None,
        compilation=work.compilation,
        computed=work.computed,
    )


def _of_structure(issued: Iterable[CollectiveCount]) -> tuple[Collective, ...]:
    return tuple(Collective(kind=one.kind, dtype=one.dtype, bytes=one.bytes) for one in issued)


def _table(field: str, site: int, works: Sequence[StepWork]) -> tuple[Any, ...]:
    """Return the rows of a site."""
    rows = (
        (msgspec.structs.astuple(one), number)
        for number, work in enumerate(works)
        for one in getattr(work, field)
        if one.site == site
    )
    return _with_works(rows, _place(field))


def _place(field: str) -> int:
    return _TABLES[field].__struct_fields__.index("site")


def _with_works(rows: Iterable[tuple[tuple[Any, ...], int]], place: int) -> tuple[Any, ...]:
    """Return each row once, with its works in that place. It may be in a work several times."""
    found = []
    times = Counter(rows)
    for time in range(max(times.values(), default=0)):
        left = sorted(row for row in times if times[row] > time)
        for row, group in itertools.groupby(left, key=lambda item: item[0]):
            works = _ranges([number for _, number in group])
            found.append((*row[:place], works, *row[place + 1 :]))
    return tuple(found)


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


def _step(stored: FileWorkBaseline, number: int) -> StepWork:
    """Return a work from the file's tables."""
    work = stored.works[number]
    rows = () if work.collectives is None else stored.collectives[work.collectives]
    issued = tuple(_of_row(CollectiveCount, row) for row in rows)
    sites = stored.sites
    tables: dict[str, Any] = {of: tuple(_counts(of, sites, number)) for of in _TABLES}
    return canonical(
        StepWork(
            structure=Structure(
                parameters=work.parameters,
                gradient_bytes=work.gradient_bytes,
                buckets=work.buckets,
                collectives=_of_structure(issued) if work.structure is None else work.structure,
            ),
            sites=tuple(_site(site) for site in sites),
            collectives=issued,
            memory=_of_row(MemoryCount, work.memory) if work.memory else NO_MEMORY,
            autograd_nodes={
                name: count for name, works, count in stored.autograd if number in numbers_of(works)
            },
            compilation=work.compilation,
            computed=work.computed,
            **tables,
        )
    )


def _counts(field: str, sites: Sequence[FileSite], number: int) -> Iterator[_Placed]:
    """Yield what the sites' tables have of a work."""
    kind, place = _TABLES[field], _place(field)
    for at, site in enumerate(sites):
        for row in getattr(site, field):
            if number in numbers_of(row[place]):
                yield _of_row(kind, (*row[:place], at, *row[place + 1 :]))


def _row(one: msgspec.Struct) -> Any:
    return msgspec.structs.astuple(one)


def _of_row(kind: type[_Struct], row: Sequence[Any]) -> _Struct:
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))


def _site(site: FileSite) -> Site:
    return Site(**{name: getattr(site, name) for name in Site.__struct_fields__})


# The files: ``baselines/structure/<suite>.json``, which is of every version of torch, and
# ``baselines/work/<minor version of torch>/<suite>.json``.


_REMEDY = "restore it from version control"
_FILES = VersionedJson(
    is_merged=True,
    schema=FileWorkBaseline,
    version=WORK_VERSION,
    kind="a file of structures or counts",
    error=BaselineError,
    remedy=_REMEDY,
    anew="move it away and count again: pytest -m work --save-baseline, or -k structure",
)


class WorkStore:
    """The files of structures and of counts below one directory of baselines.

    A ``torch`` of None means the structures.
    """

    def __init__(self, baselines_directory: Path) -> None:
        self.directory = baselines_directory

    def path(self, suite: str, torch: str | None) -> Path:
        below = "structure" if torch is None else f"work/{torch_minor(torch)}"
        return file_in(self.directory / below, f"{suite}.json", BaselineError)

    def versions(self, suite: str) -> list[str]:
        """Return the minor versions of torch that have counts of the suite, oldest first."""
        found = (self.directory / "work").glob(f"*/{suite}.json")
        return sorted((path.parent.name for path in found), key=_as_numbers)

    def structures(self, suite: str) -> dict[str, StoredWork]:
        """Return the structures of a suite by case id. Raises BaselineError."""
        return self.load(suite, None).cases

    def structures_by_case(self) -> dict[str, Structure]:
        """Return the structure of each case of every suite. Raises BaselineError."""
        files = sorted((self.directory / "structure").glob("*.json"))
        suites = [self.structures(file.stem) for file in files]
        return {case_id: one.step.structure for cases in suites for case_id, one in cases.items()}

    def load(self, suite: str, torch: str | None) -> WorkBaseline:
        """Return what is stored for a version of torch. Raises BaselineError for a broken file."""
        path, version = self.path(suite, torch), torch and torch_minor(torch)
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
        """Return the counts that are stored for this version of torch, then others, nearest first.

        The first one is always of this version, and may be empty. Raises BaselineError.
        """
        own = torch_minor(torch)
        others = [version for version in self.versions(suite) if version != own]
        near = sorted(others, key=lambda version: _distance(version, own))
        return [self.load(suite, version) for version in (own, *near)]

    def update(
        self, suite: str, torch: str | None, change: Callable[[WorkBaseline], WorkBaseline]
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
