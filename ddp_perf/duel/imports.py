"""The files of a project that a module or script may import, found without running it."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.script import BY_OPTIMIZER, ScriptRun

_DYNAMIC = {"import_module", "__import__"}
_RUNNING = {"exec", "run_path", "run_module", "spec_from_file_location"}
_PACKAGE = "ddp_perf"  # ranks run its code, whatever they train
_LIBRARIES = tuple(Path(sysconfig.get_paths()[n]) for n in ("stdlib", "purelib", "platlib"))


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The files under a directory that a module or a script may import."""

    files: frozenset[Path]  # also where a module would be, but is not: one may be added or removed
    unknown: str | None = None  # the first place where the source leaves open what is imported
    external: frozenset[str] = frozenset()  # top-level modules that are imported from elsewhere


def imported_files(module: str, import_paths: Sequence[str], repository: Path) -> Imported:
    """Return the files in ``repository`` that importing ``module`` may read.

    Each import counts, also one in a function or after ``try``. ``import_paths`` is where ranks
    search first; every one of them is searched, so that a file that hides another one counts.
    """
    finder = _Finder([Path(path).resolve() for path in import_paths], repository.resolve())
    finder.need(module)
    if not finder.parsed:
        finder.unknown = finder.unknown or f"{module} is not a source file of the project"
    return finder.found()


def files_of_script(run: ScriptRun, import_paths: Sequence[str], repository: Path) -> Imported:
    """Return the files in ``repository`` that a run of the script may read: itself, and imports.

    As in a rank, a file is searched in ``import_paths``, and what it imports in its own folder
    first. See ``imported_files``.
    """
    finder = _Finder([Path(path).resolve() for path in import_paths], repository.resolve())
    if run.is_module:
        finder.need(run.script)
        finder.need(f"{run.script}.__main__")
    else:
        finder.run([Path(path) / run.script for path in import_paths])
    if run.steps_by != BY_OPTIMIZER:
        finder.need(run.steps_by.partition(":")[0])
    if not finder.parsed:
        finder.unknown = finder.unknown or f"{run.script} is not a source file of the project"
    return finder.found()


class _Finder:
    def __init__(self, import_paths: Sequence[Path], repository: Path) -> None:
        self._repository = repository
        self._roots = [path for path in import_paths if self._is_own(path)]
        self._needed: set[str] = set()
        self.parsed: set[Path] = set()
        self.files: set[Path] = set()
        self.unknown: str | None = None
        self._external: set[str] = set()

    def found(self) -> Imported:
        return Imported(
            files=frozenset(self.files),
            unknown=self.unknown,
            external=frozenset(self._external),
        )

    def run(self, places: Sequence[Path]) -> None:
        """Follow a script, which is the first of these files that exists."""
        found = next((place.resolve() for place in places if place.is_file()), None)
        if found is None or not self._is_own(found):
            return
        self.files.add(found)
        self._roots.insert(0, found.parent)
        self._parse(found)

    def need(self, module: str) -> None:
        """Follow an absolute import of ``module``, with the packages that contain it."""
        if module in self._needed or module.split(".")[0] == _PACKAGE:
            return
        self._needed.add(module)
        names = module.split(".")
        found = [self._follow(root, names) for root in self._roots]
        if any(found):
            return
        if self._add_installed(names[0]):
            self._follow(self._roots[-1], names)
        else:
            self._external.add(names[0])

    def _follow(self, place: Path, names: Sequence[str]) -> bool:
        """Note each package and module on the way, and return whether there is any."""
        found = False
        for name in names:
            place = place / name
            found = self._try(place) or found
        return found

    def _add_installed(self, top: str) -> bool:
        """Search also where a package of the repository is installed from (``pip install -e``)."""
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):  # a broken module, or `__main__`
            return False
        if spec is None:
            return False
        places = [*(spec.submodule_search_locations or [spec.origin or ""])]
        root = Path(places[0]).resolve().parent
        if not self._is_own(root) or root in self._roots:
            return False
        self._roots.append(root)
        return True

    def _is_own(self, path: Path) -> bool:
        """Return whether the directory is the project's, and not one of installed packages."""
        own = path.is_relative_to(self._repository) and "site-packages" not in path.parts
        return own and not any(path.is_relative_to(library) for library in _LIBRARIES)

    def _try(self, place: Path) -> bool:
        """Note the files of a module or package at this place, and follow those that exist."""
        if not place.is_relative_to(self._repository):
            return False
        candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
        self.files |= {*candidates}
        found = [file for file in candidates if file.is_file()]
        for file in found:
            self._parse(file)
        return bool(found) or place.is_dir()

    def _parse(self, file: Path) -> None:
        if file in self.parsed:
            return
        self.parsed.add(file)
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError):
            self._leave_open(file, None, "cannot be read")
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.need(alias.name)
            elif isinstance(node, ast.ImportFrom):
                self._follow_from(file, node)
            elif isinstance(node, ast.Call):
                self._follow_call(file, node)
            elif isinstance(node, ast.Attribute) and _is_search_path(node):
                self._leave_open(file, node, "uses sys.path")

    def _follow_from(self, file: Path, node: ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names]
        if node.level == 0:
            module = node.module or ""
            self.need(module)
            for name in names:
                self._need_star(module) if name == "*" else self.need(f"{module}.{name}")
            return
        package = file.parents[node.level - 1]
        within = node.module.split(".") if node.module else []
        self._follow(package, within)
        for name in names:
            if name == "*":
                self._take_all(package.joinpath(*within))
            else:
                self._follow(package, [*within, name])

    def _need_star(self, module: str) -> None:
        for root in self._roots:
            self._take_all(root.joinpath(*module.split(".")))

    def _take_all(self, package: Path) -> None:
        """Follow each module of a package: its ``__all__`` may name any of them."""
        for file in sorted(package.glob("*.py")):
            self._try(file.with_suffix(""))

    def _follow_call(self, file: Path, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in _RUNNING:
            self._leave_open(file, node, f"calls {name}")
        elif name in _DYNAMIC:
            constant = node.args[0] if len(node.args) == 1 and not node.keywords else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                self.need(constant.value)
            else:
                self._leave_open(file, node, "imports a module whose name is computed")

    def _leave_open(self, file: Path, node: ast.expr | None, what: str) -> None:
        if self.unknown is None:
            place = file.relative_to(self._repository).as_posix()
            line = "" if node is None else f":{node.lineno}"
            self.unknown = f"{place}{line} {what}"


def _is_search_path(node: ast.Attribute) -> bool:
    return node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys"
