"""The report of a search between two environments: what is to blame, and what to run next."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.duel.environments.probes import ProbeEffect, find_culprits
from ddp_perf.duel.environments.report import build_environments
from ddp_perf.duel.environments.run import EnvironmentSearch
from ddp_perf.render.terminal import report_text
from tests.unit.duel.environments.test_culprits import Oracle, make_factors


def report_of(search, fixed=()):
    result = EnvironmentSearch(
        good="python:/a/bin/python",
        bad="python:/b/bin/python env:SOME=1",
        case_id="mlp-ddp-fp32-ws2-b64",
        metric="step_time",
        tolerance=0.05,
        alpha=0.005,
        factors=tuple(f"{name} 1 → 2" for name in "abcd"),
        fixed=fixed,
        search=search,
    )
    return build_environments(result)


def searched(*causes, most=1000, **takes):
    factors = make_factors(*"abcd", **takes)
    return find_culprits(factors, Oracle(factors, *causes, most=most))


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(searched("a", "cd", d=("b",)), id="found"),
        pytest.param(searched("b", most=2), id="out of time"),
    ],
)
def test_the_text(search, file_regression):
    text = report_text(report_of(search, fixed=("Python 3.11.1 → 3.11.2",)), 80)

    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_what_cannot_be_moved_is_named_if_nothing_else_is_to_blame():
    report = report_of(searched(), fixed=("Python 3.11.1 → 3.11.2",))

    assert report.verdict == "nothing that can be moved"
    assert "what cannot be moved may be: Python 3.11.1 → 3.11.2" in report.headline


def test_an_undecided_comparison_is_no_acquittal():
    factors = make_factors("a")
    oracle = Oracle(factors)

    def undecided(known, moved):
        return msgspec.structs.replace(oracle(known, moved), effect=ProbeEffect.UNRESOLVED)

    report = report_of(find_culprits(factors, undecided))

    assert report.verdict == "undecided"
    assert "A with everything of B gives no answer" in report.headline
