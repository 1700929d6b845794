"""The progress of a session names its suite."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.plugin.progress import TerminalProgress
from tests.builders import make_case, make_failure

CASE = make_case()


class NoPlugins:
    """A configuration without a terminal and without capture."""

    def __init__(self):
        self.pluginmanager = self

    def getplugin(self, name):
        return None

    def get_verbosity(self):
        return -1


@pytest.fixture
def progress():
    return TerminalProgress(NoPlugins())


def test_a_session_without_a_suite_is_before_its_first_launch(progress):
    assert progress.how_far() == "before the first launch ended"


def test_each_suite_is_named_before_and_after_its_first_launch(progress):
    for suite in ("quick", "full"):
        progress.begin(suite, 3, None)
        assert progress.how_far() == f"before the first launch of {suite} ended"

        progress.launched(LaunchRequest(case=CASE, round=0), make_failure(CASE), None)
        assert progress.how_far() == f"after 1 of 3 launches of {suite}"
        progress.end()
