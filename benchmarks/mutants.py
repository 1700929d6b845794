"""Break one line of the package at a time, and report which tests fail.

``python benchmarks/mutants.py`` runs every list in ``data/mutants``: ``correctness`` breaks
what trains (over gloo, about a minute each on two idle cores), ``verdicts`` what measures, gates
and stores, and ``rule`` the judging rule (seconds each). ``--list NAME …`` runs some of them,
``--only NAME …`` the mutants with such a part in their name. A mutant is one changed line of
``ddp_perf`` on a copy of the tree; it is killed when each of the patterns in ``kills`` matches a
test that fails. Exit code 1 where one is not, or where a list no longer fits the tree: then no
mutant is run, and all that must be mended are named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
LISTS = Path(__file__).parent / "data" / "mutants"
SLOW_TOO = ("-q", "-m", "not perf and not work", "--hypothesis-profile=all")
COPIED = ("ddp_perf", "tests", "bench_configs", "baselines", "conftest.py", "pytest.ini")


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault: ``line``, once in ``ddp_perf/<file>``, is replaced by ``becomes``."""

    name: str
    file: str
    line: str
    becomes: str
    tests: tuple[str, ...]  # files under tests/ that are run
    kills: tuple[str, ...]  # patterns of the tests that must fail, as file::name[parameters]


class MutantList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of ``data/mutants``."""

    options: tuple[str, ...] = ()  # of pytest
    others_may_fail: bool  # False: a test that no pattern names must pass
    mutants: tuple[Mutant, ...]


def main(lists: list[Path], names: list[str]) -> int:
    listed = {path.stem: msgspec.yaml.decode(path.read_bytes(), type=MutantList) for path in lists}
    chosen = {
        stem: [m for m in one.mutants if not names or any(name in m.name for name in names)]
        for stem, one in listed.items()
    }
    _refuse_misfits([mutant for mutants in chosen.values() for mutant in mutants])
    survived = 0
    for stem, mutants in chosen.items():
        print(f"\n## {stem}\n\n| mutant | killed by | other failures |\n|---|---|---|")
        for mutant in mutants:
            failed = _failed_tests(mutant, listed[stem].options)
            named = {test for test in failed if any(re.search(k, test) for k in mutant.kills)}
            missed = [k for k in mutant.kills if not any(re.search(k, test) for test in failed)]
            others = failed - named
            survived += bool(missed or (others and not listed[stem].others_may_fail))
            print(f"| {mutant.name} | {_counted(named, missed)} | {_counted(others, [])} |")
            sys.stdout.flush()
    return int(survived > 0)


def _refuse_misfits(mutants: list[Mutant]) -> None:
    """Name every mutant that no longer fits the tree before the first of them takes its time."""
    misfits = [
        f"{mutant.name}: {mutant.file} does not contain its line exactly once: {mutant.line}"
        for mutant in mutants
        if not (path := _package_file(ROOT, mutant)).exists()
        or path.read_text(encoding="utf-8").count(mutant.line) != 1
    ]
    misfits += [
        f"{mutant.name}: there is no tests/{name}"
        for mutant in mutants
        for name in mutant.tests
        if not (ROOT / "tests" / name).exists()
    ]
    if misfits:
        raise SystemExit("\n".join(misfits))


def _package_file(tree: Path, mutant: Mutant) -> Path:
    return tree / "ddp_perf" / mutant.file


def _failed_tests(mutant: Mutant, options: tuple[str, ...]) -> set[str]:
    """Return ``test_file::test_name[parameters]`` of each test that fails on a copy with the
    mutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        path = _package_file(copy, mutant)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.line, mutant.becomes), encoding="utf-8")
        report = copy / "report.xml"
        files = [f"tests/{name}" for name in mutant.tests]
        subprocess.run(
            [sys.executable, "-m", "pytest", *files, *SLOW_TOO, *options, f"--junitxml={report}"],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return {
            f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            for case in ElementTree.parse(report).iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        }


def _counted(tests: set[str], missed: list[str]) -> str:
    """Return the names without their parameters, and how many of each failed."""
    names = [test.partition("[")[0].rpartition("::")[2] for test in tests]
    counted = [f"`{name}` ({names.count(name)})" for name in sorted(set(names))]
    return ", ".join([*counted, *(f"**not** `{pattern}`" for pattern in missed)]) or "–"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    stems = sorted(path.stem for path in LISTS.glob("*.yaml"))
    parser.add_argument("--list", nargs="+", default=stems, choices=stems, metavar="NAME")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names")
    arguments = parser.parse_args()
    sys.exit(main([LISTS / f"{stem}.yaml" for stem in arguments.list], arguments.only))
