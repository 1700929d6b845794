"""While launches run, no port is open to other hosts, and no temporary file to other users."""

from __future__ import annotations

import socket
import tempfile

import pytest

from tests.faults.reach import play
from tests.faults.witness import NOTES, look, seen_by_ranks


@pytest.mark.parametrize("kind", ["script", "hosts"])  # `python benchmarks/faults` has all
def test_a_launch_is_closed_to_others_whatever_the_umask(tmp_path, kind):
    tried = play(tmp_path, kind, umask=0)

    assert (tried.survived, tried.leaked) == (True, ()), tried


@pytest.mark.parametrize(
    ("family", "address", "exposed"),
    [
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET6, "::", True),
        (socket.AF_INET, "127.0.0.1", False),
        (socket.AF_INET6, "::1", False),
    ],
)
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_the_witness_knows_an_open_port(monkeypatch, tmp_path, family, address, exposed, kind):
    monkeypatch.setenv(NOTES, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.socket(family, kind) as one:
        one.bind((address, 0))
        if kind == socket.SOCK_STREAM:
            one.listen()
        look()

        (seen,) = seen_by_ranks(tmp_path)
        port = f":{one.getsockname()[1]:04X}"
    assert [found.endswith(port) for found in seen.sockets].count(True) == 1
    assert any(found.endswith(port) for found in seen.exposed) == exposed


@pytest.mark.parametrize(("mode", "is_open"), [(0o700, False), (0o711, True), (0o1777, True)])
def test_the_witness_knows_an_open_directory(monkeypatch, tmp_path, mode, is_open):
    notes, temporary = tmp_path / "notes", tmp_path / "temporary"
    monkeypatch.setenv(NOTES, str(notes))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for made in (notes, temporary, temporary / "launch"):
        made.mkdir()
    (temporary / "launch").chmod(mode)

    look()

    (seen,) = seen_by_ranks(notes)
    assert bool(seen.open_to_others) == is_open
