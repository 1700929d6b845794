"""A launcher whose ranks run where a user's command puts them: in a container, say."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.brought import write_brought
from ddp_perf.launch.environment import package_alone, package_directory, package_path
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.protocol import DescribeRequest, RelayAnswer
from ddp_perf.launch.relay_process import RelayProcess
from ddp_perf.launch.scratch import ScratchDirectory
from ddp_perf.launch.server_process import ServerLostError
from ddp_perf.launch.supervisor.output import forget_output, keep_output

PLACEHOLDER = "{command}"
# Plain words, which each shell on the way leaves as they are. The python3 is that of the command.
_RELAY = ("python3", "-m", "ddp_perf.launch.relay")


class CommandLauncher:
    """A launcher that starts the user's command once, with a relay in it.

    ``command`` is split into words as a shell does it, and run without a shell. The relay's own
    command replaces the placeholder ``{command}``: as several words, or within a longer word as
    text. ``environ`` is the environment of the command, and ``package`` the directory from which
    the relay imports ddp_perf if the command keeps PYTHONPATH and the file system. The command
    runs in ``working_directory``; None: in that of this process.
    """

    def __init__(
        self,
        command: str,
        *,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        self._words = command_words(command)
        self._environ = dict(os.environ if environ is None else environ)
        self._package = package_directory() if package is None else package
        self._working_directory = working_directory
        self._relay: RelayProcess | None = None  # started by the first request
        self._scratch: ScratchDirectory | None = None

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def runtime(self, case: Case | None = None) -> Runtime:
        try:
            answer = self._ask(DescribeRequest(case=case))
        except ServerLostError as lost:
            self._drop()
            raise LaunchError(str(lost)) from None
        assert answer.runtime is not None
        return answer.runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        if request.output is not None:
            forget_output(Path(request.output))
        try:
            answer = self._ask(request)
        except ServerLostError as lost:
            return self._lost(lost, request.case, request.round)
        write_brought(request, records=answer.records, profiles=answer.profiles)
        outcome = answer.outcome
        assert isinstance(outcome, LaunchResult | LaunchFailure)
        if isinstance(outcome, LaunchResult) and request.output is not None:
            output = keep_output(Path(request.output), answer.output)
            return msgspec.structs.replace(outcome, output=output)
        return outcome

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Raises LaunchError if ranks cannot be started."""
        try:
            outcome = self._ask(request).outcome
        except ServerLostError as lost:
            return self._lost(lost, request.case, round_number=0)
        assert isinstance(outcome, RankCounted | LaunchFailure)
        return outcome.work if isinstance(outcome, RankCounted) else outcome

    def close(self) -> None:
        self._drop()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _ask(self, request: LaunchRequest | CountRequest | DescribeRequest) -> RelayAnswer:
        if self._relay is None:
            self._relay = self._started()
        answer = self._relay.ask(request)
        if answer.refusal is not None:
            raise LaunchError(answer.refusal)
        return answer

    def _started(self) -> RelayProcess:
        self._scratch = self._scratch or ScratchDirectory()
        package = package_alone(self._package, self._scratch.path)
        environ = {**self._environ, "PYTHONPATH": package_path(self._environ, package)}
        return RelayProcess(
            self._words, environ, self._scratch.path, working_directory=self._working_directory
        )

    def _drop(self) -> str:
        """End the relay, and return the last lines of its output."""
        relay = self._relay
        if relay is None:
            return ""
        relay.close()  # an interrupt leaves it for the next call
        self._relay = None
        return relay.output_tail()

    def _lost(self, lost: ServerLostError, case: Case, round_number: int) -> LaunchFailure:
        """Return the failure of a relay that has ended: the next request starts another."""
        return LaunchFailure(
            case_id=case.id,
            round=round_number,
            kind="server",
            rank=None,
            detail=str(lost),
            output=self._drop(),
        )


def command_words(command: str) -> list[str]:
    """Return the words of the user's command, with the relay's command in the placeholder's place.

    Raises LaunchError if the text cannot be split, or has no placeholder.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise LaunchError(f"command: {command}: {error}") from None
    if not any(PLACEHOLDER in word for word in words):
        raise LaunchError(
            f"command: {command}: there is no {PLACEHOLDER} in it, which is replaced by the"
            " command that starts the ranks: docker run -i IMAGE {command}"
        )
    text = shlex.join(_RELAY)
    replaced = [
        _RELAY if word == PLACEHOLDER else (word.replace(PLACEHOLDER, text),) for word in words
    ]
    return [word for each in replaced for word in each]
