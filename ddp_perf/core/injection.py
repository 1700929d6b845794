"""Injected slow-downs (``--ddp-inject KIND:ARG``), which show that the gate works.

An injection is passed beside the case and is never part of it: the case keeps its id and its
fingerprint, and is judged against its ordinary baseline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.strategy import LEAST_COMPILED_BUCKET_MB
from ddp_perf.errors import ConfigError, did_you_mean

Kind = Literal[
    "compute",
    "straggler",
    "extra-allreduce",
    "small-buckets",
    "no-overlap",
    "sync-each-step",
    "data",
    "memory",
    "cpu-hog",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_NEEDS_DDP: tuple[Kind, ...] = ("extra-allreduce", "small-buckets", "no-overlap")
_BESIDE_STEPS: tuple[Kind, ...] = ("memory", "cpu-hog")  # all other kinds change a training step
# Actions of the host within a step; the replay of a CUDA graph skips them.
_OF_THE_HOST: tuple[Kind, ...] = ("straggler", "no-overlap", "sync-each-step", "data")
# They change how DDP is built, which a script does itself.
_OF_DDP: tuple[Kind, ...] = ("small-buckets", "no-overlap")
_FLOAT32 = 4

_NUMBER = r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
_WHOLE = "(?P<number>[0-9]{1,9})"
_TIME = _NUMBER + "(?P<unit>us|ms|s)"
_SIZE = _WHOLE + "(?P<unit>B|KB|MB|GB)"
_FACTORS = {"": 1, "%": 0.01, "us": 1e-6, "ms": 1e-3, "s": 1}
_FACTORS |= {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}  # as DDP's bucket_cap_mb counts


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """The syntax of a kind's argument: as shown to the user, and as a regular expression."""

    shown: str
    pattern: str


_FORMS: dict[Kind, _Form] = {
    "compute": _Form(shown=":SHARE%, as in compute:5%", pattern=f":{_NUMBER}(?P<unit>%)"),
    "straggler": _Form(
        shown=":RANK:TIME, as in straggler:1:5ms", pattern=f":(?P<rank>[0-9]{{1,6}}):{_TIME}"
    ),
    "extra-allreduce": _Form(
        shown=":BYTES, as in extra-allreduce:4096 or extra-allreduce:1MB",
        pattern=f":{_SIZE}?",
    ),
    "small-buckets": _Form(shown=":SIZE, as in small-buckets:1MB", pattern=f":{_SIZE}"),
    "no-overlap": _Form(shown=" alone, without an argument", pattern=""),
    "sync-each-step": _Form(shown=" alone, without an argument", pattern=""),
    "data": _Form(shown=":TIME, as in data:5ms", pattern=f":{_TIME}"),
    "memory": _Form(shown=":SIZE, as in memory:64MB", pattern=f":{_SIZE}"),
    "cpu-hog": _Form(shown=":PROCESSES, as in cpu-hog:1", pattern=":(?P<number>[0-9]{1,3})"),
}


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """One injected effect that makes ranks slower, or adds work or memory to them."""

    text: str  # as the user wrote it; results are marked with it
    kind: Kind
    amount: float = 0  # share of a step (0.05: 5 %), seconds, bytes or processes, by kind
    rank: int | None = None  # the only affected rank; None: all

    def applies_to(self, case: Case) -> bool:
        """Return whether the case has the property that this injection changes."""
        if not case.trains and self.kind not in _BESIDE_STEPS:
            return False
        if case.training.cuda_graphs and self.kind in _OF_THE_HOST:
            return False
        if self.rank is not None:
            return self.rank < case.run_ranks
        if case.script is not None:
            return self.kind not in (_NEEDS_DDP if case.world_size == 1 else _OF_DDP)
        if self.kind == "no-overlap" and case.training.comm_hook is not None:
            return False  # the injection is a communication hook, and DDP accepts one
        if self.kind == "small-buckets" and case.training.compile:
            return case.training.ddp is not None and self.amount >= LEAST_COMPILED_BUCKET_MB * 2**20
        return case.training.ddp is not None or self.kind not in _NEEDS_DDP


def parse_injection(text: str) -> Injection:
    """Parse ``KIND:ARG``.

    Raises ConfigError, with the expected form in one line, if the text has another form.
    """
    name = text.partition(":")[0]
    kind = next((kind for kind in KINDS if kind == name), None)
    if kind is None:
        hint = did_you_mean(name.lower(), KINDS)
        raise ConfigError(f"unknown kind {name!r} (one of {', '.join(KINDS)}){hint}")
    form = _FORMS[kind]
    match = re.fullmatch(form.pattern, text[len(kind) :])
    if match is None:
        raise ConfigError(f"{text!r} is not of the form {kind}{form.shown}")
    given = match.groupdict()
    amount = float(given.get("number", 0)) * _FACTORS[given.get("unit") or ""]
    if form.pattern and amount == 0:
        raise ConfigError(f"{text!r} injects nothing: give more than 0")
    if kind == "extra-allreduce" and amount % _FLOAT32:
        raise ConfigError(f"{text!r}: a float32 takes 4 bytes; give a multiple of 4")
    rank = int(given["rank"]) if "rank" in given else None
    return Injection(text=text, kind=kind, amount=amount, rank=rank)


def check_applicable(injections: Sequence[Injection], cases: Iterable[Case]) -> None:
    """Raise ConfigError if an injection is given twice, or changes nothing in all cases."""
    cases = list(cases)
    targets = [(injection.kind, injection.rank) for injection in injections]
    for injection, target in zip(injections, targets, strict=True):
        if targets.count(target) > 1:
            raise ConfigError(
                f"--ddp-inject {injection.text}: {injection.kind} is given twice; keep one"
            )
        if cases and not any(injection.applies_to(case) for case in cases):
            if injection.kind in _OF_DDP and all(case.script is not None for case in cases):
                raise ConfigError(
                    f"--ddp-inject {injection.text}: a script builds DDP itself, so this changes"
                    " no selected case; edit the script instead"
                )
            lacking = "trains with DDP" if injection.kind in _NEEDS_DDP else "trains"
            if injection.rank is not None:
                lacking = f"trains with a rank {injection.rank}"
            if injection.kind == "no-overlap":
                lacking += " and its own all-reduce"
            if injection.kind == "small-buckets":
                lacking += (
                    f" (a compiled one takes buckets of {LEAST_COMPILED_BUCKET_MB}MB and more)"
                )
            raise ConfigError(f"--ddp-inject {injection.text}: no selected case {lacking}")
