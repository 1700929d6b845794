"""The context of a rank, and its examination: what fails there costs a fact, and no times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import Store

from ddp_perf.core.launch import PEER_LEFT, Fact, Placement, RankResult
from ddp_perf.errors import DdpPerfError
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.steps.protocol import StepPlan, StepsEndedError

# The examination of a rank after its timed steps: what fails there costs a fact, and no times.


_LONGEST_REASON = 1000  # characters: a message may have a whole tensor
T = TypeVar("T")


class Deliver(Protocol):
    """A delivery to the supervisor, which keeps the newest result if the rank ends or hangs."""

    def __call__(self, result: RankResult, *, whole: bool = False) -> None:
        """Send the times of the rank, or with ``whole`` its facts as well."""
        ...


class Examination:
    """The guard of the facts of one rank.

    ``deliver`` is given the times before any fact is examined. ``missing`` has the reason of each
    fact that failed. A mistake of the user (DdpPerfError) still fails the launch.
    """

    def __init__(self, deliver: Deliver | None = None) -> None:
        self.deliver = deliver or _keep
        self.missing: dict[Fact, str] = {}
        self._why_left: str | None = None

    @property
    def left(self) -> bool:
        """True if this rank ended in the middle of what all ranks do together.

        They may wait for it in a collective, and would take any other one of it for that one.
        """
        return self._why_left is not None

    def alone(self, fact: Fact, read: Callable[[], T]) -> T | None:
        """Return what ``read`` returns, which needs no other rank; None if it fails."""
        try:
            return read()
        except DdpPerfError:
            raise
        except Exception as error:  # noqa: BLE001 – the reason is kept, and shown as what it is
            self.missing.setdefault(fact, _reason(error))
            return None

    def together(self, fact: Fact, plan: StepPlan[T]) -> StepPlan[T | None]:
        """Follow a plan that needs every rank. If it fails, none that is later is begun."""
        if self._why_left is not None:
            plan.close()
            self.missing[fact] = self._why_left
            return None
        try:
            return (yield from plan)
        except DdpPerfError:
            raise
        except StepsEndedError:  # on all ranks after the same step
            self.missing[fact] = "the training was over before"
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 – as above
            self.missing[fact] = self._why_left = _reason(error)
            return None

    def meet(self, result: RankResult) -> bool:
        """Wait for the other ranks at the end, and return whether all have come this far.

        ``result`` is delivered first: over NCCL the wait for a rank that has ended does not end.
        """
        if not self.left:
            self.deliver(result, whole=True)
            try:
                dist.barrier()
            except RuntimeError:  # a rank has ended; this one has all that it needs
                self._why_left = PEER_LEFT
        return not self.left


def is_peer_lost(error: BaseException) -> bool:
    """Return whether a collective failed because another rank ended."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and "gloo/transport" in text.replace("\\", "/")


def _reason(error: BaseException) -> str:
    """Return the error in one line."""
    if is_peer_lost(error):
        return PEER_LEFT
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first[:_LONGEST_REASON]}".rstrip(": ")


def _keep(result: RankResult, *, whole: bool = False) -> None:
    """Ignore the result: no supervisor waits for them."""


# The context of a rank: the values that all code inside one rank shares.


class RankContext(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a launch, placed on its device."""

    rank: int
    device: torch.device
    placement: Placement
    heartbeats: Heartbeats  # shared with the supervisor
    examination: Examination = msgspec.field(default_factory=Examination)


class RankStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a rank: its place and channels before it joins the others.

    ``local_rank`` is the rank within its node, and chooses its GPU or cores. The ranks find each
    other through ``store``.
    """

    rank: int
    local_rank: int
    heartbeats: Heartbeats
    store: Store
    examination: Examination
