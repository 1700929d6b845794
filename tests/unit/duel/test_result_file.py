"""The results file of a duel."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import read_duel, result_path, write_duel
from ddp_perf.errors import ResultsError
from tests.duels import make_case_duel, make_duel


def test_a_duel_is_read_as_it_was_written(tmp_path):
    duel = make_duel(make_case_duel(DuelOutcome.SLOWER))
    path = result_path(tmp_path / "new", duel)

    write_duel(path, duel)

    assert read_duel(path) == duel


def test_two_duels_that_began_in_one_second_have_a_file_each(tmp_path):
    first, second = make_duel(), make_duel(make_case_duel(DuelOutcome.SLOWER))
    assert first.began == second.began
    paths = []

    for duel in (first, second):
        paths.append(result_path(tmp_path, duel))
        write_duel(paths[-1], duel)

    assert [read_duel(path) for path in paths] == [first, second]
    assert sorted(paths) == sorted(tmp_path.iterdir())


def test_a_file_that_is_cut_short_is_refused_with_a_remedy(tmp_path):
    path = tmp_path / "duel.json"
    write_duel(path, make_duel(make_case_duel(DuelOutcome.SLOWER)))
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(ResultsError, match=r"duel\.json: is cut short.*run ddp-perf duel again"):
        read_duel(path)


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ResultsError, match="file"):
        write_duel(tmp_path / "file" / "duel.json", make_duel())
