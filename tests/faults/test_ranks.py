"""Faults of ranks on this machine: each is named, leaves nothing, and the next launch runs."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.launch.engines.machine import ThisMachine
from tests.faults.ranks import FAULTS, MOMENTS, launch, place, play, small_group_obstacle

_SLOW = {"flood", "hang", "loop"}  # `python benchmarks/faults` plays them


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Two ranks on this machine, whose temporary files are theirs alone."""
    with pytest.MonkeyPatch.context() as patch:
        temporary = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", temporary)
        patch.setattr("tempfile.tempdir", temporary)
        with place("on this machine", ThisMachine(), ranks=2) as here:
            yield here


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.name not in _SLOW], ids=lambda fault: fault.name
)
def test_a_fault_of_a_rank_is_named_and_leaves_nothing(here, fault):
    if fault.name == "out-of-memory" and (reason := small_group_obstacle()) is not None:
        pytest.skip(reason)

    tried = play(fault, "in the middle", here)

    assert (tried.survived, tried.leaked) == (True, ()), tried


def test_a_long_error_is_cut_before_it_reaches_the_driver(here):
    outcome = launch(here.launcher, "long-error", ranks=2, at_step=1)

    assert outcome.detail.startswith("ValueError: broken data: xxx")
    assert outcome.detail.endswith("more characters]")
    assert max(map(len, (outcome.detail, outcome.traceback, outcome.user_frames))) < 2**15


def test_a_line_without_end_does_not_reach_the_driver(here):
    outcome = launch(here.launcher, "flood", ranks=2, at_step=1)

    assert outcome.detail == "ValueError: the data are broken"
    assert 0 < len(outcome.output) <= 2**16


def test_a_long_error_after_the_timed_steps_is_cut_and_costs_no_times(here):
    outcome = launch(here.launcher, "long-error", ranks=2, at_step=MOMENTS["after the timed steps"])

    assert isinstance(outcome, LaunchResult), outcome.detail
    assert outcome.ranks[1].missing["probe"].startswith("ValueError: broken data: xxx")
    assert max(len(why) for one in outcome.ranks for why in one.missing.values()) < 2**11
