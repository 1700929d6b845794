"""The version of the protocol between a driver and the servers of its ranks."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from ddp_perf.core.work import CountRequest
from ddp_perf.errors import LaunchError
from ddp_perf.launch import protocol
from ddp_perf.launch.interpreter import package_directory
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.protocol import (
    PROTOCOL,
    Answer,
    DescribeRequest,
    EndRequest,
    Hello,
    NodeLaunch,
    own_hello,
    read_hello,
)

MESSAGES = (*(NodeLaunch, CountRequest, DescribeRequest, EndRequest, Answer, Hello),)
DIGEST = "d2d888e45b3b3799"
RUNTIME = Runtime(python="3.11.7", torch="2.8.0", cuda=None, cudnn=None, nccl=None, blas="mkl")


def without_texts(schema: Any) -> Any:
    """A docstring is no part of a message."""
    if isinstance(schema, dict):
        return {key: without_texts(value) for key, value in schema.items() if key != "description"}
    return (
        [without_texts(value) for value in schema] if isinstance(schema, list | tuple) else schema
    )


def test_messages_are_those_of_this_version():
    schemas = msgspec.json.schema_components(MESSAGES)
    text = json.dumps(without_texts(schemas), sort_keys=True)

    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST, (
        "A message between a driver and its servers has changed. Raise PROTOCOL of"
        " ddp_perf/launch/protocol.py by 1, unless you did nothing but add fields with defaults;"
        " then write the new digest into DIGEST of this test."
    )


def test_each_end_accepts_its_own_version():
    assert read_hello(own_hello(RUNTIME), "/there").runtime == RUNTIME


@pytest.mark.parametrize(
    ("theirs", "version", "place", "remedy"),
    [
        (RUNTIME, "none", "/there", "install this version of ddp_perf for the ranks"),
        (
            Hello(protocol=PROTOCOL - 1, package="/older", runtime=RUNTIME),
            f"version {PROTOCOL - 1}",
            "/older",
            "install this version of ddp_perf for the ranks",
        ),
        (
            {"protocol": PROTOCOL + 1, "package": "/newer", "runtime": "in another form"},
            f"version {PROTOCOL + 1}",
            "/newer",
            "run the newer ddp_perf",
        ),
    ],
    ids=["before there was a version", "an older package", "a newer package"],
)
def test_another_version_is_an_error_that_names_both(theirs, version, place, remedy):
    with pytest.raises(LaunchError) as caught:
        read_hello(msgspec.json.encode(theirs), "/there")

    first, second = str(caught.value).splitlines()
    assert f"({package_directory()}) starts ranks by version {PROTOCOL} of" in first
    assert f"the ddp_perf of the ranks ({place}) has {version}" in first
    assert second.startswith(f"remedy: {remedy}")


def test_an_older_driver_names_a_newer_server(monkeypatch):
    newer = own_hello(RUNTIME)
    monkeypatch.setattr(protocol, "PROTOCOL", PROTOCOL - 1)

    with pytest.raises(LaunchError, match=f"version {PROTOCOL - 1} of .* has version {PROTOCOL}\n"):
        read_hello(newer, "/there")


@pytest.mark.parametrize(
    "said", [b"Welcome!", b"\xff\xfe", b'{"protocol": "\\ud800"}', b"[" * 10**5]
)
def test_what_is_no_message_is_refused(said):
    with pytest.raises(LaunchError, match=r"server \(/there\) is none of ddp_perf: "):
        read_hello(said, "/there")
