"""The cases of which changed files can change a step, found without running anything."""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from ddp_perf.config.loading import find_suites, suite_file
from ddp_perf.config.yaml_file import read_yaml
from ddp_perf.core.case import Case
from ddp_perf.core.subject import BY_OPTIMIZER, PACKAGES, ScriptRun
from ddp_perf.errors import ConfigError
from ddp_perf.launch.interpreter import RANK_PACKAGES
from ddp_perf.system.git import repository_root
from ddp_perf.system.packages import versions_behind

# The files of a project that a module or script may import, found without running it.


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
    finder = _Finder(import_paths, repository)
    finder.need(module)
    return finder.found(module)


def files_of_script(run: ScriptRun, import_paths: Sequence[str], repository: Path) -> Imported:
    """Return the files in ``repository`` that a run of the script may read: itself, and imports.

    As in a rank, a file is searched in ``import_paths``, and what it imports in its own folder
    first. See ``imported_files``.
    """
    finder = _Finder(import_paths, repository)
    if run.is_module:
        finder.need(run.script)
        finder.need(f"{run.script}.__main__")
    else:
        finder.run([Path(path) / run.script for path in import_paths])
    if run.steps_by != BY_OPTIMIZER:
        finder.need(run.steps_by.partition(":")[0])
    return finder.found(run.script)


class _Finder:
    def __init__(self, import_paths: Sequence[str], repository: Path) -> None:
        self._repository = repository.resolve()
        paths = [Path(path).resolve() for path in import_paths]
        self._roots = [path for path in paths if self._is_own(path)]
        self._needed: set[str] = set()
        self._parsed: set[Path] = set()
        self._files: set[Path] = set()
        self._unknown: str | None = None
        self._external: set[str] = set()

    def found(self, what: str) -> Imported:
        """Return what following ``what``, a module or a script, has found."""
        if not self._parsed:
            self._unknown = self._unknown or f"{what} is not a source file of the project"
        return Imported(
            files=frozenset(self._files),
            unknown=self._unknown,
            external=frozenset(self._external),
        )

    def run(self, places: Sequence[Path]) -> None:
        """Follow a script, which is the first of these files that exists."""
        found = next((place.resolve() for place in places if place.is_file()), None)
        if found is None or not self._is_own(found):
            return
        self._files.add(found)
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
        self._files |= {*candidates}
        found = [file for file in candidates if file.is_file()]
        for file in found:
            self._parse(file)
        return bool(found) or place.is_dir()

    def _parse(self, file: Path) -> None:
        if file in self._parsed:
            return
        self._parsed.add(file)
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
        if self._unknown is None:
            place = file.relative_to(self._repository).as_posix()
            line = "" if node is None else f":{node.lineno}"
            self._unknown = f"{place}{line} {what}"


def _is_search_path(node: ast.Attribute) -> bool:
    return node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys"


# The cases of which changed files can change a step: the others need no duel.
#
# A case is left out only if it is certain that nothing it reads has changed. All that its workload
# or script may import is searched in the source, without running it; what the source leaves open
# counts as changed.


Kind = Literal["harmless", "source", "data", "everything"]

# Files that change the packages or the settings of every rank.
_ENVIRONMENT_NAMES = (
    *(
        "*requirements*.txt",
        "constraints*.txt",
        "*.lock",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
    ),
    *("environment*.y*ml", "Pipfile", "pytest.ini", "tox.ini", ".python-version"),
)
# Directories of services, of editors, of caches and of this package, whose files no rank reads, or
# only together with their sources.
_HARMLESS_DIRECTORIES = {
    *("baselines", "artifacts", "__pycache__", ".pytest_cache", ".hypothesis"),
    *(".github", ".gitlab", ".circleci", ".vscode", ".idea"),
}
_HARMLESS_NAMES = (
    *("LICENSE*", "CODEOWNERS", "CHANGELOG*", "README*", ".git*"),
    *(".editorconfig", ".pre-commit-config.yaml", ".mailmap", ".dockerignore"),
)
# Files that are documents here, and may be data of a workload in any other directory.
_DOCUMENT_DIRECTORIES = ("docs", "doc")
_DOCUMENTS = {
    *(".md", ".rst", ".html", ".css", ".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".ipynb"),
}
# Directories whose files only the user's code may read.
_BESIDE_THE_CODE = {"docs", "doc", "tests", "test", "ci"}


class CaseSources(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the project that a case reads, by their paths from the repository's root."""

    suite: str  # the suite file
    suites: frozenset[str] = frozenset()  # other suite files, which the case does not read
    workload: str  # or script, as the suite states it
    is_script: bool = False
    imported: frozenset[str] = frozenset()  # may be imported; also those that do not exist
    named: frozenset[str] = frozenset()  # files and directories that arguments may name
    unknown: str | None = None  # why they cannot all be known


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why each case can be touched, or why it cannot, by the case's key."""

    touched: dict[tuple[str, str], str]
    left_out: dict[tuple[str, str], str]


def touched_cases(
    sources: Mapping[tuple[str, str], CaseSources], changed: Sequence[str]
) -> Touched:
    """Return which cases the ``changed`` files can touch; ``sources`` has those of each case.

    Paths have "/" and begin at the repository's root.
    """
    touched, left_out = {}, {}
    for key, case in sources.items():
        reason = next(_reasons(case, changed), None)
        if reason is not None:
            touched[key] = reason
        else:
            left_out[key] = _why_not(case, changed)
    return Touched(touched=touched, left_out=left_out)


def _reasons(case: CaseSources, changed: Iterable[str]) -> Iterator[str]:
    """Yield why the changed files can touch the case: the certain reasons first."""
    files = list(changed)
    if case.suite in files:
        yield f"{case.suite} has its suite"
    how = "which its script reads" if case.is_script else "which its workload imports"
    yield from (f"{file}, {how}" for file in files if _is_read(file, case))
    for file in files:
        kind = "harmless" if file in case.suites else kind_of(file)
        if kind == "everything":
            yield f"{file} may change every case"
        elif kind == "data" and (case.is_script or ":" in case.workload):
            yield f"{file} may be data, and {case.workload} may read it"
        elif kind == "source" and case.unknown is not None:
            yield f"{file} changed, and {case.unknown}"


def _why_not(case: CaseSources, changed: Sequence[str]) -> str:
    if not changed:
        return "nothing changed"
    own = ""
    if case.is_script:
        own = f", and {case.workload} reads none of them"
    elif ":" in case.workload:
        own = f", and {case.workload} imports none of them"
    return f"no changed file can touch it: none is its suite file{own}"


def _is_read(file: str, case: CaseSources) -> bool:
    """Return whether the file is imported, or an argument names it or a directory around it."""
    path = PurePosixPath(file)
    return file in case.imported or any(str(one) in case.named for one in (path, *path.parents))


def kind_of(file: str) -> Kind:
    """Return whether a file that no workload or script imports or names touches cases.

    It touches none ("harmless"), or every one. A "source" of Python touches none either, if all
    imports are known, and "data" those with code of the user, which may read it.
    """
    path = PurePosixPath(file)
    around = {*path.parts[:-1]}
    if _PACKAGE in around or _is_named(path, _ENVIRONMENT_NAMES):
        return "everything"
    beside = bool(around & _BESIDE_THE_CODE)
    if path.name == "conftest.py" and not beside:
        return "everything"  # it may set variables, which ranks inherit
    if path.suffix == ".py":
        return "source"
    in_docs = not around or path.parts[0] in _DOCUMENT_DIRECTORIES
    if in_docs and path.suffix in _DOCUMENTS:
        return "harmless"
    if around & _HARMLESS_DIRECTORIES or _is_named(path, _HARMLESS_NAMES):
        return "harmless"
    return "data" if beside or path.suffix in _DOCUMENTS else "everything"


def _is_named(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)


# The files of a project that each case reads.


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The user's tree: its root, its suite files, and where ranks import from."""

    root: Path
    suites: tuple[Path, ...]
    import_paths: tuple[str, ...]


def sources_of(cases: Sequence[Case], project: Project) -> dict[tuple[str, str], CaseSources]:
    """Return the sources of each case by its key. Raises SideError without a repository."""
    root = repository_root(project.root).resolve()
    files = {case.suite: suite_file(case.suite, project.suites) for case in cases}
    folders = {path.parent for path in project.suites}
    others = [file for folder in folders for file in _suites_in(folder)]
    imported = imported_by(cases, project.import_paths, root)
    return {
        case.key: CaseSources(
            suite="" if (suite := files[case.suite]) is None else _from(root, suite),
            suites=frozenset(_from(root, file) for file in others),
            workload=case.workload,
            is_script=case.script is not None,
            imported=frozenset(_from(root, file) for file in imported[case.suite].files),
            named=frozenset(_from(root, file) for file in _named(case.script, project)),
            unknown=imported[case.suite].unknown,
        )
        for case in cases
    }


def _suites_in(directory: Path) -> Iterator[Path]:
    for path in find_suites(directory):
        with contextlib.suppress(ConfigError, OSError):  # another file of YAML: it may be data
            content = read_yaml(path)
            if isinstance(content, dict) and "suite" in content:
                yield path


def imported_by(
    cases: Iterable[Case], import_paths: Sequence[str], root: Path
) -> dict[str, Imported]:
    """Return the files under ``root`` that ranks may import or run, by the name of their suite."""
    of_suites = {case.suite: case for case in cases}  # all cases of a suite train the same
    return {name: _imported(case, import_paths, root) for name, case in of_suites.items()}


def _imported(case: Case, import_paths: Sequence[str], root: Path) -> Imported:
    if case.script is not None:
        return files_of_script(case.script, import_paths, root)
    module, colon, _ = case.workload.partition(":")
    if not colon:  # it is a workload of ddp_perf, or a collective
        return Imported(files=frozenset())
    return imported_files(module, import_paths, root)


def packages_of(
    cases: Sequence[Case], import_paths: Sequence[str], repository: Path
) -> dict[str, str]:
    """Return the versions of the packages that ranks of the cases import, and of what these need.

    The files below ``repository`` are searched for what they import; nothing is run.
    """
    imported = imported_by(cases, import_paths, repository.resolve())
    own = (one.external for one in imported.values())
    models = {PACKAGES[case.workload] for case in cases if case.workload in PACKAGES}
    return versions_behind({*RANK_PACKAGES, "numpy", *models}.union(*own))


def _named(run: ScriptRun | None, project: Project) -> Iterator[Path]:
    """Yield the places that the arguments of a script may name, as ``a`` and ``--config=a`` do."""
    for text in () if run is None else run.args:
        for part in {text, text.partition("=")[2]} - {""}:
            yield from (Path(path) / part for path in project.import_paths[:1])


def _from(repository: Path, file: Path) -> str:
    file = file.resolve()
    inside = file.is_relative_to(repository)
    return (file.relative_to(repository) if inside else file).as_posix()
