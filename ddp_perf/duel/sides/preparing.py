"""A side is made ready: its files are checked out, its packages are installed."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ddp_perf.core.data import DATA_FOLDER
from ddp_perf.duel.sides.checkout import checked_out
from ddp_perf.duel.sides.interpreter import check_interpreter, parse_interpreter
from ddp_perf.duel.sides.repository import Repository, find_repository
from ddp_perf.duel.sides.requirements import parse_requirements
from ddp_perf.duel.sides.variables import parse_variables
from ddp_perf.duel.sides.virtual_environment import installed
from ddp_perf.duel.values import PreparedSide, Side
from ddp_perf.launch.environment import package_directory
from ddp_perf.system.git import of_directory


@contextlib.contextmanager
def prepare(
    side: Side,
    root: Path,
    *,
    on_progress: Callable[[str], None],
    import_paths: Sequence[str] = (),
) -> Iterator[PreparedSide]:
    """Make the side ready, and keep its files in the cache during the ``with`` block.

    ``root`` is that of the user's project, as for ``parse_side``. ``import_paths`` are further
    directories from which ranks import; those in the tree are searched in the side's files.
    ``on_progress`` receives a line for people now and then. Raises SideError.
    """
    root = root.resolve()
    rest = side.spec.partition(":")[2].strip()
    in_tree = functools.partial(_in_tree, side, root, import_paths)
    if side.kind == "revision":
        with _revision(side, root, import_paths, on_progress) as prepared:
            yield prepared
    elif side.kind == "packages":
        with installed(parse_requirements(side.spec), on_progress) as interpreter:
            check_interpreter(interpreter, os.environ)
            yield in_tree(interpreter=interpreter)
    elif side.kind == "python":
        interpreter = parse_interpreter(rest)
        check_interpreter(interpreter, os.environ)
        yield in_tree(interpreter=interpreter)
    elif side.kind == "env":
        yield in_tree(variables=parse_variables(rest))
    elif side.kind == "command":
        yield in_tree(command=rest)
    else:
        yield in_tree()


def _in_tree(
    side: Side,
    root: Path,
    import_paths: Sequence[str],
    *,
    interpreter: str = sys.executable,
    variables: dict[str, str] | None = None,
    command: str | None = None,
) -> PreparedSide:
    """Return a side whose files are the user's tree."""
    return PreparedSide(
        side=side,
        root=root,
        interpreter=interpreter,
        environ={**_environ(), **(variables or {})},
        package=_package(root),
        variables=variables or {},
        command=command,
        added_paths=tuple(import_paths),
    )


@contextlib.contextmanager
def _revision(
    side: Side, root: Path, import_paths: Sequence[str], on_progress: Callable[[str], None]
) -> Iterator[PreparedSide]:
    assert side.commit is not None  # a revision has one
    repository = find_repository(root)
    with checked_out(side.commit, repository, on_progress, patch=side.patch) as directory:
        there = directory / repository.prefix
        yield PreparedSide(
            side=side,
            root=there,
            interpreter=sys.executable,
            environ={
                **of_directory(_environ()),
                "PYTHONPATH": _python_path(repository, directory, os.environ),
            },
            package=_package(there),
            added_paths=tuple(
                str(_in_checkout(Path(path).absolute(), repository, directory))
                for path in import_paths
            ),
        )


def _environ() -> dict[str, str]:
    """Return the variables of this process. Ranks may run in another directory."""
    folder = os.environ.get(DATA_FOLDER)
    return {**os.environ, DATA_FOLDER: os.path.abspath(folder)} if folder else dict(os.environ)


def _package(root: Path) -> Path:
    """Return the directory from which ranks import ddp_perf: the project may be this one."""
    own = root / "ddp_perf" / "launch" / "server.py"
    return root if own.is_file() else package_directory()


def _python_path(repository: Repository, checkout: Path, environ: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of ranks in a checkout, which never leads into the user's tree.

    What this interpreter finds in the tree, by PYTHONPATH or since the project is installed as
    editable, ranks find first in the checkout.
    """
    named = list(filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))
    source = repository.top / repository.prefix / "src"
    inside, outside = [], []
    for name in [*named, *sys.path, str(source)]:
        path = Path(name).absolute()
        moved = _in_checkout(path, repository, checkout)
        if moved != path:
            inside.append(moved)
        elif name in named:
            outside.append(path)
    there = [path for path in inside if path.is_dir()]
    return os.pathsep.join(dict.fromkeys(map(str, [*there, *outside])))


def _in_checkout(path: Path, repository: Repository, checkout: Path) -> Path:
    """Return where the checkout has a path of the tree; another path as it is."""
    real = path.resolve()
    inside = real.is_relative_to(repository.top)
    return checkout / real.relative_to(repository.top) if inside else path
