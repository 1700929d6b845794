"""Secrets in every place where a session meets one, and the search for them in what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.projects import REPOSITORY, TINY

CANARY = "canary"
_SESSION = ("-m", "pytest", "-m", "perf and cpu", "--ddp-launches=1", "--ddp-world-sizes=1")
_PROGRAM = "from ddp_perf.cli.app import app; app()"
# By the place of the secret. Each is another one, so that one that is found names its place.
ENVIRONMENT = {
    "HF_TOKEN": f"{CANARY}-token",
    "PGPASSWORD": f"{CANARY}-database",
    "TORCHINDUCTOR_TOKEN": f"{CANARY}-torch",
    "TORCHINDUCTOR_CACHE_URL": f"redis://me:{CANARY}-cache@host",
    "WEBHOOK": f"https://127.0.0.1:9/{CANARY}-variable",
    "BUILD_URL": f"https://me:{CANARY}-job@ci/job?key={CANARY}-query",
    "CI_PROJECT_URL": f"https://me:{CANARY}-project@forge/a",
    "GITHUB_SERVER_URL": f"https://me:{CANARY}-server@forge",
}
REMOTE = f"https://me:{CANARY}-remote@forge/a.git"
NOTIFIED = ("--ddp-notify=env:WEBHOOK", f"--ddp-notify=https://127.0.0.1:9/{CANARY}-webhook")
# Options that are refused: the secret, and what the message names instead.
REFUSED = {
    f"--ddp-history=postgresql://me:{CANARY}-url@127.0.0.1:9/a?sslpassword={CANARY}": "me:***@",
    f"--ddp-history=sqlite:///h?password={CANARY}-file": "password=***",
    f"--ddp-history=mysql://me:{CANARY}-other@host/db": "me:***@",
    f"--ddp-notify=http//{CANARY}-mistyped": "--ddp-notify: it is not the URL of a webhook",
    f"--ddp-env=HF_TOKEN={CANARY}-assigned": "env.HF_TOKEN: it looks like a secret",
    f"--ddp-env=HF-TOKEN={CANARY}-misspelt": "'HF-TOKEN' is not of the form NAME=VALUE",
    f"--ddp-env=STORE=redis://me:{CANARY}-store@host": "env.STORE: it looks like a secret",
}


def make_project(path: Path) -> None:
    """Make a project whose remote has a token."""
    (path / "suite.yaml").write_text(TINY)
    (path / "pytest.ini").write_text("[pytest]\naddopts = -p ddp_perf.plugin -p no:cacheprovider\n")
    (path / "test_perf.py").write_bytes((REPOSITORY / "tests/perf/test_perf.py").read_bytes())
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init"], ["add", "."], [*author, "commit", "-m", "a"]):
        subprocess.run(["git", *command], cwd=path, check=True, capture_output=True)
    subprocess.run(["git", "remote", "add", "origin", REMOTE], cwd=path, check=True)


def session(path: Path, *options: str) -> str:
    """Run a session of the project, and return all that it prints."""
    return _run([*_SESSION, "--ddp-config=suite.yaml", "--ddp-budget=0", *options], path)


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
    """Yield the files of the project that contain a secret, but those of git itself."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    for file in files:
        name = file.relative_to(path)
        if ".git" not in name.parts and CANARY.encode() in file.read_bytes():
            yield str(name)
