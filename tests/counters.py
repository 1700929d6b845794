"""A launcher that counts no step, for tests of what uses the counts."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.launcher import Runtime
from tests.builders import RUNTIME
from tests.works import make_operation, make_step_work


class FakeCounter:
    """Answers each request with ``answer(request)``, and notes what it was asked."""

    def __init__(self, answer: Any = None, torch: str = "2.13.0+cpu") -> None:
        self.answer = answer or (lambda request: make_step_work(operations=(make_operation(),)))
        self.torch = torch
        self.asked: list[CountRequest] = []
        self.closed = False

    def runtime(self, case: Case | None = None) -> Runtime:
        return msgspec.structs.replace(RUNTIME, torch=self.torch)

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        self.asked.append(request)
        found: StepWork | LaunchFailure = self.answer(request)
        return found

    def close(self) -> None:
        self.closed = True
