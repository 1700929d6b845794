"""Play kubectl and a cluster: pods are processes of this machine, and their states are files.

Each pod of a Job runs its command on a node of its own, and what is executed in a pod ends with it.
Its standard input is a pipe, which is closed after the first kubectl that was attached to it has
ended, or the end of its own input. The nodes are named ``node-0``,
``node-1`` … The directory in FAKE_CLUSTER holds everything, and a cluster that fails in a way of
``faults.json``:

    refuse: message       every create is refused
    quota: message        no pod of a Job is created
    unanswered: true      no request is answered
    prints: {verb: text}  what it prints instead of what was asked
    hangs: true           no request ends
    undeleted: 2          so many deletes fail
    unattached: message   every attach is refused
    pods: {"1": {…}}      what happens to the pod of an index, one of
        waiting: {reason, message}     its container never starts
        terminated: {exitCode, …}      its container has ended at once
        unschedulable: message         it gets no node
        after a file ``PATH`` exists (key: when):
            reason: "OOMKilled" | "Evicted" | "lost" | "deleted"
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

CLUSTER = Path(os.environ["FAKE_CLUSTER"])
FAULTS = json.loads((CLUSTER / "faults.json").read_text())
POLL_S = 0.05
LIFE_S = 300  # of a cluster that nobody ends


def main() -> None:
    with (CLUSTER / "calls.txt").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    if sys.argv[1] == "kubelet":
        return run_pods(Path(sys.argv[2]))
    if FAULTS.get("hangs"):
        time.sleep(LIFE_S)
    if FAULTS.get("unanswered"):
        fail("Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout")
    parser = argparse.ArgumentParser()
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser.add_argument("words", nargs="*")
    for option in (
        "namespace", "request-timeout", "filename", "output", "selector", "container",
        "field-selector", "sort-by", "wait",
    ):  # fmt: skip
        parser.add_argument(f"--{option}")
    for flag in ("stdin", "quiet", "ignore-not-found"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_intermixed_args(sys.argv[1:split])
    verb, *words = options.words
    if verb in FAULTS.get("prints", {}):
        print(FAULTS["prints"][verb])
    elif verb == "create":
        create(json.load(sys.stdin))
    elif (verb, words) == ("get", ["pods"]):
        print(json.dumps({"items": list(pods(options.selector.partition("=")[2]))}))
    elif (verb, words) == ("get", ["events"]):
        print(FAULTS.get("quota", ""))
    elif verb == "attach":
        attach(words[0])
    elif verb == "exec":
        execute(words[0], sys.argv[split + 1 :])
    elif verb == "delete":
        if deletes() <= FAULTS.get("undeleted", 0):
            fail("etcdserver: request timed out")
        (CLUSTER / words[1] / "deleted").touch()
    else:
        fail(f"unknown command {sys.argv[1:]}")
    return None


def deletes() -> int:
    calls = (CLUSTER / "calls.txt").read_text().splitlines()
    return sum(call.startswith("delete") for call in calls)


def fail(message: str) -> None:
    sys.exit(f"a first line\n{message}")


def create(manifest: dict) -> None:
    if "refuse" in FAULTS:
        fail(FAULTS["refuse"])
    name = manifest["metadata"]["name"]
    manifest["metadata"]["uid"] = f"uid-of-{name}"
    directory = CLUSTER / name
    directory.mkdir(exist_ok=manifest["kind"] != "Job")
    (directory / f"{manifest['kind']}.json").write_text(json.dumps(manifest))
    if manifest["kind"] == "Job" and "quota" not in FAULTS:
        subprocess.Popen(
            [sys.executable, __file__, "kubelet", directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(directory / "kubelet.txt").open("w"),
            start_new_session=True,
        )
    print(json.dumps(manifest))


def pods(name: str):
    for file in sorted((CLUSTER / name).glob("pod-*.json")):
        yield json.loads(file.read_text())


def file_of(pod: str, kind: str) -> Path:
    name, _, index = pod.rpartition("-")
    return CLUSTER / name / f"{kind}-{index}"


def is_running(pod: str) -> bool:
    state = file_of(pod, "pod").with_suffix(".json")
    return state.exists() and '"running"' in state.read_text()


def attach(pod: str) -> None:
    if "unattached" in FAULTS:
        fail(FAULTS["unattached"])
    with file_of(pod, "out").open() as output, file_of(pod, "in").open("wb", buffering=0) as given:
        file_of(pod, "attached").touch()
        while is_running(pod):
            sys.stdout.write(output.read())
            sys.stdout.flush()
            if not given.closed and select.select([0], [], [], POLL_S)[0]:
                given.write(data) if (data := os.read(0, 4096)) else given.close()
            elif given.closed:
                time.sleep(POLL_S)


def execute(pod: str, command: list[str]) -> None:
    if not is_running(pod):
        fail(f"error: cannot exec into a container in a completed pod: {pod}")
    process = subprocess.Popen(command, start_new_session=True)
    with file_of(pod, "executed").open("a") as executed:
        executed.write(f"{process.pid}\n")
    if code := process.wait():
        print(f"command terminated with exit code {code}", file=sys.stderr)
        sys.exit(code % 256)


class PlayedPod:
    """A pod: the process that it runs, and the state that the cluster shows of it."""

    def __init__(self, job: dict, index: int, directory: Path) -> None:
        spec = job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        self.fault = FAULTS.get("pods", {}).get(str(index), {})
        self.directory, self.index = directory, index
        self.state: dict[str, dict] = {
            "metadata": {
                "name": f"{name}-{index}",
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            },
            "spec": {"nodeName": nodes_of(spec)[index]},
            "status": {"phase": "Pending", "conditions": [], "containerStatuses": []},
        }
        self.name = self.state["metadata"]["name"]
        self.process = None
        self.given: int | None = None
        if message := self.fault.get("unschedulable"):
            del self.state["spec"]["nodeName"]
            self.condition("PodScheduled", "False", "Unschedulable", message)
        elif waiting := self.fault.get("waiting"):
            self.container({"waiting": waiting})
        elif terminated := self.fault.get("terminated"):
            self.state["status"]["phase"] = "Failed"
            self.container({"terminated": terminated})
        else:
            self.process = self.start(spec)
            self.state["status"]["phase"] = "Running"
            self.container({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        self.write()

    def start(self, spec: dict) -> subprocess.Popen:
        [container] = [each for each in spec["containers"] if each["name"] == "rank"]
        assert container["stdin"]
        assert container["stdinOnce"]
        given = file_of(self.name, "in")
        os.mkfifo(given)
        self.given = os.open(given, os.O_RDWR)  # so it is open before a client comes
        return subprocess.Popen(
            container["command"],
            stdin=os.open(given, os.O_RDONLY),
            stdout=file_of(self.name, "out").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def condition(self, kind: str, status: str, reason: str = "", message: str = "") -> None:
        self.state["status"]["conditions"].append(
            {"type": kind, "status": status, "reason": reason, "message": message}
        )

    def container(self, state: dict) -> None:
        self.state["status"]["containerStatuses"] = [
            {"name": "rank", "image": "registry.example/train:1", "state": state}
        ]

    def look(self) -> bool:
        """Bring the state up to date; return True while the process runs."""
        if self.process is None or "terminated" in json.dumps(self.state):
            return False
        if self.given is not None and file_of(self.name, "attached").exists():
            os.close(self.given)
            self.given = None
        self.suffer()
        if (code := self.process.poll()) is not None:
            code = 128 - code if code < 0 else code
            named = self.fault.get("reason") == "OOMKilled" and code == 137
            reason = "OOMKilled" if named else "Completed" if code == 0 else "Error"
            self.state["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
            self.container({"terminated": {"exitCode": code, "reason": reason}})
            self.end_executed()
            self.write()
        return code is None

    def suffer(self) -> None:
        reason = self.fault.get("reason")
        if reason is None or not Path(self.fault["when"]).exists():
            return
        if reason == "lost":
            self.condition("Ready", "False")
            self.write()
            return
        if reason == "Evicted":
            self.state["status"] |= {"reason": reason, "message": "The node was low on memory."}
        if reason == "deleted":
            self.remove()
        self.process.kill()
        self.process.wait()

    def end_executed(self) -> None:
        executed = file_of(self.name, "executed")
        for pid in executed.read_text().split() if executed.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        self.state["metadata"]["deletionTimestamp"] = datetime.now(timezone.utc).isoformat()
        self.write()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def write(self) -> None:
        file = self.directory / f"pod-{self.index}.json"
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(self.state))
        partial.rename(file)


def nodes_of(spec: dict) -> list[str]:
    affinity = spec["affinity"].get("nodeAffinity")
    if affinity is None:
        return [f"node-{index}" for index in range(9)]
    [terms] = affinity["requiredDuringSchedulingIgnoredDuringExecution"].values()
    return [term["matchFields"][-1]["values"][0] for term in terms]


def run_pods(directory: Path) -> None:
    """Run the pods of a Job until they have ended, or the Job is deleted."""
    job = json.loads((directory / "Job.json").read_text())
    running = [PlayedPod(job, index, directory) for index in range(job["spec"]["completions"])]
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        going = [pod for pod in running if pod.look()]
        waiting = [pod for pod in running if pod.process is None]
        if not going + waiting or (directory / "deleted").exists():
            break
        time.sleep(POLL_S)
        if not directory.exists():  # the test is over; the pods' standard input ends with this
            return
    others = [pod for pod in running if "terminated" not in json.dumps(pod.state)]
    for pod in others:
        pod.remove()
    grace = time.monotonic() + 10
    while time.monotonic() < grace:
        if not sum(pod.look() for pod in others):
            break
        time.sleep(POLL_S)
    for pod in others:
        if pod.process is not None and pod.process.poll() is None:
            pod.process.kill()
        (directory / f"pod-{pod.index}.json").unlink()


if __name__ == "__main__":
    main()
