"""Processes and threads from /proc, with any name."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from ddp_perf.system.host.processes import (
    STRANGER,
    describe_state,
    family_cpu,
    family_memory,
    parse_wait_s,
    read_process,
    state_of,
    thread_count,
    thread_waits_s,
)

BURNT_S = 0.1
# Uses more than that, since /proc rounds down to ticks; says so, and stays.
BURN = f"""
import sys, time
while time.process_time() < {2 * BURNT_S}:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sleeper(tmp_path):
    """``sleeper(name)`` starts a sleeping process of this name."""
    with contextlib.ExitStack() as stack:

        def start(name):
            link = tmp_path / name
            link.symlink_to(shutil.which("sleep"))
            process = stack.enter_context(subprocess.Popen([str(link), "600"]))
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def child(sleeper):
    """A sleeping process with a name that looks like the fields after it."""
    return sleeper("odd) T (name")


def test_the_state_of_a_stopped_process_is_read(child):
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)

    assert state_of(child.pid) == "T"


def test_a_name_that_looks_like_a_state_is_parsed_correctly(child):
    assert state_of(child.pid) in ("S", "R", "D")


def test_a_name_that_the_kernel_cut_within_a_character_is_read(sleeper):
    process = sleeper("fourteen_bytesü")  # two bytes for the last: the kernel keeps the first

    assert read_process(process.pid).name == "fourteen_bytes\ufffd"


def test_a_process_that_has_ended_has_no_state(child):
    child.kill()
    child.wait()

    assert state_of(child.pid) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [("T", "stopped (T)"), ("S", "sleeping (S)"), ("?", "in an unknown state (?)"), (None, "gone")],
)
def test_states_are_described_in_words(state, words):
    assert describe_state(state) == words


def test_threads_are_counted():
    before, go = thread_count(), threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        assert thread_count() == before + 1
    finally:
        go.set()
        thread.join()


@pytest.fixture
def parent():
    """``parent(command)`` runs it in a shell, and waits for one line of each ``awaited``."""
    shells = []

    def start(command, *, awaited=1):
        shell = subprocess.Popen(
            ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        shells.append(shell)
        for _ in range(awaited):
            assert shell.stdout.readline()
        return shell

    yield start
    for shell in shells:
        shell.communicate()  # closes their input, upon which they end


@pytest.fixture
def burn(tmp_path):
    """A command that uses BURNT_S of CPU time."""
    script = tmp_path / "burn.py"
    script.write_text(BURN)
    return f"{sys.executable} {script}"


def test_the_cpu_time_of_a_family_includes_children_and_reaped_children(parent, burn):
    cores = os.sched_getaffinity(0)
    alone = parent(f"{burn}; true")
    nested = parent(f"sh -c '{burn} < /dev/null > /dev/null; {burn}; true'; true")

    assert family_cpu(alone.pid, cores).on_cores >= BURNT_S
    assert family_cpu(nested.pid, cores).on_cores >= 2 * BURNT_S


def test_the_cpu_time_on_cores_leaves_out_processes_on_other_cores(parent, burn):
    shell = parent(f"{burn}; true")

    elsewhere = family_cpu(shell.pid, {max(os.sched_getaffinity(0)) + 1})

    assert elsewhere.on_cores == 0
    assert elsewhere.total >= BURNT_S


def test_the_cpu_time_of_a_family_leaves_out_strangers(parent, burn):
    hog = f"{sys.executable} -m ddp_perf.worker.injection.hog"
    # In the background a shell gives a command no input, so the hog gets its end from here.
    shell = parent(f"{hog} $$ & {burn} <&0; kill $!", awaited=2)
    with open(f"/proc/{shell.pid}/task/{shell.pid}/children", encoding="utf-8") as children:
        pids = [int(pid) for pid in children.read().split()]
    by_name = {read_process(pid).name: pid for pid in pids}
    hog_pid = by_name.pop(STRANGER)

    while read_process(hog_pid).cpu_s < BURNT_S:  # it does nothing else
        pass

    own_s = sum(read_process(pid).cpu_s for pid in by_name.values())
    family = family_cpu(shell.pid, os.sched_getaffinity(0))
    assert (family.on_cores, family.total) == (own_s, own_s)


def test_a_process_that_has_ended_has_no_family():
    with subprocess.Popen(["true"]) as process:
        process.wait()

    family = family_cpu(process.pid, os.sched_getaffinity(0))
    assert (family.on_cores, family.total) == (0, 0)
    assert family_memory(process.pid) is None


def test_the_memory_of_a_family_counts_a_page_of_parent_and_child_once(parent, tmp_path):
    size = 64 * 2**20
    script = tmp_path / "hold.py"
    script.write_text(
        f"import os, sys\npages = b'x' * {size}\nos.fork()\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    shell = parent(f"{sys.executable} {script}; true", awaited=2)

    assert size < family_memory(shell.pid) < 1.9 * size


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [("1527992196 503939483 131\n", 0.503939483), ("0 0 1\n", 0.0), ("0 0 0\n", None)],
    ids=["busy", "new", "kept by no kernel"],
)
def test_a_wait_is_given_in_seconds(text, wait_s):
    assert parse_wait_s(text) == wait_s


def test_every_thread_that_has_run_has_a_wait():
    started, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (started.set(), go.wait()))
    thread.start()
    started.wait()
    try:
        waits = thread_waits_s()
    finally:
        go.set()
        thread.join()

    assert {os.getpid(), thread.native_id} <= waits.keys()
    assert min(waits.values()) >= 0
