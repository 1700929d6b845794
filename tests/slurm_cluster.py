"""A real Slurm of two nodes on this machine, from Debian's packages, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NODES = ("node1", "node2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "salloc", "srun", "scancel", "scontrol")
PATIENCE_S = 60.0  # for daemons on a busy machine

# The nodes are twice this machine, so each has all of its cores; their GPUs are only counted, so a
# job may ask for them. A node counts as down, and a
# process as dead, sooner than on a real cluster: a test waits for it.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=6
MessageTimeout=5
KillWait=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PriorityType=priority/basic
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node1} CPUs={cores} Gres=gpu:8
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={node2} CPUs={cores} Gres=gpu:8
PartitionName=all Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """The daemons of a cluster. Its commands find it by SLURM_CONF."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        (self.directory / "state").mkdir()
        ports = dict(zip(("controller", "node1", "node2"), _free_ports(3), strict=True))
        host, cores = socket.gethostname(), len(os.sched_getaffinity(0))
        self.configuration.write_text(
            CONFIGURATION.format(host=host, directory=self.directory, cores=cores, **ports)
        )
        for number in range(8):
            (self.directory / f"gpu{number}").touch()
        (self.directory / "gres.conf").write_text(f"Name=gpu File={self.directory}/gpu[0-7]\n")
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node, and wait until Slurm uses the node."""
        self._start(node, "slurmd", "-D", "-N", node)
        self.until(lambda: self.state(node) == "idle")

    def kill_node(self, node: str) -> None:
        """Kill all processes of a node at once, as if its power failed."""
        self._daemons[node].kill()
        for pid in self.processes():
            if f"SLURMD_NODENAME={node}" in _variables(pid) or self._is_step_of(pid, node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._daemons.pop(node).wait()

    def run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def state(self, node: str) -> str:
        asked = ("sinfo", "--noheader", f"--nodes={node}", "--format=%T")
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def jobs(self) -> str:
        """Return the jobs that hold nodes, or wait for some."""
        return self.run("squeue", "--noheader", "--format=%i %T")

    def until(self, holds: Callable[[], object]) -> None:
        """Wait for a state of the cluster, which only its commands show."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """Return the processes of the cluster, other than its daemons and the controller's own."""
        daemons = {daemon.pid for daemon in self._daemons.values()}
        controller = self._daemons.get("slurmctld")
        found = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [
            pid
            for pid in found
            if pid not in daemons
            and self._owns(pid)
            and (controller is None or _parent(pid) != controller.pid)
        ]

    def stop(self) -> None:
        """End all jobs and all daemons, and wait until no process is left."""
        with contextlib.suppress(subprocess.CalledProcessError):  # the controller may be down
            self.run("scancel", "--user=root")
            self.until(lambda: not self.jobs())
        for daemon in reversed(list(self._daemons.values())):
            daemon.terminate()
            daemon.wait(PATIENCE_S)
        self._daemons.clear()
        self.until(lambda: not self.processes())

    def _start(self, name: str, *command: str) -> None:
        with (self.directory / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(command, stdout=output, stderr=output)

    def _start_munge(self) -> None:
        key = self.directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        socket_path = self.directory / "munge.socket"
        files = {"pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munge.seed"}
        self._start(
            "munged",
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_path}"),
            *(f"--{option}={self.directory / name}" for option, name in files.items()),
        )
        self.until(socket_path.exists)

    def _owns(self, pid: int) -> bool:
        return f"SLURM_CONF={self.configuration}" in _variables(pid) and pid != os.getpid()

    def _is_step_of(self, pid: int, node: str) -> bool:
        """Return whether a process is the slurmstepd of a node, which only its log's file shows."""
        files = Path(f"/proc/{pid}/fd")
        with contextlib.suppress(OSError):
            return any(file.readlink().name == f"{node}.log" for file in files.iterdir())
        return False

    def _logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log")
        )


def slurm_obstacle() -> str | None:
    """Return why this machine cannot run a cluster; None: it can."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"needs Slurm (Debian: slurm-wlm, munge): {', '.join(missing)} not on PATH"
    if os.geteuid() != 0:
        return "needs root: slurmd starts the processes of any user"
    return None


@contextlib.contextmanager
def slurm_cluster(directory: Path) -> Iterator[SlurmCluster]:
    """Yield a running cluster; skip the test where this machine cannot run one."""
    if (reason := slurm_obstacle()) is not None:
        pytest.skip(reason)
    cluster = SlurmCluster(directory)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("SLURM_", "SALLOC_", "SBATCH_", "SRUN_")):
                patch.delenv(name)
        patch.setenv("SLURM_CONF", str(cluster.configuration))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        taken = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def _variables(pid: int) -> list[str]:
    try:
        return (
            Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace").split("\0")
        )
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        )
    except OSError:
        return None
