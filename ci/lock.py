"""Write `requirements.lock`: the pins of `requirements.txt` with the hashes of their files on PyPI.

With --check, state whether the lock has these pins, without the network. Only files that a Linux
machine can install have hashes: wheels for it, wheels of pure Python, and sources.
"""

from __future__ import annotations

import concurrent.futures
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
LOCK = REQUIREMENTS.with_suffix(".lock")
_HEAD = "# Written by ci/lock.py from requirements.txt: set-up installs no file without its hash.\n"
_PLATFORM = re.compile(r"any|(many|musl)linux.*_(x86_64|aarch64)")


def pins() -> list[str]:
    """Return the pins, without comments: ``name==version; marker``."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return [pin for line in lines if (pin := line.partition("#")[0].strip())]


def locked() -> list[str]:
    """Return the pins that the lock has."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return [line.removesuffix(" \\") for line in lines if line and line[0] not in " #"]


def lines_of(pin: str) -> str:
    """Return the lines of a pin in the lock. Raises OSError without a network."""
    requirement = Requirement(pin)
    version = Version(str(requirement.specifier).removeprefix("=="))
    request = urllib.request.Request(
        f"https://pypi.org/simple/{requirement.name}/",
        headers={"Accept": "application/vnd.pypi.simple.v1+json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 – https, as above
        files = json.load(answer)["files"]
    found = sorted(_hash(one) for one in files if _fits(one["filename"], version))
    if not found:
        sys.exit(f"{pin}: PyPI has no file of it for Linux: pin another version")
    return " \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in found)]) + "\n"


def _hash(file: dict[str, Any]) -> str:
    return str(file["hashes"]["sha256"])


def _fits(name: str, version: Version) -> bool:
    """Return whether a Linux machine can install the file, and whether it is of the release."""
    try:
        if not name.endswith(".whl"):
            return parse_sdist_filename(name)[1] == version
        _, of_file, _, tags = parse_wheel_filename(name)
    except (InvalidSdistFilename, InvalidWheelFilename):  # of another time: an .egg, an .exe
        return False
    return of_file == version and any(_PLATFORM.fullmatch(tag.platform) for tag in tags)


def main(check: bool) -> int:
    if not check:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            LOCK.write_text(_HEAD + "".join(pool.map(lines_of, pins())), encoding="utf-8")
    elif locked() != pins():
        print("ci/requirements.lock: out of date: run python ci/lock.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
