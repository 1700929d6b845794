"""A store that other hosts cannot reach: by itself torch's listens on all interfaces."""

from __future__ import annotations

import datetime
import socket

from torch.distributed import TCPStore

LOOPBACK = "127.0.0.1"
_PATIENCE = datetime.timedelta(minutes=5)  # torch's own


def store_on_loopback(
    host: str = LOOPBACK, port: int = 0, *, patience: datetime.timedelta = _PATIENCE
) -> TCPStore:
    """Return a store that listens on loopback alone; port 0: any free one. Raises OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.create_server(address[:2], family=family)
    own_port: int = listener.getsockname()[1]
    return TCPStore(
        host,
        own_port,
        is_master=True,
        wait_for_workers=False,
        timeout=patience,
        master_listen_fd=listener.detach(),  # the store closes it
        use_libuv=False,  # which takes no listener in torch 2.6
    )
