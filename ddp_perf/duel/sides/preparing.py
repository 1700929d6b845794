"""A side: the text that names it is checked, and its files and packages are made ready."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ddp_perf.config.loading import check_environment
from ddp_perf.config.user_code import find_module
from ddp_perf.core.case import Case
from ddp_perf.core.secret import secret_in
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.duel.sides.checkout import (
    Repository,
    check_files,
    checked_out,
    find_repository,
    full_name,
    resolve_commit,
)
from ddp_perf.duel.sides.virtual_environment import (
    check_interpreter,
    installed,
    parse_interpreter,
    parse_requirements,
)
from ddp_perf.duel.values import PreparedSide, Side, SideName
from ddp_perf.errors import ConfigError, SideError
from ddp_perf.launch.interpreter import package_directory, server_environment
from ddp_perf.system.git import head_of, of_directory

# Sides that are the tree with environment variables.


# Each rank has its own; and both sides run on the same GPUs.
_OF_RANKS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"}
)


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables of ``A=1,B=2``. Raises SideError.

    A part without ``NAME=`` belongs to the value before it, as in ``NCCL_ALGO=Ring,Tree``. No error
    has a value, which may be a secret.
    """
    variables: dict[str, str] = {}
    for part in re.split(r",(?=[A-Za-z_]\w*=)", text):
        name, equals, value = part.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SideError(f"env:{name}: write env:NAME=VALUE, or env:NAME=VALUE,OTHER=VALUE")
        if name in variables:
            raise SideError(f"env:{name}: {name} has two values; remove one")
        _check_name(name)
        variables[name] = value
    try:
        check_environment(variables)
    except ConfigError as error:
        raise SideError(f"env:{str(error).removeprefix('env.')}") from None
    return variables


def _check_name(name: str) -> None:
    if name in _OF_RANKS or server_environment({name: "x"}).get(name) != "x":
        raise SideError(f"env:{name}: ddp_perf itself sets {name} for ranks; remove it")


# A side is made ready: its files are checked out, its packages are installed.


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
    if side.kind == "revision":
        with _revision(side, root, import_paths, on_progress) as prepared:
            yield prepared
        return
    rest = side.spec.partition(":")[2].strip()
    interpreter, variables = sys.executable, dict[str, str]()
    with contextlib.ExitStack() as kept:
        if side.kind == "packages":
            environment = installed(parse_requirements(side.spec), on_progress)
            interpreter = kept.enter_context(environment)
        elif side.kind == "python":
            interpreter = parse_interpreter(rest)
        elif side.kind == "env":
            variables = parse_variables(rest)
        if side.kind in ("packages", "python"):
            check_interpreter(interpreter, os.environ)
        yield PreparedSide(
            side=side,
            root=root,
            interpreter=interpreter,
            environ={**_environ(), **variables},
            package=_package(root),
            variables=variables,
            command=rest if side.kind == "command" else None,
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


# The text that a user types for a side becomes a Side, or is refused.


PLACEHOLDER = "{command}"
_PREFIXES = ("env", "python", "command")
_SHORT = 7  # digits of a commit, for people
_LONGEST = 60  # characters of a command in a label


def parse_side(text: str, name: SideName, root: Path) -> Side:
    """Return the side that ``text`` names, for the project in ``root``.

    Nothing is written and nothing is launched. Raises SideError.
    """
    text = text.strip()
    prefix, colon, rest = text.partition(":")
    if text == ".":
        return _tree(name, root)
    if colon and prefix in _PREFIXES:
        return _prefixed(text, name, prefix, rest.strip())
    if "==" in text:
        label = ", ".join(map(str, parse_requirements(text)))
        return Side(name=name, spec=text, kind="packages", label=label)
    return _revision_side(text, name, root)


def _tree(name: SideName, root: Path) -> Side:
    head = head_of(root)
    if head is None:
        return Side(name=name, spec=".", kind="tree", label="the working tree")
    changes = " with uncommitted changes" if head.changed else ""
    label = f"the working tree ({head.commit[:_SHORT]}{changes})"
    return Side(
        name=name, spec=".", kind="tree", label=label, commit=head.commit, changed=head.changed
    )


def _prefixed(text: str, name: SideName, prefix: str, rest: str) -> Side:
    if prefix == "env":
        parse_variables(rest)
        return Side(name=name, spec=text, kind="env", label=rest)
    if prefix == "python":
        return Side(name=name, spec=text, kind="python", label=parse_interpreter(rest))
    if (secret := secret_in(rest.split())) is not None:
        raise SideError(
            f"command: {secret} looks like a secret, which results and reports would have; export"
            " it, and let the command name it alone, as in docker run -e HF_TOKEN"
        )
    if PLACEHOLDER not in rest:
        raise SideError(
            f"{text}: lacks {PLACEHOLDER}, in whose place the ranks' server is started;"
            f" write 'command: docker run … {PLACEHOLDER}'"
        )
    label = rest if len(rest) <= _LONGEST else f"{rest[: _LONGEST - 1]}…"
    return Side(name=name, spec=text, kind="command", label=label)


def _revision_side(text: str, name: SideName, root: Path) -> Side:
    _refuse_other_kinds(text)
    repository = find_repository(root)
    commit = resolve_commit(repository, text)
    if (root / text).exists() or Path(text).exists():
        raise SideError(
            f"{text}: both a revision and a file; for the revision write"
            f" {full_name(repository, text)}"
        )
    short = commit[:_SHORT]
    label = short if commit.startswith(text.lower()) else f"{text} ({short})"
    check_files(repository, commit, label)
    return Side(name=name, spec=text, kind="revision", label=label, commit=commit)


def _refuse_other_kinds(text: str) -> None:
    """Raise SideError for what is no revision, but nearly another kind of side."""
    if not text or text.startswith("-"):
        raise SideError(f"{text!r}: not a side; name a revision, or . for the tree as it is")
    if variable := re.match(r"[A-Z][A-Z0-9_]*=", text):
        raise SideError(f"{variable[0]}…: for a variable write env:{variable[0]}VALUE")
    if re.match(r"[\w.-]+\s*(=|[<>]=?|[~!]=)\s*\d", text):
        raise SideError(f"{text}: a side needs exact versions; write torch==2.11.0")
    if Path(text).name.startswith("python") and Path(text).is_file():
        raise SideError(f"{text}: for an interpreter write python:{text}")


# The script of a case on a side: each revision runs its own, never that of the user's tree.


# Folders of installed packages. That of torch may be another one than the interpreter's own.
_INSTALLED = {"site-packages", "dist-packages"}


def foreign_script(case: Case, side: PreparedSide) -> str | None:
    """Return why ranks of a revision would run a script that is not the revision's, or None.

    An installed script is the same in all revisions, as any other package is.
    """
    if case.script is None or side.side.kind != "revision":
        return None
    if not case.script.is_module:
        if not os.path.isabs(case.script.script):
            return None
        return (
            f"runs {case.script.script} whatever the revision; give the path of the script from"
            " the root of the project on"
        )
    python_path = side.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [*side.import_paths, *filter(None, python_path)]
    spec = find_module(case.script.script, own)
    places = [Path(path).resolve() for path in (*own, sysconfig.get_paths()["stdlib"])]
    found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
    for origin in (Path(path).resolve() for path in found if path):
        if _INSTALLED & {*origin.parts} or any(map(origin.is_relative_to, places)):
            return None
    return f"has no module {case.script.script} in {side.side.label}"
