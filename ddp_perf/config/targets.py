"""The field ``targets`` of a suite file: bounds such as ``">= 0.85"``, and the cases they are for.

Of several entries that fit a case and an accelerator, the first one in the file sets the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Case
from ddp_perf.core.target import (
    BUS_BANDWIDTH,
    EFFICIENCY_TARGET,
    EXPOSED,
    MFU,
    TARGET_SPECS,
    Target,
    TargetSpec,
)
from ddp_perf.errors import ConfigError

_BOUND = re.compile(r"\s*(<=|>=)\s*([0-9][0-9,]*(?:\.[0-9]+)?)\s*(.*?)\s*")
_Sizes = Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)]
_Patterns = Annotated[list[str], Meta(min_length=1)]


class TargetEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets of one or several figures, and the cases and accelerators that they are for."""

    efficiency: Annotated[
        str | None, Meta(description='Throughput of N ranks ÷ (N × that of one), as in ">= 0.85".')
    ] = None
    exposed_communication: Annotated[
        str | None,
        Meta(description='Share of the step that waits for communication, as in "<= 0.15".'),
    ] = None
    throughput: Annotated[
        str | None,
        Meta(
            description='In the workload\'s unit per second, of a rank (">= 1150/rank") or of all'
            ' (">= 9200").'
        ),
    ] = None
    step_time: Annotated[
        str | None, Meta(description='The typical (median) step, as in "<= 120 ms".')
    ] = None
    mfu: Annotated[
        str | None, Meta(description='Model FLOPs utilisation, as in ">= 0.35". Tier gpu only.')
    ] = None
    peak_memory: Annotated[
        str | None, Meta(description='Largest memory of a rank, as in "<= 14 GB".')
    ] = None
    busbw: Annotated[
        str | None, Meta(description='Bus bandwidth of a collective, as in ">= 11 GB/s".')
    ] = None
    accelerators: Annotated[
        _Patterns | None,
        Meta(
            description='Patterns of the accelerator\'s key, as in "v100*": the name of its'
            " baseline file without .json. Absent: any accelerator."
        ),
    ] = None
    world_sizes: Annotated[_Sizes | None, Meta(description="Numbers of ranks. Absent: all.")] = None
    batch_sizes: Annotated[
        _Sizes | None, Meta(description="Batch sizes, as the suite lists them. Absent: all.")
    ] = None

    def bounds(self) -> dict[str, str]:
        """Return the bounds by figure, as they are written."""
        written = {name: getattr(self, name) for name in TARGET_SPECS}
        return {name: text for name, text in written.items() if text is not None}

    def selects(self, case: Case) -> bool:
        """Return whether the entry is for this case."""
        return (self.world_sizes is None or case.world_size in self.world_sizes) and (
            self.batch_sizes is None or _batch(case) in self.batch_sizes
        )


TargetEntries = TargetEntry | list[TargetEntry]


def _batch(case: Case) -> int | None:
    """Return the batch size of a case as its suite lists it: per rank, or of all ranks."""
    return case.batch_size if case.global_batch is None else case.global_batch


def with_targets(case: Case, entries: TargetEntries, file: str) -> Case:
    """Return the case with its targets, in the order of the entries."""
    found = tuple(
        _parsed(where, TARGET_SPECS[figure], text, entry, file)
        for where, entry in _listed(entries)
        for figure, text in entry.bounds().items()
        if _has(case, figure, entry)
    )
    return msgspec.structs.replace(case, targets=found)


def check_targets(entries: TargetEntries, cases: Sequence[Case]) -> None:
    """Raise ConfigError for the first bound that cannot be judged, with field and remedy."""
    taken: set[tuple[str, str]] = set()  # case and figure that have a target on any accelerator
    for where, entry in _listed(entries):
        if not entry.bounds():
            raise ConfigError(
                f"{where}: no figure has a bound; give one of {', '.join(TARGET_SPECS)}"
            )
        _check_sizes(where, entry, cases)
        for figure, text in entry.bounds().items():
            _parsed(where, TARGET_SPECS[figure], text, entry, "")
            for refusal in _refusals(figure, cases):
                raise ConfigError(f"{where}.{figure}: {refusal}")
            fitting = {(case.id, figure) for case in cases if _has(case, figure, entry)}
            if not fitting:
                raise ConfigError(
                    f"{where}.{figure}: the entry selects no case that has it (one rank has no"
                    " efficiency and no communication); change its sizes, or remove it"
                )
            if fitting <= taken:
                raise ConfigError(
                    f"{where}.{figure}: earlier entries set it for each of these cases, and the"
                    " first one that fits applies; remove one, or write the more specific one first"
                )
            taken |= fitting if entry.accelerators is None else set()


def _listed(entries: TargetEntries) -> list[tuple[str, TargetEntry]]:
    """Return each entry with its name in the file."""
    if isinstance(entries, TargetEntry):
        return [("targets", entries)]
    return [(f"targets[{place}]", entry) for place, entry in enumerate(entries)]


def _has(case: Case, figure: str, entry: TargetEntry) -> bool:
    has_figure = case.world_size > 1 or not TARGET_SPECS[figure].several_ranks
    return entry.selects(case) and has_figure


def _check_sizes(where: str, entry: TargetEntry, cases: Sequence[Case]) -> None:
    for field, known in (
        ("world_sizes", sorted({case.world_size for case in cases})),
        ("batch_sizes", sorted({size for case in cases if (size := _batch(case)) is not None})),
    ):
        for size in getattr(entry, field) or ():
            if size not in known:
                sizes = ", ".join(map(str, known)) or "none, as they do not train"
                raise ConfigError(
                    f"{where}.{field}: the suite's cases have {sizes}, and not {size}"
                )


def _refusals(figure: str, cases: Sequence[Case]) -> Iterator[str]:
    trains = all(case.trains for case in cases)
    if trains and figure == BUS_BANDWIDTH.name:
        yield "only collectives have a bus bandwidth; remove it"
    if not trains and figure != BUS_BANDWIDTH.name:
        yield f"a collective's target is its {BUS_BANDWIDTH.name}; remove the others"
    if figure == MFU.name and any(case.tier == "cpu" for case in cases):
        yield "no peak of a CPU is known; remove it from tier cpu"
    if figure == MFU.name and any(case.script is not None for case in cases):
        yield "a script chooses its precision, so its peak is unknown; remove it"
    if figure == EFFICIENCY_TARGET.name and all(case.single is None for case in cases):
        yield "it compares with one rank; add 1 to world_sizes"
    if figure == EXPOSED.name and any(c.strategy == "fsdp" and c.tier == "gpu" for c in cases):
        yield "FSDP on a GPU hides it in forward and backward; remove it, or bound the step_time"


def _parsed(where: str, spec: TargetSpec, text: str, entry: TargetEntry, file: str) -> Target:
    """Return the target that ``text`` states. Raises ConfigError with field and remedy."""
    field, match = f"{where}.{spec.name}", _BOUND.fullmatch(text)
    if match is None:
        raise ConfigError(f'{field}: {text!r} is no bound; write it as in "{spec.example}"')
    relation, number, unit = match.groups()
    if (relation == ">=") is not spec.at_least:
        better, other = ("higher", ">=") if spec.at_least else ("lower", "<=")
        raise ConfigError(f"{field}: {relation} is no target, as {better} is better; write {other}")
    if unit not in spec.units:
        units = ", ".join(filter(None, spec.units))
        fault = (
            f"{unit!r} is not one of its units, {units}" if unit else f"it needs a unit, {units}"
        )
        raise ConfigError(f'{field}: {fault}; write it as in "{spec.example}"')
    bound = float(number.replace(",", "")) * spec.units[unit]
    is_share = "%" in spec.units
    possible = bound <= 1 if spec.at_least else bound < 1
    if not (bound > 0 and (possible or not is_share)):
        raise ConfigError(
            f"{field}: {text!r} is {'not a share between 0 and 1' if is_share else 'not above 0'};"
            f' write it as in "{spec.example}"'
        )
    return Target(
        figure=spec.name,
        bound=bound,
        unit=unit,
        file=file,
        accelerators=tuple(entry.accelerators or ()),
    )
