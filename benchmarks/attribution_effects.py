"""The effect of a cause on a session: the edited workload, and the environment of its process."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.attribution_causes import Effect, Neighbour
from ddp_perf.system.host.host import allowed_cores

WORKLOAD = Path(__file__).parent / "workloads" / "encoder.py"
_SESSION = Path(__file__).with_name("attribution_session.py")
_BUSY = """
import os, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.perf_counter() + 0.02 * {share}
    while time.perf_counter() < end:
        {work}
    time.sleep(0.02 * (1 - {share}))
"""
_WORK = {"cpu": "pass", "memory": "bytes(2**26)"}
_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 10_000  # of a quota: a step contains several, so that each step is held back


def obstacle(effect: Effect) -> str | None:
    """Return why this machine cannot have the effect, or None if it can."""
    if effect.neighbour is not None and effect.neighbour.core >= len(allowed_cores()):
        return f"it needs {effect.neighbour.core + 1} cores; found {len(allowed_cores())}"
    if effect.link_bits_per_s is not None and not has_namespaces():
        return "no network namespace, or no tc with tbf (util-linux, iproute2)"
    if effect.quota_cores is not None:
        try:
            with _group(effect.quota_cores):
                return None
        except OSError as error:
            return f"no control group can be made: {error.strerror}"
    return None


@functools.cache
def has_namespaces() -> bool:
    """Return whether a network namespace with a limited loopback can be made."""
    if not all(map(shutil.which, ("unshare", "tc", "ip"))):
        return False
    inside = [*_namespace(1e9), "true"]
    return subprocess.run(inside, stderr=subprocess.DEVNULL, check=False).returncode == 0


def record_session(effect: Effect, path: Path, *, explain: bool) -> None:
    """Measure a session with the effect in a process of its own, and write it to ``path``.

    All sessions run in a network namespace of their own where that is possible, so that they differ
    in the effect only. Raises CalledProcessError if the session fails.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / WORKLOAD.name).write_text(edited(effect), encoding="utf-8")
        prefix: list[str] = []
        if effect.quota_cores is not None:
            group = stack.enter_context(_group(effect.quota_cores))
            prefix += _shell(f"echo $$ > {group}/cgroup.procs")
        if has_namespaces():
            prefix += _namespace(effect.link_bits_per_s)
        if effect.neighbour is not None:
            stack.enter_context(_busy(effect.neighbour))
        mode = "explain" if explain else "judge"
        command = [*prefix, sys.executable, str(_SESSION), str(folder), str(path), mode]
        subprocess.run(command, env={**os.environ, **effect.variables}, check=True)


def edited(effect: Effect) -> str:
    """Return the workload's source with the edits. Raises ValueError if one does not apply."""
    source = WORKLOAD.read_text(encoding="utf-8")
    for old, new in effect.edits:
        if source.count(old) != 1:
            raise ValueError(
                f"{WORKLOAD.name}: {old!r} is there {source.count(old)} times, not once"
            )
        source = source.replace(old, new)
    return source


def _shell(line: str) -> list[str]:
    """Return a command that runs a line of shell, and then its arguments in the same process."""
    return ["sh", "-ec", f'{line}; exec "$@"', "sh"]


def _namespace(bits_per_s: float | None) -> list[str]:
    """Return a command that runs its arguments in a network namespace, with a link of this rate."""
    line = "ip link set lo up"
    if bits_per_s is not None:
        line += (
            f"; tc qdisc replace dev lo root tbf rate {bits_per_s:.0f}bit burst 128kb latency 500ms"
        )
    return ["unshare", "--user", "--map-root-user", "--net", *_shell(line)]


@contextlib.contextmanager
def _busy(neighbour: Neighbour) -> Iterator[None]:
    """Run a process on the neighbour's core."""
    code = _BUSY.format(share=neighbour.share, work=_WORK[neighbour.work])
    process = subprocess.Popen([sys.executable, "-c", code])
    os.sched_setaffinity(process.pid, {allowed_cores()[neighbour.core]})
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _group(cores: float) -> Iterator[Path]:
    """Make a control group with a CPU quota, in the controller of version 1 or in version 2."""
    is_first = (_GROUPS / "cpu" / "cpu.cfs_quota_us").exists()
    group = (_GROUPS / "cpu" if is_first else _GROUPS) / f"attribution-{os.getpid()}"
    group.mkdir()
    try:
        quota = f"{_PERIOD_US * cores:.0f}"
        if is_first:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
            (group / "cpu.cfs_quota_us").write_text(quota, encoding="ascii")
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}", encoding="ascii")
        yield group
    finally:
        group.rmdir()
