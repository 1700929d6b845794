"""The files of ranks that an answer brings to the driver."""

from __future__ import annotations

from ddp_perf.launch.supervisor.supervise import contents


def test_only_the_files_of_ranks_are_brought(tmp_path):
    for name in ("rank0.json", "rank10.json.gz", "rank1.json.tmp", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "rank1.json").mkdir()

    assert list(contents(tmp_path)) == ["rank0.json", "rank10.json.gz"]


def test_a_directory_that_is_not_there_has_none(tmp_path):
    assert contents(tmp_path / "none") == {}
