"""Suites become parametrized items; what cannot be run as asked is refused here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.metric import STRUCTURE, needs_single_rank
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.options import read_options
from ddp_perf.plugin.reproduction import commands
from ddp_perf.plugin.session import SESSION, DdpSession

# One parameter a case, shared by all tests: making them anew for each is a third of the cost.
PARAMETERS = pytest.StashKey[list[Any]]()
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
    """Read the suites before anything is collected: a mistake in one is a usage error."""
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
    marker = metafunc.definition.get_closest_marker("ddp_metric")
    metric = marker.args[0] if marker else STRUCTURE
    parameters = metafunc.config.stash[PARAMETERS]
    metafunc.parametrize(
        "ddp_case", [p for p in parameters if _asserts_something(p.values[0], metric)]
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m count what they deselect
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """A metric that no suite gates makes no item: pytest would show one that is skipped."""
    if config.stash[PARAMETERS]:
        items[:] = [item for item in items if not _has_no_case(item)]


def _has_no_case(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    return "ddp_case" in parameters and not isinstance(parameters["ddp_case"], Case)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plan what the selected items need.

    Raises UsageError for a broken baseline file, or an injection that fits no item.
    """
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return  # nothing will be measured: see `_refuse_a_crowd`
    ddp = session.config.stash[SESSION]
    try:
        by_id = {(case.suite, case.id): case for case in ddp.cases}
        ddp.plan(
            [case for item in session.items for case in _needed(item, by_id)],
            and_any=any("ddp_measure" in _fixtures(item) for item in session.items),
        )
        ddp.commands = commands(session.config, session.items)
    except DdpPerfError as error:
        raise pytest.UsageError(str(error)) from None


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def _needed(item: pytest.Item, by_id: dict[tuple[str, str], Case]) -> Iterator[Case]:
    """The item's own case, and the one-rank case that its scaling is told from.

    Also where the item asserts something else: what is stored of a case must be whole.
    """
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ddp_case") if callspec else None
    if not isinstance(case, Case):
        return
    yield case
    if case.single is not None:
        yield by_id[case.suite, case.single]


def _asserts_something(case: Case, metric: str) -> bool:
    """Whether the case is gated in this metric; structure is training's, and scaling takes more
    than one rank.
    """
    if metric == STRUCTURE:
        return case.trains
    if needs_single_rank(metric) and case.world_size == 1:
        return False
    return case.tolerances.of(metric) is not None
