"""The matrix of ``ci/versions``: which pairs it tests, how, and the page that it writes."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "ci" / "versions.json", ROOT / "docs" / "versions.md"
SCRATCH = ROOT / "artifacts" / "versions"
OLDEST, PYTHONS = 6, range(10, 15)  # torch 2.6, Python 3.10 to 3.14
# The tests that touch torch, without those that only repeat what one of these does.
TESTS = (
    "tests/unit/test_torch_compat.py",
    *(
        f"tests/unit/{room}"
        for room in ("launch", "strategies", "telemetry", "worker", "workloads")
    ),
    "tests/unit/baselines/test_shipped_structures.py",
    *(f"tests/correctness/test_{name}.py" for name in ("ddp", "fsdp", "hooks", "precision")),
    *(f"tests/system/test_{name}.py" for name in ("count", "launch", "profile", "script")),
)
HEAD = """\
# Tested versions

`ci/versions` writes this page: tests with PyPI's builds, on CPUs.

| torch | Python | passed | failed | cannot run there |
|---|---|---|---|---|
"""


class Pair(NamedTuple):
    """A minor version of torch 2, and one of Python 3."""

    torch: int
    python: int

    @classmethod
    def parse(cls, name: str) -> Pair:
        torch, python = name.split("-")
        return cls(int(torch.partition(".")[2]), int(python.partition(".")[2]))

    def __str__(self) -> str:
        return f"2.{self.torch}-3.{self.python}"


class Run(NamedTuple):
    """The result of the tests of a pair."""

    torch: str
    cuda: str  # that it is built for; "–": for none
    python: str
    passed: int = 0
    failed: Sequence[str] = ()  # tests, or the command that kept them from running
    skipped: Sequence[str] = ()  # each reason once

    @property
    def green(self) -> bool:
        return self.passed > 0 and not self.failed


def release(requirement: str, python: int) -> str | None:
    """Return the newest torch on the index with a wheel for that Python, or None."""
    resolve = ["uv", "pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate", "--quiet"]
    done = subprocess.run(
        [*resolve, f"--python-version=3.{python}", "--only-binary=torch"],
        input=requirement,
        capture_output=True,
        text=True,
    )
    found = re.search(r"^torch==(\S+)", done.stdout, re.MULTILINE)
    if found is None and "No solution found" not in done.stderr:
        sys.exit(f"ci/versions: uv finds no {requirement}: {done.stderr.strip()}")
    return found and found[1]


def available(torch: Sequence[int], pythons: Sequence[int]) -> dict[Pair, str]:
    """Return the newest patch of each pair with a wheel, if uv can have that Python."""
    found = {}
    for python in pythons:
        trial = ["uv", "venv", "--quiet", "--clear", f"--python=3.{python}", str(SCRATCH / "trial")]
        if subprocess.run(trial, stderr=subprocess.DEVNULL).returncode:
            print(f"ci/versions: uv can have no Python 3.{python}; it is left out", file=sys.stderr)
            continue
        for minor in torch:
            if version := release(f"torch==2.{minor}.*", python):
                found[Pair(minor, python)] = version
    return found


def few(pairs: Iterable[Pair]) -> set[Pair]:
    """Return each Python with its oldest and newest torch, and the other minors once each."""
    ordered = sorted(pairs)
    of_python = [[pair for pair in ordered if pair.python == one] for _, one in ordered]
    chosen = {pair for having in of_python for pair in (having[0], having[-1])}
    for minor in {pair.torch for pair in ordered} - {pair.torch for pair in chosen}:
        having = [pair for pair in ordered if pair.torch == minor]
        chosen.add(having[minor % len(having)])  # not always the same Python
    return chosen


def test(python: str, version: str, scratch: Path) -> Run:
    """Run the tests in a new environment in ``scratch``, which stays if one fails."""
    shutil.rmtree(scratch, ignore_errors=True)
    environment = scratch / "environment"
    interpreter, junit = environment / "bin" / "python", scratch / "junit.xml"
    install = ["uv", "pip", "install", "--quiet", f"--python={interpreter}"]
    try:
        for command in (
            ["uv", "venv", "--quiet", f"--python={python}", str(environment)],
            [*install, "--no-deps", f"--requirement={ROOT / 'ci' / 'requirements.lock'}"],
            [*install, f"torch=={version}"],
            [*install, "--no-deps", "--no-build-isolation", f"--editable={ROOT}"],
        ):
            subprocess.run(command, check=True)
        code = "import sys, torch; print(torch.version.cuda or '–', sys.version.split()[0])"
        cuda, full = subprocess.check_output([interpreter, "-c", code], text=True).split()
    except subprocess.CalledProcessError as error:
        return Run(version, "–", python, failed=[str(error)])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PATH"] = f"{interpreter.parent}{os.pathsep}{clean['PATH']}"
    with (scratch / "output.txt").open("wb") as output:
        command = [str(interpreter), "-m", "pytest", "-n2", "--dist=worksteal"]
        command += [f"--junitxml={junit}", *TESTS]
        subprocess.run(command, env=clean, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    done = Run(version, cuda, full, *read(junit))
    if done.green:
        shutil.rmtree(scratch)
    return done


def read(junit: Path) -> tuple[int, list[str], list[str]]:
    """Return how many tests passed, which failed, and why others were skipped."""
    if not junit.exists():
        return 0, ["pytest itself"], []
    passed, failed, skipped = 0, [], set()
    for one in ElementTree.parse(junit).iter("testcase"):
        ends = {child.tag: child.get("message") or "" for child in one}
        if "failure" in ends or "error" in ends:
            failed.append(f"{one.get('classname')}::{one.get('name')}")
        elif "skipped" in ends:
            skipped.add(ends["skipped"])
        else:
            passed += 1
    return passed, failed, sorted(skipped)


def page(runs: Mapping[str, Run]) -> str:
    """Return the page. What every run skipped, it skipped because of the machine."""
    everywhere = set.intersection(*(set(one.skipped) for one in runs.values()))
    lacks = sorted({reason for one in runs.values() for reason in one.skipped} - everywhere)
    rows = []
    for one in runs.values():
        failed = ", ".join(f"`{name}`" for name in one.failed) or "–"
        own = ",".join(str(lacks.index(r) + 1) for r in one.skipped if r in lacks) or "–"
        version = one.torch.partition("+")[0]
        rows.append(f"| {version} | {one.python} | {one.passed} | {failed} | {own} |\n")
    notes = [f"{number}. {reason}\n" for number, reason in enumerate(lacks, 1)]
    return HEAD + "".join([*rows, "\nWhat cannot run there:\n\n" if notes else "", *notes])


def read_record() -> dict[str, Run]:
    if not RECORD.exists():
        return {}
    stored = json.loads(RECORD.read_text(encoding="utf-8"))
    return {name: Run(**one) for name, one in stored.items()}


def write_record(runs: Mapping[str, Run]) -> None:
    ordered = {name: runs[name] for name in sorted(runs, key=Pair.parse, reverse=True)}
    stored = {name: one._asdict() for name, one in ordered.items()}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    RECORD.write_text(f"{text}\n", encoding="utf-8")
    PAGE.write_text(page(ordered), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="ci/versions")
    parser.add_argument("--torch", help="2.6,2.7 (default: from 2.6 to the newest)")
    parser.add_argument("--python", help="3.10,3.11 (default: 3.10 to 3.14)")
    parser.add_argument("--all", action="store_true", help="every pair that has wheels")
    parser.add_argument("--newest", action="store_true", help="the newest, released or not")
    parser.add_argument("--check", action="store_true", help="whether the page is the record's")
    options = parser.parse_args(arguments)
    if options.check:
        stale = PAGE.read_text(encoding="utf-8") != page(read_record())
        if stale:
            print("docs/versions.md is out of date: run ci/versions")
        return int(stale)
    if shutil.which("uv") is None:
        print("ci/versions: there is no uv: pip install uv", file=sys.stderr)
        return 2
    pythons = minors_of(options.python) or PYTHONS
    newest = release("torch>=2.6.dev0" if options.newest else "torch", pythons[-1])
    if newest is None:
        print(f"ci/versions: no torch has a wheel for Python 3.{pythons[-1]}", file=sys.stderr)
        return 2
    if options.newest:
        chosen = {Pair(int(newest.split(".")[1]), pythons[-1]): newest}
    else:
        torch = minors_of(options.torch) or range(OLDEST, int(newest.split(".")[1]) + 1)
        found = available(torch, pythons)
        chosen = {one: found[one] for one in sorted(found if options.all else few(found))}
    done = {}
    for pair, version in chosen.items():
        started = time.monotonic()
        done[str(pair)] = one = test(f"3.{pair.python}", version, SCRATCH / str(pair))
        print(pair, f"{(time.monotonic() - started) / 60:.0f} min", one, flush=True)
        if not options.newest:
            write_record({**read_record(), str(pair): one})
    return int(not done or not all(one.green for one in done.values()))


def minors_of(listed: str | None) -> list[int]:
    return sorted(int(one.partition(".")[2]) for one in listed.split(",")) if listed else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
