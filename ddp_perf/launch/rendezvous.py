"""The endpoint at which the ranks of several nodes meet, as one of the nodes sees it."""

from __future__ import annotations

import contextlib
import errno
import socket

from ddp_perf.errors import LaunchError
from ddp_perf.system.host.host import host_name
from ddp_perf.system.host.network import address_towards, is_loopback
from ddp_perf.worker.report import LAUNCH_VARIABLE

_CONNECT_S = 2.0
_REMEDY = "rdzv_endpoint of the cluster file"


class Rendezvous:
    """The endpoint, host:port. Rank 0 listens there, on the node that ``is_host``.

    ``launch`` is a name that no other launch has: ranks of two could meet at one endpoint.
    """

    def __init__(self, endpoint: str, *, is_host: bool, launch: str) -> None:
        self.endpoint = endpoint
        self._launch = launch
        self._is_host = is_host
        host, _, port = endpoint.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._resolved = self._host

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which torch finds it."""
        return {
            "MASTER_ADDR": self._host,
            "MASTER_PORT": str(self._port),
            LAUNCH_VARIABLE: self._launch,
        }

    def check(self) -> None:
        """Raise LaunchError if the nodes cannot meet at the endpoint."""
        with contextlib.suppress(OSError):  # a name that nobody knows yet: torch waits for it
            self._resolved = str(socket.getaddrinfo(self._host, self._port)[0][4][0])
        own = address_towards(self._host)
        if own is not None and is_loopback(own) and not is_loopback(self._host):
            raise LaunchError(
                f"{self._host} is {own} on {host_name()}, so other hosts cannot reach"
                f" it there: {_REMEDY} ADDRESS:PORT, or correct /etc/hosts"
            )
        if self._is_host:
            self._check_port()

    def _check_port(self) -> None:
        # Without listening: another node that comes now would lose its connection.
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", self._port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # all else is for torch to find
                    raise LaunchError(
                        f"port {self._port} of {self._host} is in use: choose another: {_REMEDY}"
                    ) from None

    def unreachable(self) -> str | None:
        """Return the endpoint if this node does not reach its host, which takes 2 s at most."""
        try:  # without a name server, which may be cut off as well
            socket.create_connection((self._resolved, self._port), timeout=_CONNECT_S).close()
        except ConnectionRefusedError:
            return None  # the host answers: rank 0 has ended
        except OSError:
            return self.endpoint
        return None
