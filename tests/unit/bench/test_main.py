"""The process of one rank: what it prints, on which rank, and its exit code."""

from __future__ import annotations

import time

import pytest

from ddp_perf.bench.__main__ import main

SECOND = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
OTHER_NODE = SECOND | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@pytest.fixture
def as_rank(monkeypatch):
    """``as_rank(environ)`` makes this process a rank; returns the seconds that it sleeps."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)

    def make(environ):
        for name in (*SECOND, "GROUP_WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return slept

    return make


@pytest.mark.parametrize("environ", [{}, OTHER_NODE], ids=["alone", "first rank of a node"])
def test_a_wrong_flag_is_two_lines_and_the_exit_code_of_usage(as_rank, capsys, environ):
    as_rank(environ)

    assert main(["--device", "cpu", "--hidden-dim", "0"]) == 4

    lines = capsys.readouterr().err.splitlines()
    assert "--hidden-dim" in lines[0]
    assert lines[1].endswith("--help")
    assert len(lines) == 2


def test_the_other_ranks_of_the_node_are_silent_until_torchrun_ends_them(as_rank, capsys):
    slept = as_rank(SECOND)

    assert main(["--hidden-dim", "0"]) == 4
    assert slept == [10.0]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("environ", "shows"), [({}, True), (SECOND, False)])
def test_the_first_rank_of_a_node_shows_the_help(as_rank, capsys, environ, shows):
    as_rank(environ)

    with pytest.raises(SystemExit) as caught:
        main(["--help"])

    assert caught.value.code == 0
    assert ("--broadcast-buffers" in capsys.readouterr().out) is shows


def test_each_rank_states_that_its_node_has_another_number_of_ranks(as_rank, capsys):
    as_rank(SECOND | {"WORLD_SIZE": "3", "GROUP_WORLD_SIZE": "2"})

    assert main([]) == 1
    assert "rank 1: this node has 2 of 3 ranks on 2 nodes" in capsys.readouterr().err


def test_a_folder_of_traces_that_cannot_be_made_is_refused_before_anything_runs(
    as_rank, capsys, tmp_path
):
    as_rank({})
    (tmp_path / "file").write_text("")

    assert main(["--device", "cpu", "--profile", str(tmp_path / "file")]) == 4
    assert "--profile: [Errno 17] File exists" in capsys.readouterr().err
