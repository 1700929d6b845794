"""The files of a launch that ran elsewhere."""

from __future__ import annotations

from ddp_perf.launch.launcher import contents


def test_only_the_files_of_ranks_are_brought(tmp_path):
    for name in ("rank0.json", "rank10.json.gz", "rank1.out", "rank1.json.tmp", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")

    assert list(contents(tmp_path)) == ["rank0.json", "rank1.out", "rank10.json.gz"]
