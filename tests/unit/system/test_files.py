"""A file is the old one or the new one, never a part of each."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import warnings
from pathlib import Path

import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.system import files
from ddp_perf.system.files import VersionedJson, check_replaceable, replace_file


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


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_umask_says_who_may_use_a_new_file(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "a.json", b"new")
    finally:
        os.umask(before)

    assert (tmp_path / "a.json").stat().st_mode & 0o777 == mode


def test_a_file_keeps_its_users(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    path.chmod(0o660)

    replace_file(path, b"new")

    assert path.stat().st_mode & 0o777 == 0o660


def test_a_file_of_another_user_is_refused_with_the_remedy(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    file = VersionedJson(
        schema=dict, version=1, kind="a file", error=ResultsError, remedy="restore it"
    )

    with pytest.raises(ResultsError, match=r"a.json: .* denied; ask its owner to let you read it"):
        file.read(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to(path), "Too many levels"),
        (lambda path: path.symlink_to("no/where"), "No such file"),
    ],
)
def test_a_file_that_cannot_be_replaced_is_known_before(tmp_path, put, why):
    put(tmp_path / "a.json")

    with pytest.raises(OSError, match=why):
        check_replaceable(tmp_path / "a.json")


def test_a_check_leaves_nothing(tmp_path):
    check_replaceable(tmp_path / "a.json")

    assert list(tmp_path.iterdir()) == []


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
