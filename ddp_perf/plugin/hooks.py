"""The hooks and fixtures of a project that uses the suite.

Importing them imports no torch: the ranks run in other processes.
"""

from ddp_perf.plugin.collection import (
    pytest_collection,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_generate_tests,
    pytest_make_collect_report,
    pytest_report_collectionfinish,
)
from ddp_perf.plugin.exit_code import pytest_runtest_makereport, pytest_runtestloop
from ddp_perf.plugin.fixtures import (
    assert_verdict,
    ddp_counted,
    ddp_measure,
    ddp_measured,
    ddp_session,
    worker_clock,
)
from ddp_perf.plugin.terminal import (
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_unconfigure,
)

__all__ = [
    "assert_verdict",
    "ddp_counted",
    "ddp_measure",
    "ddp_measured",
    "ddp_session",
    "pytest_collection",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_make_collect_report",
    "pytest_report_collectionfinish",
    "pytest_runtest_makereport",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "worker_clock",
]
