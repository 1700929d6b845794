"""A launcher whose servers outlive the session: torch is imported once for many inner sessions."""

from __future__ import annotations

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher


class WarmLauncher(ServerLauncher):
    """Ranks run in the directory in which the first session was started, with its variables."""

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        try:
            return super().launch(request)
        except BaseException:  # the server was closed: the next session needs another
            super().close()
            raise

    def close(self) -> None:
        """Keep the servers for the next session; ``end`` closes them."""

    def end(self) -> None:
        super().close()
