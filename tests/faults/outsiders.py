"""Secrets in every place where a session or a command meets one, and the search for them after."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tests.projects import REPOSITORY, TINY

CANARY = "canary"
_SESSION = ("-m", "pytest", "-m", "perf and cpu")
_PROGRAM = "from ddp_perf.cli.app import app; app()"
# By the place of the secret. Each is another one, so that one that is found names its place.
ENVIRONMENT = {
    "HF_TOKEN": f"{CANARY}-token",
    "PGPASSWORD": f"{CANARY}-database",
    "TORCHINDUCTOR_TOKEN": f"{CANARY}-torch",
    "TORCHINDUCTOR_CACHE_URL": f"redis://me:{CANARY}-cache@host/?token={CANARY}-parameter",
    "WEBHOOK": f"https://127.0.0.1:9/{CANARY}-variable",
    "BUILD_URL": f"https://me:{CANARY}-job@ci/job?key={CANARY}-query",
    "CI_PROJECT_URL": f"https://me:{CANARY}-project@forge/a",
    "GITHUB_SERVER_URL": f"https://me:{CANARY}-server@forge",
}
REMOTE = f"https://me:{CANARY}-remote@forge/a.git"
MEASURED = (
    "--ddp-launches=1",
    "--ddp-world-sizes=1",
    "--ddp-budget=0",
    "--ddp-report=report",
    "--ddp-notify=env:WEBHOOK",
    f"--ddp-notify=https://127.0.0.1:9/{CANARY}-webhook",
)
_SCRIPT = """
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
_OF_SCRIPT = TINY.replace(TINY[TINY.index("workload") : TINY.index("world")], "script: train.py\n")
# Wide and long: it is decided by its first pairs on a machine as slow as any.
DUEL = ("duel", "HEAD", "--tolerance=0.9", "--budget=10m")
_FILES = {
    "bench_configs/tiny.yaml": TINY,
    "script.yaml": _OF_SCRIPT.replace("tiny", "scripts") + "args: ['{batch_size}']\n",
    "args.yaml": _OF_SCRIPT + f"args: ['{{batch_size}}', --api-key, {CANARY}]\n",
    "env.yaml": TINY + f"env: {{MY_TOKEN: {CANARY}}}\n",
    "train.py": _SCRIPT,
    "pytest.ini": "[pytest]\naddopts = -p ddp_perf.plugin -p no:cacheprovider\n",
}


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A secret where none may be: the arguments of a program, and what its error says."""

    where: str
    program: Literal["pytest", "ddp-perf"]
    arguments: tuple[str, ...]
    said: str


def _option(argument: str, said: str) -> Refused:
    where = argument.partition("=")[0]
    return Refused(where=where, program="pytest", arguments=(argument,), said=said)


def _suite(where: str, file: str, said: str) -> Refused:
    return Refused(where=where, program="pytest", arguments=(f"--ddp-config={file}",), said=said)


def _command(*arguments: str, said: str) -> Refused:
    where = f"ddp-perf {arguments[0]}"
    return Refused(where=where, program="ddp-perf", arguments=arguments, said=said)


_URL = f"postgresql://me:{CANARY}@127.0.0.1:9/a"
_SECRET = "it looks like a secret"
REFUSED = (
    _option(f"--ddp-history={_URL}?sslpassword={CANARY}", "me:***@"),
    _option(f"--ddp-history=sqlite:///h?password={CANARY}", "password=***"),
    _option(f"--ddp-history=mysql://me:{CANARY}@host/db", "me:***@"),
    _option(f"--ddp-notify=http//{CANARY}", "--ddp-notify: it is not the URL of a webhook"),
    _option(f"--ddp-env=HF_TOKEN={CANARY}", f"env.HF_TOKEN: {_SECRET}"),
    _option(f"--ddp-env=HF-TOKEN={CANARY}", "'HF-TOKEN' is not of the form NAME=VALUE"),
    _option(f"--ddp-env=STORE=redis://me:{CANARY}@host", f"env.STORE: {_SECRET}"),
    _option(f"--ddp-against=env:HF_TOKEN={CANARY}", f"env:HF_TOKEN: {_SECRET}"),
    _suite("args of a script", "args.yaml", "args: --api-key *** looks like a secret"),
    _suite("env of a suite", "env.yaml", f"env.MY_TOKEN: {_SECRET}"),
    _command("try", "train.py", "--", f"--hub-token={CANARY}", said="--hub-token=*** looks like"),
    _command("sweep", "mlp-ddp-fp32-ws2-b16", f"MY_KEY={CANARY},b", said=f"env.MY_KEY: {_SECRET}"),
    _command("duel", f"env:HF_TOKEN={CANARY}", said=f"env:HF_TOKEN: {_SECRET}"),
    _command("duel", f"env:A=1,HF-TOKEN={CANARY}", said=f"env:A: {_SECRET}"),
    _command("duel", f"env:HF-TOKEN={CANARY}", said="env:HF-TOKEN: write env:NAME=VALUE"),
    _command("duel", f"HF_TOKEN={CANARY}", said="for a variable write env:HF_TOKEN=VALUE"),
    _command("duel", f"command: docker run -e KEY={CANARY} {{command}}", said="KEY=*** looks"),
    _command("duel", f"command: docker run --password {CANARY}", said="--password *** looks"),
    _command("site", f"--history={_URL}", said="me:***@"),
    _command("history", f"--history={_URL}", said="me:***@"),
    _command("export", "csv", "--out=a.csv", f"--history={_URL}", said="me:***@"),
)


def make_project(path: Path) -> None:
    """Make a project whose remote has a token."""
    (path / "bench_configs").mkdir()
    for name, text in _FILES.items():
        (path / name).write_text(text)
    (path / "test_perf.py").write_bytes((REPOSITORY / "tests/perf/test_perf.py").read_bytes())
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init"], ["add", "."], [*author, "commit", "-m", "a"]):
        subprocess.run(["git", *command], cwd=path, check=True, capture_output=True)
    subprocess.run(["git", "remote", "add", "origin", REMOTE], cwd=path, check=True)


def session(path: Path, *options: str) -> str:
    """Run a session of the project, and return all that it prints."""
    return _run([*_SESSION, *options], path)


def command(path: Path, *arguments: str) -> str:
    """Run a command of ddp-perf in the project, and return all that it prints."""
    return _run(["-c", _PROGRAM, *arguments], path)


def _run(arguments: Sequence[str], path: Path) -> str:
    inherited = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=path,
        env={**inherited, **ENVIRONMENT, "CI_PROJECT_DIR": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def found_in(path: Path) -> Iterator[str]:
    """Yield the files of the project that contain a secret, but those that it had."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    for file in files:
        name = file.relative_to(path)
        known = ".git" in name.parts or str(name) in _FILES
        if not known and CANARY.encode() in file.read_bytes():
            yield str(name)
