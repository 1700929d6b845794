"""What is kept of the ranks' output."""

from __future__ import annotations

import errno
import os

import pytest

from ddp_perf.launch.supervisor import output
from ddp_perf.launch.supervisor.output import beginnings, cut_output, forget_output, keep_output


@pytest.fixture
def printed(tmp_path):
    """A function that writes the output of each rank, and returns their beginnings."""

    def write(*texts):
        files = [tmp_path / f"rank{rank}.out" for rank in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_bytes(text)
        return beginnings(files)

    return write


def test_each_rank_that_printed_has_a_file(tmp_path, printed):
    kept = keep_output(tmp_path / "kept", printed(b"\xff first\n", b"", b"third\n"))

    assert kept.problem is None
    files = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert files == {"rank0.out": b"\xff first\n", "rank2.out": b"third\n"}


def test_nothing_is_kept_of_silent_ranks(tmp_path, printed):
    assert keep_output(tmp_path / "kept", printed(b"", b"")) is None
    assert not (tmp_path / "kept").exists()


def test_a_rank_that_prints_much_keeps_the_beginning_and_a_note(tmp_path, printed, monkeypatch):
    monkeypatch.setattr(output, "MOST", 10)
    keep_output(tmp_path / "kept", printed(b"0123456789", b"0123456789" * 200))

    whole, cut = ((tmp_path / "kept" / f"rank{rank}.out").read_text() for rank in (0, 1))
    assert whole == "0123456789"
    assert cut == "0123456789\n[the rest was not kept]\n"


def test_a_rank_that_prints_without_end_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "MOST", 10)
    monkeypatch.setattr(output, "_MOST_ON_DISK", 100)
    file = tmp_path / "rank0.out"

    with file.open("ab", buffering=0) as printed:
        printed.write(b"0123456789" * 10)
        cut_output(file)
        assert file.stat().st_size == 100
        printed.write(b"more")
        cut_output(file)
        assert beginnings([file]) == {"rank0.out": b"0123456789\n[the rest was not kept]\n"}
        printed.write(b"the end")

    assert file.read_bytes() == b"01234567890the end"


def test_a_full_disk_is_a_problem_and_keeps_what_nccl_chose(tmp_path, printed, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output, "replace_file", full)

    kept = keep_output(tmp_path / "kept", printed(b"NCCL version 2.27.5+cuda12.9\n"))

    path = tmp_path / "kept" / "rank0.out"
    assert kept.problem == f"{path} cannot be written: No space left on device"
    assert kept.nccl.version == "2.27.5"


def test_the_output_of_an_earlier_session_is_forgotten(tmp_path, printed):
    keep_output(tmp_path / "kept", printed(b"old\n"))

    forget_output(tmp_path / "kept")
    forget_output(tmp_path / "kept")  # there is none

    assert not (tmp_path / "kept").exists()
