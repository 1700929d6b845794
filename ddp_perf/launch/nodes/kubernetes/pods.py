"""The state of a pod, and what it means for its node: it started, it ended, or why it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ddp_perf.launch.nodes.kubernetes.template import CONTAINER

_INDEX = "batch.kubernetes.io/job-completion-index"
_CANNOT_START = (  # reasons for which a container waits, and that seldom pass by themselves
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


# Parts of kubectl's JSON; further fields are ignored.


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    image: str = ""
    state: ContainerState = ContainerState()


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()

    def condition(self, kind: str, status: str) -> Condition | None:
        """Return the condition of this type, if its status is this one."""
        fitting = (each for each in self.conditions if (each.type, each.status) == (kind, status))
        return next(fitting, None)


class PodMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod of a launch, as the cluster sees it."""

    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def index(self) -> int:
        """The number of its node in the launch."""
        return int(self.metadata.annotations[_INDEX])

    @property
    def node(self) -> str:
        """The name of its node, or its own before it has one."""
        return self.spec.node_name or self.metadata.name

    @property
    def deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def started(self) -> bool:
        """True if its ranks' container runs or has run."""
        state = self._state()
        return state.running is not None or state.terminated is not None or self.ended

    @property
    def ended(self) -> bool:
        finished = self.status.phase in ("Succeeded", "Failed")
        return finished or self._state().terminated is not None

    def obstacle(self) -> str | None:
        """Return why a container of it cannot start. None: nothing is in its way so far."""
        for status in (*self.status.init_container_statuses, *self.status.container_statuses):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason in _CANNOT_START:
                why = waiting.message or waiting.reason
                return f"container {status.name!r} with image {status.image} cannot start: {why}"
        return None

    def unplaced(self) -> str | None:
        """Return the scheduler's message, if it found no node."""
        refused = self.status.condition("PodScheduled", "False")
        return None if refused is None else refused.message or refused.reason

    def failure(self) -> str | None:
        """Return how it failed. None: it has not."""
        if (disruption := self.disruption()) is not None:
            return disruption
        terminated = self._state().terminated
        if terminated is not None:
            return None if terminated.exit_code == 0 else f"exit code {terminated.exit_code}"
        if self.status.phase == "Failed":
            return "the pod failed"
        return "the node does not answer" if self._unanswered() else None

    def disruption(self) -> str | None:
        """Return why the kernel, its node or the control plane ended it. None: they did not."""
        terminated = self._state().terminated
        if terminated is not None and terminated.reason == "OOMKilled":
            return "the kernel ended it, because it exceeded its memory limit (OOMKilled)"
        if self.status.phase == "Failed" and self.status.reason:  # Evicted, Terminated
            return _stated(self.status.reason, self.status.message)
        disrupted = self.status.condition("DisruptionTarget", "True")
        return None if disrupted is None else _stated(disrupted.reason, disrupted.message)

    def _unanswered(self) -> bool:
        """Return True if the control plane has lost the node.

        It then sets the pod's Ready to False and gives no reason; the node itself gives one.
        """
        if self.status.phase == "Unknown":
            return True
        unready = self.status.condition("Ready", "False")
        return self.status.phase == "Running" and unready is not None and not unready.reason

    def _state(self) -> ContainerState:
        named = (each for each in self.status.container_statuses if each.name == CONTAINER)
        status = next(named, None)
        return ContainerState() if status is None else status.state


class _PodList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    items: tuple[Pod, ...]


def decode_pods(text: str) -> Sequence[Pod]:
    """Return the pods that ``kubectl get pods -o json`` printed, by index."""
    return sorted(msgspec.json.decode(text, type=_PodList).items, key=lambda pod: pod.index)


def _stated(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason
