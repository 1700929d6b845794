"""A virtual environment with other versions of some packages, before those of the driver's own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ddp_perf.duel.sides.cache import Making, cache_shelf, is_kept, kept
from ddp_perf.duel.sides.requirements import Requirement
from ddp_perf.errors import SideError
from ddp_perf.system.host.parent_death import die_with_parent

_MOST = 8  # environments that stay in the cache: torch with CUDA takes gigabytes
_SHOWN = ("Collecting ", "Downloading ", "Installing ")  # lines of pip that show progress
# These choose another place than the environment, or refuse to install into one.
_PLACES = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PYTHONHOME")
_SOURCES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
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
        _check_versions(interpreter, requirements)
        for conflict in _conflicts(interpreter, requirements):
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
        raise SideError(failure_of_pip(lines, requirements))


def failure_of_pip(lines: Sequence[str], requirements: Sequence[Requirement]) -> str:
    """Return why pip failed, in two lines, from what it wrote."""
    text = "\n".join(lines)
    unknown = re.search(r"requirement (\S+?)==(\S+) \(from versions: (.*)\)", text)
    if unknown is None:
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        reason = errors[0] if errors else (lines or ["no message"])[-1]
        return f"{', '.join(map(str, requirements))}: pip cannot install it:\n{reason}"
    name, version, known = unknown.groups()
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if known != "none":
        nearest = ", ".join(_nearest(version, known.split(", ")))
        return f"{name}=={version}: there is no such version for {python}\nthe nearest: {nearest}"
    broken = next((line for line in lines if "connection" in line.lower()), None)
    reason = broken or f"pip finds no version of {name} for {python}; check the name and the index"
    return f"{name}=={version}: cannot be installed\n{reason}"


def _nearest(version: str, known: Sequence[str], most: int = 3) -> list[str]:
    """Return the versions that are nearest to this one in the order of versions."""
    ordered = sorted([*known, version], key=_order)
    place = ordered.index(version)
    nearest = sorted(range(len(ordered)), key=lambda other: abs(other - place))
    return [ordered[other] for other in sorted(nearest[1 : most + 1])]


def _order(version: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers as numbers."""
    parts = re.findall(r"\d+|[a-z]+", version.lower())
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _check_versions(interpreter: Path, requirements: Sequence[Requirement]) -> None:
    """Raise SideError if ranks would import another version than the environment's."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    names = [requirement.name for requirement in requirements]
    found = subprocess.run(
        [str(interpreter), "-c", code, *names], capture_output=True, encoding="utf-8"
    ).stdout.split()
    if len(found) != len(requirements):
        raise SideError(f"{interpreter}: lacks its packages; remove {interpreter.parents[2]}")
    for requirement, version in zip(requirements, found, strict=True):
        if not requirement.is_met_by(version):
            raise SideError(
                f"{requirement}: ranks would import {version} in its place; remove the directory"
                " that has it from PYTHONPATH"
            )


def _conflicts(interpreter: Path, requirements: Sequence[Requirement]) -> list[str]:
    """Return pip's lines on packages that need another version: torchvision of torch, say."""
    done = subprocess.run(
        [str(interpreter), "-m", "pip", "--disable-pip-version-check", "check"],
        env=_environ(),
        capture_output=True,
        encoding="utf-8",
    )
    names = "|".join(re.escape(requirement.name) for requirement in requirements)
    needs = re.compile(rf"has requirement ({names})\b", flags=re.IGNORECASE)
    return [line.rstrip(".") for line in done.stdout.splitlines() if needs.search(line)]


def _environ() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _PLACES}


def _ending_with_this() -> Callable[[], None]:
    """Return what a child does first: else pip would go on after its parent was killed."""
    return functools.partial(die_with_parent, os.getpid())
