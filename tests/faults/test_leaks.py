"""What is left over is found, and what was there before is none of it."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile

from tests.faults.leaks import leaked, present

_LISTENS = """
import socket
with socket.create_server(("127.0.0.1", 0)):
    print("listens", flush=True)
    input()
"""


def test_processes_sockets_and_files_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "earlier").touch()
    before = present()
    command = [sys.executable, "-c", _LISTENS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        (tmp_path / "left").touch()
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
            nobodys = shared.name
            found = leaked(before)
            shared.truncate(1)
            with mmap.mmap(shared.fileno(), 1):
                assert nobodys not in leaked(before)

        assert {f"process {child.pid}", str(tmp_path / "left"), nobodys} < {*found}
        listener = next(one for one in found if one.startswith("socket"))
        assert listener.startswith("socket 0100007F:")
        child.stdin.close()
        child.stdout.close()


def test_a_process_of_a_job_is_found_by_its_temporary_directory(tmp_path, monkeypatch):
    """Its parent has ended, so it is no descendant of this process.

    It says its number once it runs: a process that exec begins has no variables for a moment.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    before = present()
    reading, writing = os.pipe()
    child = "echo $$; exec >/dev/null; read _"
    try:
        begun = subprocess.run(
            ["sh", "-c", f"exec 3<&0; setsid sh -c '{child}' <&3 &"],
            env=environ,
            stdin=reading,
            stdout=subprocess.PIPE,
            check=True,
        )
        found = leaked(before)
    finally:
        os.close(writing)  # it ends
        os.close(reading)

    assert f"process {int(begun.stdout)}" in found
