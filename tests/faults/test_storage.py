"""A disk that is full at any write keeps what was stored, and the error names the path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.faults.postgresql import ENDS, play_end
from tests.faults.storage import (
    DAMAGES,
    KEY,
    SIZES,
    WRITERS,
    failing,
    full_after,
    play,
    play_damage,
    play_link,
    play_second_user,
)


@pytest.fixture(params=WRITERS, ids=[writer.name for writer in WRITERS])
def writer(request):
    return request.param


@pytest.mark.parametrize("size", SIZES)
def test_a_full_disk_loses_nothing_that_was_stored(writer, size, tmp_path):
    trial = play(writer, tmp_path, "the disk is full", f"after {size} bytes", full_after(size))

    assert trial.survived, trial
    assert (trial.lost, trial.leaked) == (0, ())
    assert size > 1 or "it was stored" not in trial.seen


@pytest.mark.parametrize("name", ["fsync", "replace", "write"])
def test_a_call_that_fails_loses_nothing_that_was_stored(writer, name, tmp_path):
    trial = play(writer, tmp_path, "the disk is full", name, failing(name))

    assert trial.survived, trial
    assert (trial.lost, trial.leaked) == (0, ())


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_damaged_baseline_is_refused_and_stays_as_it_is(fault, tmp_path):
    trial = play_damage(fault, tmp_path)

    assert trial.survived, trial
    assert (trial.lost, trial.leaked) == (0, ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_second_user_of_the_group_can_store(writer, tmp_path):
    writer.write(tmp_path / "of_root", 1)  # imports what another user may not read
    with tempfile.TemporaryDirectory() as name:  # whose parents every user may enter
        os.chmod(name, 0o755)
        shared = Path(name) / "shared"
        shared.mkdir()
        trial = play_second_user(writer, shared)

    assert trial.survived, trial
    assert trial.lost == 0


def test_a_merge_conflict_is_called_one(tmp_path):
    trial = play_damage("a merge by hand leaves its markers", tmp_path)

    expected = f"DIRECTORY/{KEY}.json: has the marks of a merge conflict; restore it from"
    assert trial.seen.startswith(expected)


def test_a_baseline_behind_a_link_is_written_and_the_session_is_there(tmp_path):
    trial = play_link(tmp_path)

    assert trial.survived, trial
    assert trial.lost == 0


@pytest.mark.parametrize("fault", ENDS)
def test_a_postgresql_that_goes_away_keeps_what_it_acknowledged(fault, tmp_path):
    trial = play_end(fault, tmp_path)

    assert trial.survived, trial
    assert (trial.lost, trial.leaked) == (0, ())
    assert trial.seen != "it was stored"
