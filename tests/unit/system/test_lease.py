"""Leases of a machine and its GPUs: one process has each, and its end releases it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddp_perf.errors import LeaseError
from ddp_perf.system.lease import gpu_lease, lease_directory, machine_lease
from tests.builders import make_gpus
from tests.recordings import RecordedReader

ROOT = Path(__file__).parents[3]

HOLDER = """
import sys
from pathlib import Path
from ddp_perf.system.lease import machine_lease

with machine_lease(patience_s=0, on_wait=print, directory=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lease of ``tmp_path`` until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_free_machine_is_leased_at_once(tmp_path):
    waits = []

    with machine_lease(patience_s=0, on_wait=waits.append, directory=tmp_path):
        pass
    with machine_lease(patience_s=0, on_wait=waits.append, directory=tmp_path):
        pass

    assert waits == []


def test_a_second_session_learns_the_holder_and_gives_up_after_its_patience(tmp_path, holder):
    waits = []

    with (
        pytest.raises(LeaseError, match=f"still being measured by .*pid {holder.pid}") as caught,
        machine_lease(patience_s=0.05, on_wait=waits.append, directory=tmp_path),
    ):
        pytest.fail("two sessions measure at once")

    assert "run again when it is done" in str(caught.value)
    assert len(waits) == 1
    assert f"(pid {holder.pid}, since " in waits[0]


def test_a_waiting_session_continues_when_the_holder_is_done(tmp_path, holder):
    with machine_lease(
        patience_s=30, on_wait=lambda text: holder.stdin.close(), directory=tmp_path
    ):
        assert holder.wait(timeout=30) == 0


def test_the_lease_of_a_killed_holder_is_released(tmp_path, holder):
    holder.kill()
    holder.wait(timeout=30)
    waits = []

    with machine_lease(patience_s=0, on_wait=waits.append, directory=tmp_path):
        pass

    assert waits == []


def test_an_error_while_measuring_releases_the_lease(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path),
    ):
        raise KeyboardInterrupt

    with machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path):
        pass


GPU_HOLDER = """
import sys
from pathlib import Path
from ddp_perf.system.lease import gpu_lease
from tests.builders import make_gpus

with gpu_lease(
    int(sys.argv[2]), gpus=make_gpus(4), patience_s=0, on_wait=print, directory=Path(sys.argv[1])
) as held:
    print(*(gpu.index for gpu in held), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def gpu_holder(tmp_path):
    """``gpu_holder(count)``: another process that leases ``count`` of four GPUs; its indices."""
    with contextlib.ExitStack() as processes:

        def start(count):
            process = processes.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", GPU_HOLDER, str(tmp_path), str(count)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            processes.callback(process.kill)
            return process, [int(index) for index in process.stdout.readline().split()]

        yield start


def lease(count, directory, gpus=None, patience_s=0, on_wait=pytest.fail):
    return gpu_lease(
        count,
        gpus=make_gpus(4) if gpus is None else gpus,
        patience_s=patience_s,
        on_wait=on_wait,
        directory=directory,
    )


def test_leased_gpus_are_disjoint_across_processes(tmp_path, gpu_holder):
    _, first = gpu_holder(1)
    _, second = gpu_holder(2)

    with lease(1, tmp_path) as third:
        held = [*first, *second, *(gpu.index for gpu in third)]

    assert sorted(held) == [0, 1, 2, 3]


def test_a_lease_of_more_gpus_than_are_free_names_their_holders(tmp_path, gpu_holder):
    process, _ = gpu_holder(3)

    with (
        pytest.raises(LeaseError, match=rf"1 of 2 GPUs are free; .*pid {process.pid}"),
        lease(2, tmp_path, on_wait=lambda text: None),
    ):
        pytest.fail("a GPU is used twice")
    with lease(1, tmp_path):
        pass  # what was taken in vain was given back


def test_gpus_of_a_killed_holder_are_released(tmp_path, gpu_holder):
    process, _ = gpu_holder(4)
    process.kill()
    process.wait(timeout=30)

    with lease(4, tmp_path) as held:
        assert len(held) == 4


def test_a_waiting_lease_continues_when_gpus_become_free(tmp_path, gpu_holder):
    process, _ = gpu_holder(3)

    with lease(2, tmp_path, patience_s=30, on_wait=lambda text: process.stdin.close()) as held:
        assert len(held) == 2


def test_two_leases_of_more_than_half_of_the_gpus_do_not_deadlock(tmp_path):
    done = []
    gate = threading.Barrier(2)

    def use():
        gate.wait()
        for _ in range(3):
            with lease(3, tmp_path, patience_s=60, on_wait=lambda text: None):
                done.append(None)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(done) == 6


def test_a_machine_lease_waits_until_its_gpus_are_free(tmp_path, gpu_holder):
    gpu_holder(1)

    with (
        pytest.raises(LeaseError, match="3 of 4 GPUs are free"),
        machine_lease(
            patience_s=0, on_wait=lambda text: None, gpus=make_gpus(4), directory=tmp_path
        ),
    ):
        pytest.fail("timed beside others")


def test_a_machine_lease_blocks_every_lease_of_its_gpus(tmp_path):
    with machine_lease(
        patience_s=0, on_wait=pytest.fail, gpus=make_gpus(4)[:2], directory=tmp_path
    ):
        with lease(2, tmp_path) as others:
            assert [gpu.index for gpu in others] == [2, 3]
        with (
            pytest.raises(LeaseError),
            lease(3, tmp_path, on_wait=lambda text: None),
        ):
            pytest.fail("a GPU is used beside timing")


@pytest.mark.parametrize(("name", "count"), [("h200", 8), ("a100-pcie-bridges", 4)])
def test_all_gpus_of_a_recorded_machine_are_leased_once(name, count, tmp_path):
    gpus = RecordedReader.of(name).machine().gpus

    with contextlib.ExitStack() as leases:
        held = [leases.enter_context(lease(1, tmp_path, gpus=gpus))[0] for _ in range(count)]

    assert held == list(gpus)


def test_a_lease_of_more_gpus_than_exist_is_an_error_at_once(tmp_path):
    with (
        pytest.raises(LeaseError, match="5 GPUs are needed, and there are 4"),
        lease(5, tmp_path, patience_s=60),
    ):
        pytest.fail("a GPU that is not there")


def test_a_lock_that_cannot_be_opened_is_an_error_with_the_remedy(tmp_path):
    (tmp_path / "machine.lock").mkdir()

    with (
        pytest.raises(LeaseError, match=r"machine\.lock: cannot be locked .*; if it belongs to"),
        machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path),
    ):
        pytest.fail("a lock that cannot be opened was acquired")


def test_a_variable_names_the_directory_that_containers_of_one_machine_share(monkeypatch, tmp_path):
    monkeypatch.setenv("DDP_PERF_LEASES", str(tmp_path / "shared"))

    with machine_lease(patience_s=0, on_wait=pytest.fail):
        assert (tmp_path / "shared" / "machine.lock").exists()


def test_a_directory_that_cannot_be_made_is_an_error_in_one_line(monkeypatch):
    def refuse(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)

    with pytest.raises(LeaseError, match="cannot be made: No space left on device"):
        lease_directory()


def test_a_directory_that_is_not_writable_names_the_remedy(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    with pytest.raises(LeaseError, match="chmod 777"):
        lease_directory()


def test_other_users_can_lock_whatever_the_umask(monkeypatch, tmp_path):
    monkeypatch.setenv("DDP_PERF_LEASES", str(tmp_path / "shared"))
    before = os.umask(0o077)
    try:
        with machine_lease(patience_s=0, on_wait=pytest.fail, gpus=make_gpus(1)):
            modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "shared").iterdir()}
    finally:
        os.umask(before)

    assert modes == {0o666}
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o777


def test_a_lock_is_never_there_without_the_right_of_other_users_to_open_it(monkeypatch, tmp_path):
    made, opened = [], os.open

    def noting(path, flags, *arguments, **options):
        file = opened(path, flags, *arguments, **options)
        if flags & os.O_CREAT:
            made.append(os.fstat(file).st_mode & 0o777)
        return file

    monkeypatch.setattr(os, "open", noting)
    before = os.umask(0o077)
    try:
        with machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path):
            after = os.umask(0o077)
    finally:
        os.umask(before)

    assert made == [0o666]
    assert after == 0o077


def test_a_directory_that_was_there_keeps_its_mode(monkeypatch, tmp_path):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DDP_PERF_LEASES", str(tmp_path))

    with machine_lease(patience_s=0, on_wait=pytest.fail):
        pass

    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_the_directory_is_refused(monkeypatch, tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "leases").symlink_to(tmp_path / "private")
    monkeypatch.setenv("DDP_PERF_LEASES", str(tmp_path / "leases"))

    with pytest.raises(LeaseError, match=r"leases: .* a link or a file; remove it, or name"):
        lease_directory()
    with (
        pytest.raises(LeaseError, match="cannot be locked"),
        machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path / "leases"),
    ):
        pytest.fail("a link that came after the check was followed")

    assert list((tmp_path / "private").iterdir()) == []
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
def test_a_link_among_the_locks_leaves_the_file_of_the_victim_as_it_is(link, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("secret")
    victim.chmod(0o600)
    leases = tmp_path / "leases"
    leases.mkdir()
    link(leases / "machine.lock", victim)

    with (
        pytest.raises(LeaseError, match="cannot be locked"),
        machine_lease(patience_s=0, on_wait=pytest.fail, directory=leases),
    ):
        pytest.fail("locked the file of another user")

    assert victim.read_text() == "secret"
    assert victim.stat().st_mode & 0o777 == 0o600


def test_the_text_of_a_holder_is_cut_and_printable(tmp_path, holder):
    (tmp_path / "machine.lock").write_text("\x1b[31mroot\n" + "x" * 10_000)
    waits = []

    with (
        pytest.raises(LeaseError),
        machine_lease(patience_s=0, on_wait=waits.append, directory=tmp_path),
    ):
        pytest.fail("two sessions measure at once")

    assert waits[0].isprintable()
    assert "[31mroot" in waits[0]
    assert len(waits[0]) < 300


def test_a_lock_that_was_removed_while_it_was_held_is_made_again(tmp_path, holder):
    (tmp_path / "machine.lock").unlink()

    with machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path):
        assert "pid" in (tmp_path / "machine.lock").read_text()
