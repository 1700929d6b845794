"""A virtual environment with other versions of some packages, before those of the driver's own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import site
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import packaging.requirements
from packaging.utils import canonicalize_name

from ddp_perf.duel.sides.cache import Making, cache_shelf, is_kept, kept
from ddp_perf.duel.sides.interpreter import output_of
from ddp_perf.duel.sides.requirements import Requirement
from ddp_perf.errors import SideError
from ddp_perf.system.host.parent_death import die_with_parent

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
        for needed in _requirements(distribution):
            version = chosen.get(canonicalize_name(needed.name))
            applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if version and applies and not needed.specifier.contains(version, prereleases=True):
                yield f"{name} {distribution.version} needs {needed.name}{needed.specifier}"


def _requirements(
    distribution: metadata.Distribution,
) -> Iterator[packaging.requirements.Requirement]:
    """Yield what a package requires, without what older tools wrote otherwise than is valid now."""
    for text in distribution.requires or ():
        with contextlib.suppress(packaging.requirements.InvalidRequirement):
            yield packaging.requirements.Requirement(text)


def _environ() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _PLACES}


def _ending_with_this() -> Callable[[], None]:
    """Return what a child does first: else pip would go on after its parent was killed."""
    return functools.partial(die_with_parent, os.getpid())
