"""Servers of this machine: the conditions that are refused, and their environment."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.interpreter import server_environment
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_case


def runtime(environ, **case):
    launcher = ServerLauncher(ThisMachine(interpreter="/no/such/python", environ=environ))
    with contextlib.closing(launcher):
        launcher.runtime(make_case(**case))


@pytest.mark.parametrize(
    ("environ", "env"),
    [({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {}), ({}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})],
    ids=["of the user", "of the case"],
)
def test_another_device_order_than_that_of_nvml_is_refused(environ, env):
    with pytest.raises(LaunchError, match=r"CUDA_DEVICE_ORDER=FASTEST_FIRST: .* unset it"):
        runtime(environ, tier="gpu", env=env)


@pytest.mark.parametrize(
    ("environ", "tier"),
    [
        ({}, "gpu"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "gpu"),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "cpu"),
    ],
)
def test_the_device_order_does_not_matter_otherwise(environ, tier):
    with pytest.raises(LaunchError, match=r"/no/such/python.* cannot be started: No such file"):
        runtime(environ, tier=tier)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kill -KILL $$", r"SIGKILL; out of memory\? see the kernel's log, no output"),
        ("echo half a line; kill -TERM $$", "SIGTERM: half a line"),
        ("echo no torch here >&2; exit 1", "exit code 1: no torch here"),
        ("exit 3", "exit code 3, no output"),
    ],
    ids=["killed", "killed with output", "refuses", "silent"],
)
def test_a_server_that_does_not_start_has_its_reason(tmp_path, script, why):
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\n{script}\n")
    interpreter.chmod(0o755)
    launcher = ServerLauncher(ThisMachine(interpreter=str(interpreter)))

    with contextlib.closing(launcher), pytest.raises(LaunchError, match=f"did not start: {why}$"):
        launcher.runtime(make_case())


def test_the_settings_of_a_server_override_the_users_environment():
    theirs = {
        "PYTORCH_NVML_BASED_CUDA_CHECK": "0",
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
        "OPENBLAS_NUM_THREADS": "8",
        "CUDA_VISIBLE_DEVICES": "1",
    }

    environ = server_environment(theirs)

    assert environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environ["OPENBLAS_NUM_THREADS"] == "1"
    assert environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_strings_have_the_same_hashes_in_every_session_unless_the_user_seeds_them():
    assert server_environment({})["PYTHONHASHSEED"] == "0"
    assert server_environment({"PYTHONHASHSEED": "7"})["PYTHONHASHSEED"] == "7"


_OLDER_SERVER = """
import base64, zlib
hello = base64.b64encode(zlib.compress(b'{"python": "3.11.7", "torch": "2.8.0"}')).decode()
print("ddp-perf-message", hello)
"""


def test_a_server_of_a_package_without_a_version_of_the_protocol_is_refused(tmp_path):
    launch = tmp_path / "ddp_perf" / "launch"
    launch.mkdir(parents=True)
    for directory in (launch, launch.parent):
        (directory / "__init__.py").touch()
    (launch / "server.py").write_text(_OLDER_SERVER, encoding="utf-8")
    launcher = ServerLauncher(ThisMachine(package=tmp_path))

    with contextlib.closing(launcher), pytest.raises(LaunchError) as caught:
        launcher.runtime()

    first, remedy = str(caught.value).splitlines()
    assert f"the ddp_perf of the ranks ({tmp_path}) has none" in first
    assert remedy.startswith("remedy: install this version of ddp_perf for the ranks")


@pytest.fixture
def package(tmp_path):
    """``package(text)``: a package whose server has this text."""

    def make(text):
        launch = tmp_path / "ddp_perf" / "launch"
        launch.mkdir(parents=True)
        for directory in (launch, launch.parent):
            (directory / "__init__.py").touch()
        (launch / "server.py").write_text(text)
        return ServerLauncher(ThisMachine(package=tmp_path))

    return make


def test_a_server_of_a_version_with_other_arguments_is_named(package):
    launcher = package("import sys\n_, *more = map(int, sys.argv[1:])\n")

    with contextlib.closing(launcher), pytest.raises(LaunchError) as caught:
        launcher.runtime()

    first, remedy = str(caught.value).splitlines()
    assert "did not start: exit code 1: " in first
    assert remedy.startswith("remedy: install this version of ddp_perf for the ranks")


@pytest.mark.parametrize(
    "text",
    ["def main():\n    import no_torch\nmain()\n", "import json\njson.loads('')\n"],
    ids=["in its function", "in what it imports"],
)
def test_another_error_of_a_server_is_not_taken_for_its_version(package, text):
    """Torch may be broken there."""
    launcher = package(text)

    with contextlib.closing(launcher), pytest.raises(LaunchError) as caught:
        launcher.runtime()

    assert "Error" in str(caught.value)
    assert "remedy" not in str(caught.value)
