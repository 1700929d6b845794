"""Faults of ranks: at each moment, with two and four ranks, over each transport here."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import msgspec

from tests.faults.matrix import Tried
from tests.faults.rank_places import SETTINGS, Setting
from tests.faults.ranks import FAULTS, Place, RankFault, obstacle_to, place, play

_MARGIN_S = 15.0  # beyond the deadline, to look at the ranks of a busy machine and to end them


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield a trial of each fault, at each moment, in each place: none of them is random."""
    faults = [fault for fault in FAULTS if not _is_refused(fault.words, obstacle_to(fault))]
    with _own_temporary():
        for setting in SETTINGS:
            if _is_refused(setting.name, setting.obstacle()):
                continue
            with place(setting) as here:
                for fault in faults:
                    if _can_play(fault, setting):
                        for moment in fault.moments:
                            yield _in_time(fault, moment, here)


def _can_play(fault: RankFault, setting: Setting) -> bool:
    has_group = setting.has_groups or fault.name != "out-of-memory"
    return has_group and (fault.runs_in_scripts or not setting.runs_script)


def _is_refused(what: str, why: str | None) -> bool:
    if why is not None:
        print(f"  not tried: {what}: {why}", flush=True)
    return why is not None


def _in_time(fault: RankFault, moment: str, here: Place) -> Tried:
    """Play a fault, which has not survived if it was noticed long after its deadline."""
    tried = play(fault, moment, here)
    assert tried.noticed_s is not None
    late = tried.noticed_s > fault.deadline_s(moment) + _MARGIN_S
    return msgspec.structs.replace(tried, survived=tried.survived and not late)


@contextlib.contextmanager
def _own_temporary() -> Iterator[None]:
    """Have the temporary files of the launches in a directory of their own."""
    was = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = os.environ["TMPDIR"] = temporary
        try:
            yield
        finally:
            tempfile.tempdir = was[0]
            if was[1] is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = was[1]
