"""Steps that train."""

from __future__ import annotations

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import Structure
from ddp_perf.worker.counted.digest import parameter_digest
from ddp_perf.worker.counted.flops import FlopCounter
from ddp_perf.worker.counted.structure import SETTLED_AFTER, count_structure, ddp_logging
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.probe.probe import probe
from ddp_perf.worker.steps.graph import is_captured
from ddp_perf.worker.steps.protocol import StepFacts
from ddp_perf.worker.steps.trainer import Trainer


class TrainingSteps(Trainer):
    """A trainer, and what can be told of its steps once they were timed."""

    def __init__(
        self,
        case: Case,
        rank: int,
        device: torch.device,
        heartbeats: Heartbeats,
        *,
        probe_steps: int,
    ) -> None:
        super().__init__(case, rank, device, heartbeats)
        self._case = case
        self._device = device
        self._probe_steps = probe_steps

    def facts(self) -> StepFacts:
        """Of one more step, once DDP and hooks have settled, and then of the probe's."""
        self.release()  # what a graph replays, nothing else sees
        self.settle(SETTLED_AFTER)
        with FlopCounter() as counter:
            structure = count_structure(self.module, self.step)  # the ranks are still in step
        return StepFacts(
            digest=parameter_digest(self.module),
            structure=structure,
            ddp_logging=ddp_logging(self.module),
            probe=self._probed(structure),  # after which ranks go their own ways
            flops=counter.flops,
            unit=self.unit,
        )

    def _probed(self, structure: Structure) -> RankProbe | None:
        """None of a captured step: it is one whole, and an eager one is not where its time goes."""
        if is_captured(self._case, self._device):
            return None
        return probe(self._case, self, structure, self._device, self._probe_steps)
