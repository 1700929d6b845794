"""Virtual environments with other versions of packages, and interpreters that can run ranks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import packaging.requirements
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ddp_perf.duel.sides.checkout import Making, cache_shelf, is_kept, kept
from ddp_perf.errors import SideError
from ddp_perf.launch.interpreter import RANK_PACKAGES, install_command, missing_in
from ddp_perf.system.host.termination import die_with_parent

# Interpreters that can run ranks.


_PATIENCE_S = 300.0  # an import of torch from a cold network disk takes minutes
_OLDEST = (3, 10)


def parse_interpreter(text: str) -> str:
    """Return the absolute path of ``text``, a path or a name on PATH. Raises SideError.

    A link stays: the interpreter of a virtual environment is one.
    """
    named = text if os.sep in text else shutil.which(text)
    path = Path(named or text).expanduser().absolute()
    if text and path.is_dir():
        inside = Path(text, "bin", "python")
        raise SideError(f"python:{text}: a directory; write python:{inside}")
    if not text or not path.exists():
        raise SideError(f"python:{text}: no such interpreter; write python:/path/to/python")
    if not os.access(path, os.X_OK):
        raise SideError(f"python:{text}: cannot be executed; write python:/path/to/python")
    return str(path)


def check_interpreter(interpreter: str, environ: Mapping[str, str]) -> None:
    """Raise SideError unless the interpreter can import what ranks need."""
    shown = _run(interpreter, "import sys; print(*sys.version_info[:2])", environ).split()
    if tuple(map(int, shown)) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SideError(f"{interpreter}: Python {'.'.join(shown)}; ranks need {oldest} or later")
    try:
        missing = missing_in(interpreter, environ)
    except (OSError, subprocess.SubprocessError) as error:
        raise SideError(f"{interpreter}: cannot look for packages: {error}") from None
    if missing:
        raise SideError(
            f"{interpreter}: lacks {', '.join(missing)}, which ranks need; run"
            f"\n{install_command(missing, interpreter)}"
        )
    _run(interpreter, f"import {', '.join(RANK_PACKAGES)}", environ)


def run_interpreter(
    interpreter: str, arguments: Sequence[str], environ: Mapping[str, str], *, failure: str
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter, and return how it ended.

    Raises SideError with ``failure`` if it cannot be started, or does not answer.
    """
    try:
        return subprocess.run(
            [interpreter, *arguments],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise SideError(f"{interpreter}: {failure}: no answer in {_PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise SideError(f"{interpreter}: {failure}: cannot be started: {error.strerror}") from None


def output_of(interpreter: str, code: str, environ: Mapping[str, str], *, failure: str) -> str:
    """Run code in an interpreter and return what it prints. Raises SideError with ``failure``."""
    done = run_interpreter(interpreter, ("-c", code), environ, failure=failure)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SideError(f"{interpreter}: {failure}: {reason}; repair it, or name another")
    return done.stdout


def _run(interpreter: str, code: str, environ: Mapping[str, str]) -> str:
    return output_of(interpreter, code, environ, failure=f"fails at `{code}`")


# Sides that are the tree with other versions of packages: ``torch==2.11.0,numpy==2.1.0``.


_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w.,-]+\])?==([A-Za-z0-9][\w.+!]*)")


class Requirement(NamedTuple):
    """One exact version of a package."""

    name: str
    extras: str  # "[dev]" or ""
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"

    def is_met_by(self, version: str) -> bool:
        """Return whether an installed version is this one. "2.11.0+cpu" is a "2.11"."""
        return SpecifierSet(f"=={self.version}").contains(version, prereleases=True)


def parse_requirements(text: str) -> list[Requirement]:
    """Return the requirements in the order of their names. Raises SideError."""
    requirements: dict[str, Requirement] = {}
    for part in re.split(r",(?![^\[]*\])", text):
        match = _REQUIREMENT.fullmatch(part.strip())
        if match is None:
            raise SideError(
                f"{text}: {part.strip()!r} is not an exact version; write torch==2.11.0, or"
                " torch==2.11.0,numpy==2.1.0"
            )
        name = canonicalize_name(match[1])
        if name in requirements:
            raise SideError(f"{text}: {name} has two versions; remove one")
        requirements[name] = Requirement(name, match[2] or "", match[3])
    return [requirements[name] for name in sorted(requirements)]


# A virtual environment with other versions of some packages, before those of the driver's own.


_MOST = 8  # environments that stay in the cache: torch with CUDA takes gigabytes
_SHOWN = ("Collecting ", "Downloading ", "Installing ")  # lines of pip that show progress
# These choose another place than the environment, or refuse to install into one.
_PLACES = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PYTHONHOME")
_SOURCES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
_LAST = 3  # lines of pip in an error
_BEHIND = "ddp_perf_driver.pth"


@contextlib.contextmanager
def installed(
    requirements: Sequence[Requirement], on_progress: Callable[[str], None]
) -> Iterator[str]:
    """Yield the interpreter of an environment that has the requirements. Raises SideError.

    It has this Python's version, and behind its own packages are those of this interpreter: pip
    installs what differs.
    """
    names = ", ".join(map(str, requirements))

    def make(directory: Path) -> None:
        on_progress(f"making a virtual environment with {names} in {directory.parent}")
        _make_environment(directory)
        _install(_python(directory), requirements, on_progress)

    def is_whole(directory: Path) -> bool:
        return _python(directory).exists()  # a link to this Python, which may be gone

    shelf = cache_shelf("environments", _MOST, os.environ)
    making = Making(make, is_whole, on_progress)
    with kept(shelf, _key(requirements), making) as directory:
        interpreter = _python(directory)
        found = _distributions(interpreter)
        _check_versions(directory, found, requirements)
        for conflict in _conflicts(found, requirements):
            on_progress(f"{names}: {conflict}; name its version in the side, too, if ranks use it")
        yield str(interpreter)


def is_installed(requirements: Sequence[Requirement]) -> bool:
    """Return whether the environment is in the cache, so that nothing is downloaded for it."""
    return is_kept(cache_shelf("environments", _MOST, os.environ), _key(requirements))


def _key(requirements: Sequence[Requirement]) -> str:
    """Return a name for the environment: it changes with all that pip's choice depends on."""
    sources = {name: os.environ[name] for name in _SOURCES if name in os.environ}
    parts = [sys.version, sys.prefix, _packages_of_driver(), sources, list(map(str, requirements))]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
    first = requirements[0]
    return f"{first.name}-{first.version}-{digest}"


def _packages_of_driver() -> list[str]:
    """Return the directories with this interpreter's packages, the first one first."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [path for path in (*user, *site.getsitepackages()) if Path(path).is_dir()]


def _python(directory: Path) -> Path:
    return directory / "bin" / "python"


def _make_environment(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(directory)],
        env=_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        preexec_fn=_ending_with_this(),
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it failed without a message"]
        raise SideError(
            f"{sys.executable} -m venv: {lines[0]}; install its venv module (Debian: apt install"
            " python3-venv), or make an environment yourself and name it as python:PATH"
        )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"import site; site.addsitedir({path!r})" for path in _packages_of_driver()]
    behind = directory / "lib" / version / "site-packages" / _BEHIND
    behind.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _install(
    interpreter: Path, requirements: Sequence[Requirement], on_progress: Callable[[str], None]
) -> None:
    options = ("--disable-pip-version-check", "--no-input", "--progress-bar=off")
    command = [interpreter, "-m", "pip", "install", *options, *map(str, requirements)]
    lines = []
    with subprocess.Popen(
        list(map(str, command)),
        env=_environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        preexec_fn=_ending_with_this(),
    ) as pip:
        try:
            assert pip.stdout is not None
            for line in pip.stdout:
                lines.append(line.strip())
                if lines[-1].startswith(_SHOWN):
                    on_progress(lines[-1])
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        names = ", ".join(map(str, requirements))
        said = [line for line in lines if line][-_LAST:] or ["it wrote nothing"]
        listing = " and ".join(f"`pip index versions {one.name}`" for one in requirements)
        raise SideError(
            f"{names}: pip cannot install it: {' / '.join(said)}\n{listing} lists what there is"
        )


def _distributions(interpreter: Path) -> dict[str, metadata.Distribution]:
    """Return what ranks would import, by name: PYTHONPATH comes before the environment."""
    code = "import json, sys; print(json.dumps(sys.path))"
    shown = output_of(str(interpreter), code, os.environ, failure="cannot be started")
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions(path=json.loads(shown)):
        name: str | None = distribution.metadata["Name"]
        if name is not None:  # else it is what is left of a package that was removed
            found.setdefault(canonicalize_name(name), distribution)
    return found


def _check_versions(
    directory: Path,
    found: Mapping[str, metadata.Distribution],
    requirements: Sequence[Requirement],
) -> None:
    """Raise SideError if ranks would import another version than the environment's."""
    for requirement in requirements:
        if requirement.name not in found:
            raise SideError(f"{directory}: lacks {requirement}; remove {directory.parent}")
        version = found[requirement.name].version
        if not requirement.is_met_by(version):
            raise SideError(
                f"{requirement}: ranks would import {version} in its place; remove the directory"
                " that has it from PYTHONPATH"
            )


def _conflicts(
    found: Mapping[str, metadata.Distribution], requirements: Sequence[Requirement]
) -> Iterator[str]:
    """Yield which packages need another version: torchvision of torch, say."""
    chosen = {requirement.name: found[requirement.name].version for requirement in requirements}
    for name, distribution in found.items():
        for needed in requirements_in(distribution.requires or (), {}):
            version = chosen.get(canonicalize_name(needed.name))
            if version and not needed.specifier.contains(version, prereleases=True):
                yield f"{name} {distribution.version} needs {needed.name}{needed.specifier}"


def requirements_in(
    texts: Iterable[str], environment: Mapping[str, str]
) -> Iterator[packaging.requirements.Requirement]:
    """Yield what a package requires without an extra, in an ``environment`` of markers.

    What older tools wrote otherwise than is valid now is left out, as pip does.
    """
    for text in texts:
        with contextlib.suppress(packaging.requirements.InvalidRequirement):
            found = packaging.requirements.Requirement(text)
            if found.marker is None or found.marker.evaluate({"extra": "", **environment}):
                yield found


def _environ() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _PLACES}


def _ending_with_this() -> Callable[[], None]:
    """Return what a child does first: else pip would go on after its parent was killed."""
    return functools.partial(die_with_parent, os.getpid())
