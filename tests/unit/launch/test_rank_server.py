"""A server as its driver sees it: it starts, answers, is silent, is lost, and ends."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.launch import rank_server
from ddp_perf.launch.engine import GOODBYE_S, Transport
from ddp_perf.launch.protocol import Answer, DescribeRequest, NodeLaunch, own_hello
from ddp_perf.launch.rank_server import RankServer, ServerLostError, answers_of
from ddp_perf.launch.supervisor.rank import REAPED_S
from tests.builders import make_case, make_failure
from tests.unit.launch.played_servers import FACTS, RUNTIME

# A server without torch: it says hello, and then does to each request what its argument states.
SERVER = """
import sys, time
from pathlib import Path
from ddp_perf.launch.protocol import Channel

sys.stdin.buffer.raw.readline()
channel = Channel(0, 1)
channel.send(Path(sys.argv[1]).read_bytes())
def answer():
    channel.send(Path(sys.argv[1]).with_name("answer").read_bytes())
try:
    while True:
        channel.receive()
        exec(sys.argv[2])
except EOFError:
    exec(sys.argv[3])
    print("ended", file=sys.stderr)
"""
ANSWER = Answer(facts=FACTS)
FAILURE = Answer(failure=make_failure(make_case()))
REQUEST = DescribeRequest(tier="cpu")
HANG = "import signal; signal.pause()"


@pytest.fixture
def serving(tmp_path):
    """``serving(deed)`` starts and greets a server that does this to each request."""
    with contextlib.ExitStack() as stack:

        def start(deed, *, answer=ANSWER, ending="", **fields):
            directory = tmp_path / str(len(list(tmp_path.iterdir())))
            directory.mkdir()
            (directory / "hello").write_bytes(own_hello(RUNTIME))
            data = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            (directory / "answer").write_bytes(data)
            words = [sys.executable, "-c", SERVER, str(directory / "hello"), deed, ending]
            fields = {"goodbye_s": 5.0, **fields}
            transport = Transport(who="the server", words=words, environ=os.environ, **fields)
            server = RankServer(transport, {}, (), directory)
            stack.callback(server.close)
            server.greet()
            return server

        yield start


def answer_of(server, patience_s=60.0):
    (found,) = answers_of({"": server}, {"": REQUEST}, patience_s).values()
    return found


def test_a_server_answers_requests_one_by_one(serving):
    server = serving("answer()")

    assert server.runtime == RUNTIME
    assert [answer_of(server), answer_of(server)] == [ANSWER, ANSWER]


def test_what_others_print_among_its_messages_is_no_answer(serving):
    assert answer_of(serving("print('a banner', flush=True); answer()")) == ANSWER


@pytest.mark.parametrize(
    ("deed", "how"),
    [
        ("sys.exit(3)", r"ended \(exit code 3\), and its ranks with it$"),
        ("import os; os.kill(os.getpid(), 9)", r"ended \(SIGKILL\).*; out of memory\? see"),
    ],
)
def test_a_server_that_ends_is_lost(serving, deed, how):
    lost = answer_of(serving(deed))

    assert isinstance(lost, ServerLostError)
    with pytest.raises(ServerLostError, match=f"^the server {how}"):
        raise lost


def test_an_answer_that_cannot_be_read_is_no_endless_wait(serving):
    torn = "channel.send_line(b'ddp-perf-message eJw= a banner' + bytes([10]))"

    lost = answer_of(serving(torn))

    assert "sent a message that cannot be read" in str(lost)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{}",
        own_hello(RUNTIME),
        b'{"type": "answer", "output": {"/etc/cron.d/x": ""}}',
        b'{"type": "answer", "records": {"../rank0.json": ""}}',
    ],
    ids=["a list", "nothing", "a hello", "a path", "a path upwards"],
)
def test_an_answer_that_is_none_of_ours_is_refused(serving, answer):
    """Code that is measured can print one."""
    lost = answer_of(serving("answer()", answer=answer))

    assert "gave an answer that is none of ddp_perf" in str(lost)


def test_a_silent_server_is_killed_after_the_patience(serving):
    server = serving(HANG)
    begin = time.monotonic()

    lost = answer_of(server, patience_s=0.5)

    assert 0.5 <= time.monotonic() - begin < 30
    assert str(lost).startswith("the server gave no sign of life for 0 s; its command was killed,")
    assert "debugger" in str(lost)


def test_the_state_of_a_silent_process_of_this_machine_is_named(serving):
    lost = answer_of(serving("import os; os.kill(os.getpid(), 19)", is_child=True), 0.5)

    assert "0 s: its process is stopped (T); it was killed with its ranks" in str(lost)


def test_a_server_that_beats_may_take_longer_than_the_patience(serving):
    beats = "for _ in range(30): channel.send(b''); time.sleep(0.1)"

    assert answer_of(serving(f"{beats}\nanswer()"), patience_s=1.0) == ANSWER


def test_the_others_are_asked_to_end_a_while_after_one_failed(serving, monkeypatch):
    monkeypatch.setattr(rank_server, "GRACE_S", 0.1)
    failing = serving("answer()", answer=FAILURE)
    waiting = serving("channel.receive(); answer()")  # the second request is that to end
    late = serving("time.sleep(0.01); answer()")
    servers = {"failing": failing, "waiting": waiting, "late": late}

    assert answers_of(servers, dict.fromkeys(servers, REQUEST), 60.0) == {
        "failing": FAILURE,
        "waiting": ANSWER,
        "late": ANSWER,
    }


def test_an_interrupt_ends_every_server_that_has_not_answered(serving):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hanging = "channel.receive()"
    interrupt = f"import os; os.kill({os.getpid()}, 2); channel.receive()"
    servers = {"a": serving(hanging), "b": serving(interrupt)}

    try:
        with pytest.raises(KeyboardInterrupt):
            answers_of(servers, dict.fromkeys(servers, REQUEST), 60.0)
    finally:
        signal.signal(signal.SIGINT, before)

    assert [server.output_tail() for server in servers.values()] == ["ended", "ended"]


def test_a_server_that_does_not_end_is_killed_with_what_it_started(serving, tmp_path):
    note = tmp_path / "child"
    child = f"import subprocess; note = open({str(note)!r}, 'w')"
    child += "; note.write(str(subprocess.Popen(['sleep', '600']).pid)); note.close()"
    server = serving(f"{child}; answer(); {HANG}", goodbye_s=0.2)
    assert answer_of(server) == ANSWER
    ends = os.pidfd_open(int(note.read_text()))

    server.close()
    server.close()  # a second call does nothing

    assert multiprocessing.connection.wait([ends], 60.0)
    os.close(ends)


def test_all_servers_are_told_to_end_before_one_is_waited_for(serving, tmp_path):
    """The first one ends only after the second one has."""
    note = tmp_path / "pid"
    second = serving(f"Path({str(note)!r}).write_text(str(__import__('os').getpid())); answer()")
    assert answer_of(second) == ANSWER
    second_pid = note.read_text()
    waits = f"import os, select; select.select([os.pidfd_open({second_pid})], [], [])"
    first = serving("channel.receive()", goodbye_s=20.0, ending=waits)

    rank_server.close_all([first, second])

    assert first.output_tail() == "ended"  # and was not killed


def test_an_interrupt_while_it_starts_ends_it(tmp_path):
    words = ["sh", "-c", f"sleep 1; kill -INT {os.getpid()}; cat >/dev/null; echo ended >&2"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    transport = Transport(who="the server", words=words, environ=os.environ)

    def start():
        RankServer(transport, {}, (), tmp_path).greet()

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)

    assert (tmp_path / "server.err").read_text() == "ended\n"


def test_a_program_that_is_not_there_is_named(tmp_path):
    transport = Transport(who="the server on a", words=["no-such-shell"], environ={})

    with pytest.raises(LaunchError, match="the server on a cannot be started: No such file"):
        RankServer(transport, {}, (), tmp_path)


def test_a_server_of_this_machine_ends_with_the_main_thread_and_no_other(tmp_path):
    transport = Transport(who="the server", words=["true"], environ={}, is_child=True)
    with ThreadPoolExecutor() as pool:
        started = pool.submit(RankServer, transport, {}, (), tmp_path)

    with pytest.raises(LaunchError, match="from the main thread, since they end with it"):
        started.result()


def test_a_server_may_take_as_long_as_its_gpus_to_end():
    assert REAPED_S["gpu"] + 3 < GOODBYE_S


def test_a_request_survives_the_way():
    message = NodeLaunch(
        request=LaunchRequest(case=make_case(), round=3), number=1, endpoint="a:1", id="x"
    )

    assert msgspec.json.decode(msgspec.json.encode(message), type=NodeLaunch) == message
