"""Suites of a script, and their cases."""

from __future__ import annotations

import msgspec

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import ScriptSuite
from ddp_perf.core.case import Case

SCRIPT_SUITE = {
    "suite": "mine",
    "tier": "cpu",
    "script": "train.py",
    "args": ["--batch-size", "{batch_size}"],
    "world_sizes": [1],
    "batch_sizes": [64],
}


def make_script_case(**changes) -> Case:
    """One rank; ``changes`` are those of the suite."""
    (case,) = cases_of(Variant(suite=msgspec.convert({**SCRIPT_SUITE, **changes}, ScriptSuite)))
    return case
