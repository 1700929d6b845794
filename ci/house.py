"""Print the figures of the house and check its three rules: ``python ci/house.py``.

Each docstring is a sentence (ci/docstrings.py), each public name of a module has one meaning in the
whole package, and no file of the package has more lines than `LONGEST`. Exit code 1 if a rule is
broken.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from pathlib import Path

import docstrings

ROOT = docstrings.ROOT
# Names that mean one thing wherever they are defined, with the reason.
ALLOWED = {
    "changes": "the command, and what makes two environments comparable",
    "build": "each workload builds itself",
    "main": "each process has its entry point",
    "pytest_configure": "hooks of the plugin that is always there, and of what it loads",
    "pytest_generate_tests": "hooks of the plugin that is always there, and of what it loads",
    "promote": "the command, and what it calls",
    "show": "commands of two groups, as users type them",
}
LONGEST = 600  # lines of a file: a longer one has two subjects
# Every package imports these, so they do not show which packages belong together.
GROUND = {"core", "errors", "render"}


def main() -> int:
    """Print what breaks a rule, then the table of figures."""
    paths = sorted(ROOT.glob("ddp_perf/**/*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    fragments = [line for path in paths for line in docstrings.faults(path)]
    doubled = {name: places for name, places in _public_names(trees).items() if len(places) > 1}
    ambiguous = {name: places for name, places in doubled.items() if name not in ALLOWED}
    unused = sorted(ALLOWED.keys() - doubled)
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    long = {path: lines for path, lines in lengths.items() if lines > LONGEST}
    print(*fragments, sep="\n", end="\n" if fragments else "")
    for name, places in sorted(ambiguous.items()):
        print(f"{name}: several public meanings: {', '.join(places)}")
    for name in unused:
        print(f"{name}: has one meaning; remove it from ALLOWED of ci/house.py")
    for path, lines in long.items():
        print(f"{path.relative_to(ROOT)}: {lines} lines, more than {LONGEST}: split it")
    _print_figures(trees, lengths, fragments=len(fragments), ambiguous=len(ambiguous))
    return int(bool(fragments or ambiguous or unused or long))


def _public_names(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Return the modules that define each public function or class at their top level."""
    places = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    return places


def _print_figures(
    trees: dict[Path, ast.Module], lengths: dict[Path, int], *, fragments: int, ambiguous: int
) -> None:
    modules = [path for path in trees if path.name != "__init__.py"]
    folder, widest = Counter(path.parent for path in modules).most_common(1)[0]
    figures = {
        "files": len(modules),
        "widest folder": f"{widest} ({folder.relative_to(ROOT)})",
        "package pairs, without the ground": len(_package_pairs(trees)),
        "docstrings that are fragments": fragments,
        "names with two meanings": ambiguous,
        "lines of the longest file": max(lengths.values()),
        "lines": sum(lengths.values()),
    }
    for name, value in figures.items():
        print(f"{name:<34} {value}")


def _package_pairs(trees: dict[Path, ast.Module]) -> set[tuple[str, str]]:
    """Return each pair of top-level packages above GROUND of which the first imports the second."""
    pairs = set()
    for path, tree in trees.items():
        importer = path.relative_to(ROOT / "ddp_perf").parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "ddp_perf" and len(parts) > 1 and parts[1] != importer:
                    pairs.add((importer, parts[1]))
    return {pair for pair in pairs if not GROUND & set(pair)}


if __name__ == "__main__":
    sys.exit(main())
