"""Collection: suites become parametrized items, and mistakes are refused before a launch."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest

from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.environment import check_cluster
from ddp_perf.core.metric import LOSS, NODES, STRUCTURE, metric_spec
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.exit_code import ARRIVED, Arrived
from ddp_perf.plugin.items import (
    asserted_metric,
    case_of,
    commands,
    counted_case,
    fixtures_of,
    in_xdist_worker,
    is_counted,
    refuse_misled_root,
    session_command,
)
from ddp_perf.plugin.options import no_suite_text, read_options
from ddp_perf.plugin.session import SESSION, Commands, DdpSession
from ddp_perf.render.units import counted
from ddp_perf.session.measure.nights import Night

# One parameter for each case, shared by all tests: to make them for each test would add a third
# to the cost of collection.
PARAMETERS = pytest.StashKey[list[Any]]()
# By their marker, the tests that nothing selects by default; selected or not.
_ASKED_FOR = pytest.StashKey[dict[str, list[pytest.Item]]]()
_TIERS = (pytest.mark.cpu, pytest.mark.gpu)
# The parameter of a test that no suite gives a case. It is selected with either tier, and refused.
_NO_SUITE = pytest.param(None, id="no-suite", marks=_TIERS)
_NO_TARGET = pytest.param(None, None, id="no-suite", marks=_TIERS)
_MARKERS = (
    "perf: measures training; deselected unless -m asks for it",
    "work: counts what a training step does; deselected unless -m asks for it",
    "gpu: needs CUDA devices",
    "cpu: runs on the CPU over gloo",
    "ddp_metric(name): the metric whose verdict the test asserts",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    config.stash[ARRIVED] = Arrived()
    config.pluginmanager.register(config.stash[ARRIVED])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Read the suites before anything is collected. A mistake in one is a usage error."""
    refuse_misled_root(session.config)
    options = read_options(session.config)
    paths = options.configs or tuple(find_suites(options.config_directory))
    try:
        cases = load_cases(paths, options.overrides, options.import_paths)
        if options.replay is None:
            check_cluster(options.cluster, {case.launcher for case in cases})
        ddp = DdpSession(session.config, options, cases, suites=paths)
    except DdpPerfError as error:
        raise pytest.UsageError(str(error)) from None
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
    if "ddp_counted" in metafunc.fixturenames:
        metafunc.parametrize("ddp_case", _counted(every))
        return
    metric = asserted_metric(metafunc.definition)
    each_node = metafunc.config.stash[SESSION].capacity.each_node
    gated = [p for p in every if _asserts_something(p.values[0], metric, each_node=each_node)]
    metafunc.parametrize("ddp_case", gated if every else [_NO_SUITE])


def _counted(every: Sequence[Any]) -> list[Any]:
    """Return a parameter for each case that trains. A count needs no tier: it runs on a CPU."""
    training = [pytest.param(p.values[0], id=p.id) for p in every if p.values[0].trains]
    return training if every else [pytest.param(None, id="no-suite")]


def _targets(ddp: DdpSession) -> Iterator[Any]:
    """Yield a parameter for each target of each case on the accelerator of this machine."""
    for name, case, metric, target in ddp.targets():
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
            for mark in (*_TIERS, pytest.mark.skip(reason=_why_no_case(node))):
                node.add_marker(mark, append=False)
            kept.append(node)
    report.result = kept
    return report


def _why_no_case(test: pytest.Function) -> str:
    if is_counted(test):
        return "no suite has a case that trains"
    if "ddp_target" in test.fixturenames:
        return "no suite has a target for this accelerator"
    if asserted_metric(test) == NODES:
        return "it judges the nodes that each_node measures one by one"
    return f"no suite has a case that is gated by its {asserted_metric(test)}"


def _is_named(test: pytest.Function) -> bool:
    """Return whether the command line names this test function, in whatever file."""
    names = test.nodeid.partition("[")[0].split("::")[1:]
    return any(argument.split("::")[1:] == names for argument in test.config.args)


@pytest.hookimpl(tryfirst=True)  # before -k and -m deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = {
        marker: [item for item in items if item.get_closest_marker(marker)]
        for marker in ("perf", "work")
    }
    config.stash[_ASKED_FOR] = {marker: found for marker, found in marked.items() if found}
    _leave_out_other_nights(config, items)


def _leave_out_other_nights(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the items that measure a case which --ddp-rotate measures on another day."""
    night = config.stash[SESSION].plan.night
    if night is None:
        return
    others = [item for item in items if _is_of_another_night(item, night)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not _is_of_another_night(item, night)]


def _is_of_another_night(item: pytest.Item, night: Night) -> bool:
    case = case_of(item)
    return case is not None and not is_counted(item) and not night.measures(case)


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    """Return the -m that selects performance or work tests, if another -m left no test at all."""
    if items or config.option.keyword:
        return []
    return [_how_to_select(*marked) for marked in config.stash.get(_ASKED_FOR, {}).items()]


def _how_to_select(marker: str, items: Sequence[pytest.Item]) -> str:
    tiers = [t for t in ("cpu", "gpu") if all(item.get_closest_marker(t) for item in items)]
    expression = f'"{marker} and {tiers[0]}"' if len(tiers) == 1 else marker
    what, verb = ("performance", "measure") if marker == "perf" else ("work", "count")
    return f"ddp: {counted(len(items), f'{what} test')} deselected; to {verb}: -m {expression}"


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
        raise pytest.UsageError(no_suite_text(ddp.options))
    measuring = [item for item in session.items if not is_counted(item)]
    for item in measuring:
        if (case := case_of(item)) is not None:
            asserts = "assert_verdict" in fixtures_of(item)
            ddp.requested.note(case, asserted_metric(item) if asserts else None)
    try:
        by_id = {case.key: case for case in ddp.cases}
        ddp.make_plan(
            [case for item in measuring for case in _needed(item, by_id)],
            and_any=any("ddp_measure" in fixtures_of(item) for item in measuring),
        )
        ddp.work.check([case for item in session.items if (case := counted_case(item))])
        ddp.commands = Commands(
            session=session_command(session.config), cases=commands(session.config, measuring)
        )
        if ddp.against is not None:
            ddp.against.command = ddp.commands.session
    except DdpPerfError as error:
        raise pytest.UsageError(str(error)) from None


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


def _asserts_something(case: Case, metric: str, *, each_node: bool) -> bool:
    """Return whether this metric of the case is gated.

    Only training has a structure and a loss, only several ranks have an efficiency, and some
    metrics belong to one tier.
    """
    if metric == NODES:
        return each_node
    if metric == STRUCTURE:
        return case.trains
    if metric == LOSS:
        return case.trains and case.loss_tolerance is not None
    spec = metric_spec(metric)
    if spec.tier not in (None, case.tier) or (spec.needs_single_rank and case.world_size == 1):
        return False
    return case.tolerances.of(metric) is not None
