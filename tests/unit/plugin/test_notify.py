"""``--ddp-notify``: what webhooks get, that none of their failures counts, and the secret."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import threading
from pathlib import Path

import jsonschema
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import HistoryError
from ddp_perf.history.events import events
from ddp_perf.history.store import HistoryStore
from ddp_perf.plugin.notify import send
from ddp_perf.plugin.option_values import parse_webhook
from ddp_perf.report.notification import notification, slack_text
from tests.projects import REPOSITORY
from tests.recorded_sessions import LEVEL, SLOW, make_judged_series
from tests.webhooks import SECRET, webhook

HISTORY = "--ddp-history=sqlite:///history.sqlite"
HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def _without_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def message():
    series = make_judged_series((LEVEL, Outcome.PASS), (SLOW, Outcome.REGRESSION))
    return notification(events([series], series.sessions[-1].session), report="")


# ---- the URL ----


@pytest.mark.parametrize(
    ("text", "host", "is_slack"),
    [
        ("https://hooks.slack.com/services/T/B/x", "hooks.slack.com", True),
        ("HTTPS://Hooks.Slack.com/services/T/B/x", "hooks.slack.com", True),
        ("slack+https://chat.example.com/hooks/x", "chat.example.com", True),
        ("https://hooks.slack.com.example.com/x", "hooks.slack.com.example.com", False),
        ("https://example.com/hooks.slack.com", "example.com", False),
        ("http://localhost:8080", "localhost", False),
        ("http://[::1]:8080/x?a=b", "[::1]", False),
    ],
)
def test_slack_is_known_by_its_host_or_is_named(text, host, is_slack):
    parsed = parse_webhook(text)

    assert (parsed.host, parsed.is_slack) == (host, is_slack)
    assert parsed.url == text.removeprefix("slack+")
    assert repr(parsed) == host


def test_a_variable_has_the_url(monkeypatch):
    monkeypatch.setenv("CHAT", "https://example.com/x\n")

    assert parse_webhook("env:CHAT").url == "https://example.com/x"


@pytest.mark.parametrize(
    "text",
    [
        *("", "secret", "ftp://host/secret", "https://", "https:///secret", "slack+ftp://h/secret"),
        *("https://me:secret@host/", "https://host/a secret", "https://host/\nsecret"),
        *("https://host:port/secret", "https://host/sécret", "slack://host/secret"),
        *("env:https://host/secret", "env:SECRET_THAT_IS_NOT_SET", "env:EMPTY", "env:WRONG"),
    ],
)
def test_what_is_no_webhook_is_refused_without_being_shown(text, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("WRONG", "secret")

    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse_webhook(text)

    assert "secret" not in str(caught.value).lower()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([f"--ddp-notify=https://host/{SECRET}"], "*--ddp-notify: needs --ddp-history=URL*"),
        ([f"--ddp-notify=host/{SECRET}", HISTORY], "*--ddp-notify: it is not the URL of a web*"),
        ([f"--ddp-notify=https://host/{SECRET}", "--ddp-against=HEAD"], "*--ddp-notify with *"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_launched(project, arguments, line):
    refused = project.run(*arguments)

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([line])
    assert SECRET not in refused.stderr.str() + refused.stdout.str()


# ---- sending ----


def sent(url, message, *, deadline_s=60.0):
    (line,) = send([parse_webhook(url)], message, deadline_s=deadline_s)
    assert SECRET not in line
    return line


def test_a_plain_webhook_gets_json_of_the_schema(message):
    with webhook() as server:
        line = sent(server.url, message)

    assert line == f"notified {HOST}"
    assert server.requests == [("POST", f"/{SECRET}", "application/json")]
    got = json.loads(server.bodies[0])
    schema = json.loads((REPOSITORY / "docs" / "notification.schema.json").read_text("utf-8"))
    jsonschema.validate(got, schema)
    assert (got["schema_version"], got["events"][0]["event"]) == (1, "new")


def test_a_server_of_the_slack_kind_gets_a_text(message):
    with webhook() as server:
        sent(f"slack+{server.url}", message)

    assert json.loads(server.bodies[0]) == {"text": slack_text(message)}


@pytest.mark.parametrize("status", [404, 500])
def test_what_a_server_refuses_is_not_sent_again(status, message):
    with webhook(status) as server:
        line = sent(server.url, message)

    assert line == f"--ddp-notify: {HOST} was not notified: HTTP {status}"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status, message):
    with webhook() as other, webhook(status, Location=f"{other.url}/else") as server:
        line = sent(server.url, message)

    assert f"was not notified: HTTP {status}; it redirects: name the address" in line
    assert other.requests == []


def test_a_port_at_which_nobody_listens(message):
    with contextlib.closing(socket.create_server((HOST, 0))) as taken:
        port = taken.getsockname()[1]

    line = sent(f"http://{HOST}:{port}/{SECRET}", message)

    assert line == f"--ddp-notify: {HOST} was not notified: Connection refused"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", f"{HOST}:99999"])
def test_a_host_that_does_not_exist(host, message):
    assert " was not notified: " in sent(f"http://{host}/{SECRET}", message)


def test_a_server_that_speaks_something_else(message):
    with contextlib.closing(socket.create_server((HOST, 0))) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-server\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        line = sent(f"http://{HOST}:{server.getsockname()[1]}/{SECRET}", message)
        thread.join()

    assert line == f"--ddp-notify: {HOST} was not notified: HTTP does not reach it (BadStatusLine)"


def test_a_server_that_never_answers_delays_nobody(message):
    with webhook(None) as hangs, webhook() as answers:
        webhooks = [parse_webhook(hangs.url), parse_webhook(answers.url)]
        lines = send(webhooks, message, deadline_s=2.0)
        assert not hangs.release.is_set()

    assert lines[0] == f"--ddp-notify: {HOST} was not notified: there was no answer within 2 s"


# ---- a session ----


@pytest.fixture
def slower(project):
    """A project with a level, whose launches take 20 % longer now."""
    project.store()
    project.answer = project.steps_of(0.012, 0.0144)
    return project


def everything(project, ended):
    """Return the output of a session and its files, as one text."""
    files = [path for path in Path(project.path).rglob("*") if path.is_file()]
    return (
        ended.stdout.str()
        + ended.stderr.str()
        + "".join(path.read_bytes().decode("utf-8", "replace") for path in files)
    )


def test_a_red_session_sends_one_message_and_shows_its_url_nowhere(slower, monkeypatch):
    with webhook() as server:
        url = f"slack+{server.url}"
        monkeypatch.setenv("DDP_PERF_COMMAND", f"./ci/nightly --ddp-notify {url}")
        ended = slower.run(
            *("-v", "--ddp-report=report", "--junitxml=report/junit.xml", HISTORY),
            *("--ddp-notify", url),
        )

    assert ended.ret == pytest.ExitCode.TESTS_FAILED
    ended.stdout.fnmatch_lines(["appended to the history *", f"notified {HOST}"])
    (body,) = server.bodies
    text = json.loads(body)["text"]
    assert text.startswith("*Training performance: ")
    assert " new*\n" in text
    assert "of tiny: step time +20.2 % (+" in text
    assert text.endswith(f"\nReport: {slower.path}/report/index.html")
    assert SECRET not in everything(slower, ended)


@pytest.mark.parametrize("strict", [(), ("--ddp-strict",)])
def test_a_webhook_that_fails_does_not_change_the_exit_code(project, strict):
    project.store()
    project.answer = project.steps_of(0.012, 0.0144)
    silent = project.run("--ddp-history=sqlite:///other.sqlite", *strict)
    with webhook(500) as server:
        ended = project.run(HISTORY, f"--ddp-notify={server.url}", *strict)

    assert ended.ret == silent.ret != pytest.ExitCode.OK
    ended.stdout.fnmatch_lines([f"--ddp-notify: {HOST} was not notified: HTTP 500"])
    assert SECRET not in everything(project, ended)


def test_a_green_session_sends_nothing(project):
    project.store()
    with webhook() as server:
        ended = project.run(HISTORY, f"--ddp-notify={server.url}")

    assert ended.ret == pytest.ExitCode.OK
    assert server.requests == []
    assert "notif" not in ended.stdout.str().replace("test_notify", "")


def test_an_interrupted_session_sends_nothing(slower):
    (slower.path / "tests" / "test_zz_interrupt.py").write_text(
        "import pytest\n\n@pytest.mark.cpu\ndef test_it():\n    raise KeyboardInterrupt\n"
    )
    with webhook() as server:
        ended = slower.run(HISTORY, f"--ddp-notify={server.url}", no_reraise_ctrlc=True)

    assert ended.ret == pytest.ExitCode.INTERRUPTED
    ended.stdout.fnmatch_lines(["appended to the history *"])
    assert server.requests == []


def test_a_history_that_cannot_be_read_is_one_line(slower, monkeypatch):
    def fail(self, outcomes):
        raise HistoryError("it is gone")

    monkeypatch.setattr(HistoryStore, "metrics_with", fail)
    with webhook() as server:
        ended = slower.run(HISTORY, f"--ddp-notify={server.url}")

    ended.stdout.fnmatch_lines(["--ddp-notify: nobody was notified: it is gone"])
    assert server.requests == []
