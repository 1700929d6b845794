"""Real git repositories, and every byte of one."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

_DATE = "2026-01-01T00:00:00Z"


class Repository:
    """A git repository with one commit, without the settings of the user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.first = self.commit({"model.py": "STEPS = 1\n"}, "first")

    def git(self, *arguments: str) -> str:
        """Run git here, and return what it writes."""
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false")
        environ = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            # Equal commits have equal names, also those of the next second.
            "GIT_AUTHOR_DATE": _DATE,
            "GIT_COMMITTER_DATE": _DATE,
        }
        command = ["git", *identity, "-C", str(self.path), *arguments]
        done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def commit(self, files: dict[str, str], message: str) -> str:
        """Commit these files, and return the full hash."""
        self.write(files)
        self.git("add", "--", *files)
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")


def every_byte(path: Path) -> dict[str, str]:
    """Return a hash of each file and link below a directory, also of .git, and each directory."""
    found = {}
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink():
            content = os.readlink(entry).encode()
        else:
            content = entry.read_bytes() if entry.is_file() else b""
        kind = f"{entry.lstat().st_mode:o}"
        found[str(entry.relative_to(path))] = kind + hashlib.sha256(content).hexdigest()
    return found
