"""Faults of ranks: each is named, loses and leaves nothing, and the session goes on."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult
from tests.faults.rank_places import SETTINGS
from tests.faults.ranks import FAULTS, obstacle_to, place, play

_FAULTS = {fault.name: fault for fault in FAULTS}
_SETTINGS = {one.name: one for one in SETTINGS if one.ranks == 2}
# `python benchmarks/faults` plays the others: they are slow, or much like one of these.
_QUICK = {
    *("long-error", "exit-0", "exit", "kill", "stop", "loop-in-c", "out-of-memory"),
    *("out-of-descriptors", "out-of-space", "daemon", "other-shape", "wide-model", "tamper", "nan"),
}
_MIDDLE, _AFTER = "in the middle", "after the timed steps"
_HERE = [(fault.name, fault.moments[:2][-1]) for fault in FAULTS if fault.name in _QUICK]
_HERE += [("stop", _AFTER), ("raise", _AFTER), ("kill", _AFTER)]
_ELSEWHERE = [("kill", _MIDDLE), ("stop", _AFTER), ("tamper", _MIDDLE)]


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """A directory for the temporary files of the launches alone."""
    with pytest.MonkeyPatch.context() as patch:
        temporary = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", temporary)
        patch.setattr("tempfile.tempdir", temporary)
        yield


@pytest.fixture(scope="module")
def here(temporary):
    """Two ranks on this machine."""
    with place(_SETTINGS["on this machine"]) as here:
        yield here


@pytest.fixture(scope="module", params=["in a script", "on two hosts"])
def elsewhere(request, temporary):
    with place(_SETTINGS[request.param]) as elsewhere:
        yield elsewhere


@pytest.mark.parametrize(("name", "moment"), _HERE)
def test_a_fault_of_a_rank_is_named_and_leaves_nothing(here, name, moment):
    if (reason := obstacle_to(_FAULTS[name])) is not None:
        pytest.skip(reason)

    tried = play(_FAULTS[name], moment, here)

    assert (tried.survived, tried.lost, tried.leaked) == (True, 0, ()), tried


@pytest.mark.parametrize(("name", "moment"), _ELSEWHERE)
def test_a_fault_is_named_in_other_places_too(elsewhere, name, moment):
    tried = play(_FAULTS[name], moment, elsewhere)

    assert (tried.survived, tried.lost, tried.leaked) == (True, 0, ()), tried


def launched(here, name, moment):
    return here.launcher.launch(here.request(_FAULTS[name], moment))


def test_a_long_error_is_cut_before_it_reaches_the_driver(here):
    outcome = launched(here, "long-error", "at the first step")

    assert outcome.detail.startswith("ValueError: broken data: xxx")
    assert outcome.detail.endswith("more characters]")
    assert max(map(len, (outcome.detail, outcome.traceback, outcome.user_frames))) < 2**15


def test_a_line_without_end_does_not_reach_the_driver(here):
    outcome = launched(here, "flood", "at the first step")

    assert outcome.detail == "ValueError: the data are broken"
    assert 0 < len(outcome.output) <= 2**16


def test_a_long_error_after_the_timed_steps_is_cut_and_costs_no_times(here):
    outcome = launched(here, "long-error", _AFTER)

    assert isinstance(outcome, LaunchResult), outcome.detail
    assert outcome.ranks[1].missing["probe"].startswith("ValueError: broken data: xxx")
    assert max(len(why) for one in outcome.ranks for why in one.missing.values()) < 2**11
