"""A file is the old one or the new one, never a part of each."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import warnings
from pathlib import Path

import pytest

from ddp_perf.system import files
from ddp_perf.system.files import replace_file


@pytest.mark.parametrize("old", [None, b"old"], ids=["new file", "existing file"])
def test_a_file_is_replaced_as_a_whole(tmp_path, old):
    path = tmp_path / "figures.json"
    if old is not None:
        path.write_bytes(old)

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_relative_path_starts_at_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    replace_file(Path("a.json"), b"new")

    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_other_users_may_read_the_file(tmp_path):
    replace_file(tmp_path / "a.json", b"new")

    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_write_removes_what_a_killed_writer_left(tmp_path):
    path, hours = tmp_path / "a[1].json", 2 * 3600
    left, running = tmp_path / ".a[1].json.abcdefgh", tmp_path / ".a[1].json.12345678"
    other = tmp_path / ".b.json.abcdefgh"
    for file in (left, running, other):
        file.write_bytes(b"half")
    for file in (left, other):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - hours))

    replace_file(path, b"new")

    assert sorted(tmp_path.iterdir()) == sorted([path, running, other])


def test_the_data_are_flushed_before_the_rename(tmp_path, monkeypatch):
    """A crash of the machine must not leave an empty file under the name."""
    path, seen, fsync = tmp_path / "a.json", [], os.fsync

    def note(descriptor):
        seen.append((path.exists(), os.fstat(descriptor).st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    replace_file(path, b"new")

    assert seen == [(False, 3)]


def interrupting_at(instruction):
    """A trace function that acts as Ctrl-C before that bytecode instruction of the write."""
    count = itertools.count()

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in (files.__file__, os.fdopen.__code__.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(count) == instruction:
            raise KeyboardInterrupt
        return trace

    return trace


def test_an_interrupt_at_any_instruction_leaves_a_whole_file_and_none_open(tmp_path):
    path, earlier = tmp_path / "a.json", sys.gettrace()
    interrupted = True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for instruction in itertools.count():
            path.write_bytes(b"old")
            sys.settrace(interrupting_at(instruction))
            try:
                replace_file(path, b"new")
            except KeyboardInterrupt:
                pass
            else:
                interrupted = False
            finally:
                sys.settrace(earlier)
            assert path.read_bytes() in (b"old", b"new")
            if not interrupted:
                break

    assert instruction > 50
    assert not [str(warning.message) for warning in warned]
