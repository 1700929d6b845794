"""Collection: suites become parametrized items, and mistakes are refused before a launch."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest

from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.metric import LOSS, STRUCTURE, metric_spec
from ddp_perf.core.target import targets_on
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.items import asserted_metric, case_of, in_xdist_worker
from ddp_perf.plugin.options import read_options
from ddp_perf.plugin.reproduction import commands, session_command
from ddp_perf.plugin.rootdir import refuse_misled_root
from ddp_perf.plugin.session import SESSION, DdpSession
from ddp_perf.render.units import counted

# One parameter for each case, shared by all tests: to make them for each test would add a third
# to the cost of collection.
PARAMETERS = pytest.StashKey[list[Any]]()
_MEASURING = pytest.StashKey[list[pytest.Item]]()  # the performance tests, selected or not
_TIERS = (pytest.mark.cpu, pytest.mark.gpu)
# The parameter of a test that no suite gives a case. It is selected with either tier, and refused.
_NO_SUITE = pytest.param(None, id="no-suite", marks=_TIERS)
_NO_TARGET = pytest.param(None, None, id="no-suite", marks=_TIERS)
_MARKERS = (
    "perf: measures training; deselected unless -m asks for it",
    "gpu: needs CUDA devices",
    "cpu: runs on the CPU over gloo",
    "ddp_metric(name): the metric whose verdict the test asserts",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Read the suites before anything is collected. A mistake in one is a usage error."""
    refuse_misled_root(session.config)
    options = read_options(session.config)
    paths = options.configs or tuple(find_suites(options.config_directory))
    try:
        cases = load_cases(paths, options.overrides, options.import_paths)
    except DdpPerfError as error:
        raise pytest.UsageError(str(error)) from None
    ddp = DdpSession(session.config, options, cases)
    session.config.stash[SESSION] = ddp
    session.config.stash[PARAMETERS] = [
        pytest.param(case, id=name, marks=getattr(pytest.mark, case.tier))
        for name, case in ddp.names.items()
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ddp_case" not in metafunc.fixturenames:
        return
    every = metafunc.config.stash[PARAMETERS]
    if "ddp_target" in metafunc.fixturenames:
        ddp = metafunc.config.stash[SESSION]
        metafunc.parametrize("ddp_case, ddp_target", [*_targets(ddp)] if every else [_NO_TARGET])
        return
    metric = asserted_metric(metafunc.definition)
    gated = [p for p in every if _asserts_something(p.values[0], metric)]
    metafunc.parametrize("ddp_case", gated if every else [_NO_SUITE])


def _targets(ddp: DdpSession) -> Iterator[Any]:
    """Yield a parameter for each target of each case on the accelerator of this machine."""
    keys = {tier: ddp.capacity.accelerator_key(tier) for tier in ("cpu", "gpu")}
    for name, case in ddp.names.items():
        for metric, target in targets_on(keys[case.tier], case.targets).items():
            tier = getattr(pytest.mark, case.tier)
            yield pytest.param(case, metric, id=f"{name}-{target.figure}", marks=tier)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Remove the tests without any case before pytest counts them.

    It would collect each as an item, and skip it. One that the command line names remains, or it
    would be an error: it is skipped, with the reason.
    """
    report = yield
    if not collector.config.stash.get(PARAMETERS, None):
        return report
    kept = []
    for node in report.result or ():
        if not _has_no_case(node):
            kept.append(node)
        elif isinstance(node, pytest.Function) and _is_named(node):
            reason = f"no suite has a case that is gated by its {asserted_metric(node)}"
            if "ddp_target" in node.fixturenames:
                reason = "no suite has a target for this accelerator"
            for mark in (*_TIERS, pytest.mark.skip(reason=reason)):
                node.add_marker(mark, append=False)
            kept.append(node)
    report.result = kept
    return report


def _is_named(test: pytest.Function) -> bool:
    """Return whether the command line names this test function, in whatever file."""
    names = test.nodeid.partition("[")[0].split("::")[1:]
    return any(argument.split("::")[1:] == names for argument in test.config.args)


@pytest.hookimpl(tryfirst=True)  # before -k and -m deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_MEASURING] = [item for item in items if item.get_closest_marker("perf")]


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> str | None:
    """Return the -m that selects the performance tests, if another -m left no test at all."""
    measuring = config.stash.get(_MEASURING, [])
    if items or not measuring or config.option.keyword:
        return None
    tiers = [t for t in ("cpu", "gpu") if all(item.get_closest_marker(t) for item in measuring)]
    expression = f'"perf and {tiers[0]}"' if len(tiers) == 1 else "perf"
    them = counted(len(measuring), "performance test")
    return f"ddp: {them} deselected; to measure: -m {expression}"


def _has_no_case(node: pytest.Item | pytest.Collector) -> bool:
    callspec = getattr(node, "callspec", None)
    parameters = callspec.params if callspec else {}
    return "ddp_case" in parameters and not isinstance(parameters["ddp_case"], Case)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plan what the selected items need.

    Raises UsageError for a broken baseline file, an injection that fits no item, and a project
    without any suite file.
    """
    if session.config.option.collectonly or in_xdist_worker(session.config):
        return  # nothing will be measured: see `_refuse_xdist`
    ddp = session.config.stash[SESSION]
    if not ddp.cases and any(_has_no_case(item) for item in session.items):
        raise pytest.UsageError(
            f"there is no suite file in {ddp.options.config_directory}: name one with --ddp-config,"
            " or run ddp-perf init, which writes an example"
        )
    for item in session.items:
        if (case := case_of(item)) is not None:
            asserts = "assert_verdict" in _fixtures(item)
            ddp.note_test(case, asserted_metric(item) if asserts else None)
    try:
        by_id = {case.key: case for case in ddp.cases}
        ddp.plan(
            [case for item in session.items for case in _needed(item, by_id)],
            and_any=any("ddp_measure" in _fixtures(item) for item in session.items),
        )
        ddp.command = session_command(session.config)
        ddp.commands = commands(session.config, session.items)
    except DdpPerfError as error:
        raise pytest.UsageError(str(error)) from None


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def _needed(item: pytest.Item, by_id: dict[tuple[str, str], Case]) -> Iterator[Case]:
    """Yield the item's own case, and the one-rank case that its scaling is computed from.

    The one-rank case is needed whatever the item asserts: a session stores all metrics of a case.
    """
    case = case_of(item)
    if case is None:
        return
    yield case
    if case.single is not None:
        yield by_id[case.suite, case.single]


def _asserts_something(case: Case, metric: str) -> bool:
    """Return whether this metric of the case is gated.

    Only training has a structure and a loss, only several ranks have an efficiency, and some
    metrics belong to one tier.
    """
    if metric == STRUCTURE:
        return case.trains
    if metric == LOSS:
        return case.trains and case.loss_tolerance is not None
    spec = metric_spec(metric)
    if spec.tier not in (None, case.tier) or (spec.needs_single_rank and case.world_size == 1):
        return False
    return case.tolerances.of(metric) is not None
