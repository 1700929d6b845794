"""Checks of figures by arithmetic: published tables, stored sessions, link peaks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

import msgspec

from ddp_perf.core.launch import Collective
from ddp_perf.core.published import PublishedRow, PublishedTable

# The audit of a published table: do its figures agree with each other?
#
# It is plain arithmetic on what is printed. Every check computes a figure from others in two ways.
# Both have an error of half their last printed digit. They contradict each other if they differ by
# more than those errors, and by more than one per cent.


ROUNDING = 0.01  # authors round by this much without a note
COMMUNICATION = "share of communication"


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """Two different figures for the same thing."""

    what: str  # "throughput"
    stated: float
    computed: float
    how: str  # "batch × GPUs ÷ step time"

    @property
    def label(self) -> str:
        """The row or case that the figures belong to."""
        raise NotImplementedError

    def __str__(self) -> str:
        return (
            f"{self.label}: {self.what} {_shown(self.stated)} is stated,"
            f" {_shown(self.computed)} follows from {self.how}"
        )


class RowContradiction(Contradiction, frozen=True, kw_only=True):
    """Two different figures for the same thing, in one row of a table."""

    row: PublishedRow

    @property
    def label(self) -> str:
        return self.row.label


class TableAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The contradictions in one table of a file."""

    file: str
    table: PublishedTable
    contradictions: tuple[RowContradiction, ...]


class _Value(msgspec.Struct, frozen=True):
    """A figure, and the relative error that its printed digits allow."""

    number: float
    slack: float = 0.0

    def __mul__(self, other: _Value) -> _Value:
        return _Value(self.number * other.number, self.slack + other.slack)

    def __truediv__(self, other: _Value) -> _Value:
        return _Value(self.number / other.number, self.slack + other.slack)


def audit_table(table: PublishedTable) -> list[RowContradiction]:
    """Return every pair of figures that cannot both be right."""
    found = []
    for row in table.rows:
        single = _single(row, table)
        for checks in (
            _of_row(row),
            _against_single(row, single),
            _of_communication(row, single, table),
            _of_cost(row, table),
        ):
            found += [check for check in checks if check is not None]
        found += _of_kind(row, single, table)
    return [*found, *_rising(table)]


def _of_row(row: PublishedRow) -> Iterator[RowContradiction | None]:
    ranks = _Value(row.world_size)
    if row.step_ms and row.throughput and (row.batch_size or row.measured_samples):
        step_s = _printed(row.step_ms) / _Value(1000)
        if row.batch_size:
            computed = _Value(row.batch_size) * ranks / step_s
            yield _check(row, "throughput", row.throughput, computed, "batch × GPUs ÷ step time")
        if row.measured_samples and row.measured_steps:
            computed = _Value(row.measured_samples) / _Value(row.measured_steps) / step_s
            yield _check(row, "throughput", row.throughput, computed, "samples ÷ steps ÷ step time")
    if row.speedup and row.efficiency:
        computed = _printed(row.speedup) / ranks
        yield _check(row, "efficiency", row.efficiency, computed, "speedup ÷ GPUs")
    if row.epoch_samples and row.epoch_s and row.throughput:
        computed = _Value(row.epoch_samples) / _printed(row.epoch_s)
        yield _check(row, "throughput", row.throughput, computed, "samples ÷ time of an epoch")
    yield from _of_epochs(row)


def _of_epochs(row: PublishedRow) -> Iterator[RowContradiction | None]:
    """Check the total time and that of an epoch, against each epoch's if those are stated."""
    if row.epochs_s:
        total = _sum(row.epochs_s)
        if row.total_s:
            yield _check(row, "total time", row.total_s, total, "the sum of its epochs")
        if row.epoch_s:
            mean = total / _Value(len(row.epochs_s))
            yield _check(row, "time of an epoch", row.epoch_s, mean, "the mean of its epochs")
    elif row.epochs and row.epoch_s and row.total_s:
        computed = _Value(row.epochs) * _printed(row.epoch_s)
        yield _check(row, "total time", row.total_s, computed, "epochs × time of an epoch")


def _against_single(
    row: PublishedRow, single: PublishedRow | None
) -> Iterator[RowContradiction | None]:
    """Check speed-up and efficiency against the row of one GPU."""
    if single is None:
        return
    ways = []
    if row.throughput and single.throughput:
        ways.append(("throughput", _printed(row.throughput) / _printed(single.throughput)))
    for name in ("epoch_s", "total_s", "hours"):
        now, single_time = getattr(row, name), getattr(single, name)
        if now and single_time:
            ways.append((_TIMES[name], _printed(single_time) / _printed(now)))
    for how, speedup in ways:
        if row.total_speedup and how == _TIMES["total_s"]:
            yield _check(row, "speedup", row.total_speedup, speedup, f"{how} against 1 GPU")
        elif row.speedup:
            yield _check(row, "speedup", row.speedup, speedup, f"{how} against 1 GPU")
        if row.efficiency:
            computed = speedup / _Value(row.world_size)
            yield _check(row, "efficiency", row.efficiency, computed, f"{how} against 1 GPU")
    if row.cost_efficiency and row.cost and single.cost:
        computed = _printed(single.cost) / _printed(row.cost)
        yield _check(row, "cost efficiency", row.cost_efficiency, computed, "cost against 1 GPU")
    for (how, speedup), (other_how, other) in itertools.pairwise(ways):
        yield _check(row, f"speedup by {how}", speedup.number, other, other_how, speedup.slack)


_TIMES = {"epoch_s": "time of an epoch", "total_s": "total time", "hours": "hours"}


def _of_communication(
    row: PublishedRow, single: PublishedRow | None, table: PublishedTable
) -> Iterator[RowContradiction | None]:
    """Check the share of communication: the time a step takes longer than one GPU's, T(N) − T(1).

    The rest of the step is compared, T(1) ÷ T(N): a difference of two nearly equal times has hardly
    a digit left. Of strong scaling the compute of N GPUs is not stated, so nothing follows.
    """
    if single is None or row.communication is None or not (row.step_ms and single.step_ms):
        return
    if table.scaling == "strong":
        return
    rest = _printed(single.step_ms) / _printed(row.step_ms)
    digits = _printed(row.communication).slack * row.communication if row.communication else 0.0
    how = "step time against 1 GPU"
    found = _check(row, COMMUNICATION, 1 - row.communication, rest, how, digits)
    if found is not None:
        yield msgspec.structs.replace(found, stated=row.communication, computed=1 - rest.number)


def _of_cost(row: PublishedRow, table: PublishedTable) -> Iterator[RowContradiction | None]:
    if row.cost and row.hours and table.price_per_gpu_hour:
        computed = _Value(row.world_size * table.price_per_gpu_hour) * _printed(row.hours)
        yield _check(row, "cost", row.cost, computed, "GPUs × hours × price")


def _of_kind(
    row: PublishedRow, single: PublishedRow | None, table: PublishedTable
) -> Iterator[RowContradiction]:
    """Check that strong scaling keeps the global batch, and that no efficiency is over 100 %."""
    kept = single.batch_size if single is not None else None
    if table.scaling == "strong" and kept and row.batch_size:
        stated = row.batch_size * row.world_size
        if stated != kept:
            how = "strong scaling, which keeps that of 1 GPU (this is weak scaling)"
            yield RowContradiction(
                row=row, what="global batch", stated=stated, computed=kept, how=how
            )
    if row.efficiency and row.efficiency > 1 + ROUNDING:
        how = "the best there can be"
        yield RowContradiction(
            row=row, what="efficiency", stated=row.efficiency, computed=1.0, how=how
        )


def _rising(table: PublishedTable) -> Iterator[RowContradiction]:
    """Check that more GPUs of one strategy and batch do not scale better than fewer."""
    series: dict[tuple[str | None, str | None, int | None], PublishedRow] = {}
    for row in sorted(table.rows, key=lambda row: row.world_size):
        key = (row.name, row.strategy, table.kept_batch(row))
        before = series.get(key)
        if row.efficiency is None:
            continue
        if before is not None and before.efficiency is not None:
            slack = ROUNDING + _printed(row.efficiency).slack + _printed(before.efficiency).slack
            if row.efficiency > before.efficiency * (1 + slack):
                yield RowContradiction(
                    row=row,
                    what="efficiency",
                    stated=row.efficiency,
                    computed=before.efficiency,
                    how=f"{before.world_size} GPUs, which scale no worse",
                )
        series[key] = row


def _single(row: PublishedRow, table: PublishedTable) -> PublishedRow | None:
    """Return the row of one GPU at the same batch, or None.

    If there is only one row of one GPU, it counts for every batch.
    """
    singles = [other for other in table.rows if other.world_size == 1]
    same = [other for other in singles if other.batch_size == table.kept_batch(row)]
    found = same or (singles if len(singles) == 1 else [])
    return found[0] if found and row.world_size > 1 else None


def _check(
    row: PublishedRow,
    what: str,
    stated: float,
    computed: _Value,
    how: str,
    slack: float | None = None,
) -> RowContradiction | None:
    allowed = _printed(stated).slack if slack is None else slack
    apart = abs(math.log(stated / computed.number))
    if apart <= max(ROUNDING, allowed + computed.slack):
        return None
    return RowContradiction(row=row, what=what, stated=stated, computed=computed.number, how=how)


def _sum(numbers: Sequence[float]) -> _Value:
    """Sum numbers; each may be off by half a unit of its last digit."""
    total = sum(numbers)
    return _Value(total, sum(_printed(number).slack * number for number in numbers) / total)


def _printed(number: float) -> _Value:
    """Return the number with half a unit of its last digit as its error.

    Zeros at the end of an integer are read as digits: `ROUNDING` covers what they hide.
    """
    exponent = Decimal(repr(number)).as_tuple().exponent
    assert isinstance(exponent, int)  # finite
    if float(number).is_integer() and exponent == -1:  # repr writes 30 as 30.0
        exponent = 0
    return _Value(number, 0.5 * 10.0**exponent / number)


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


# The peak of a GPU's link, and the bytes that a step's collectives need at least.


# GB/s in one direction of a GPU, all its NVLinks together: NVIDIA's data sheets of V100, A100, H100
# and H200. For PCIe: 16 lanes of the card's generation (PCI-SIG: 8, 16 and 32 GT/s, 128b/130b).
_NVLINK = {
    "v100-sxm2-16gb": 150.0,
    "v100-sxm2-32gb": 150.0,
    "a100-sxm4-40gb": 300.0,
    "a100-sxm4-80gb": 300.0,
    "h100-80gb-hbm3": 450.0,
    "h200": 450.0,
}
_PCIE = {
    "v100-pcie-16gb": 15.75,
    "v100-pcie-32gb": 15.75,
    "t4": 15.75,
    "a10": 31.5,
    "l4": 31.5,
    "l40s": 31.5,
    "a100-pcie-40gb": 31.5,
    "a100-80gb-pcie": 31.5,
    "h100-pcie": 63.0,
}
# Bytes that a link must carry at least, as a share of the collective's bytes, for two ranks or
# more: each rank receives what it did not have, even if a switch reduces or gathers.
_LEAST_SHARES = {"all_reduce": 1.0, "broadcast": 1.0, "reduce_scatter": 0.5, "all_gather": 0.5}


def link_peak(accelerator: str, link: str | None) -> float | None:
    """Return the peak of a GPU's link in bytes/s in one direction, or None if it is unknown.

    ``link`` is the name that ``nvidia-smi topo -m`` prints.
    """
    if link is None:
        return None
    peaks = _NVLINK if link.startswith("NV") else _PCIE
    gigabytes = peaks.get(accelerator)
    return None if gigabytes is None else gigabytes * 1e9


def least_bytes(collectives: Iterable[Collective]) -> float:
    """Return the least bytes that one rank's link carries in one direction, by any algorithm."""
    return sum(_LEAST_SHARES.get(one.kind, 0.0) * one.bytes for one in collectives)
