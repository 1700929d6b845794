"""A webhook on this machine: what it got, and what it answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "T000-B000-a-secret"  # the path of each URL


class ReceivedMessages:
    """The server's answers and what it received; ``release`` ends the answers that hang."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{SECRET}"
        self.release = threading.Event()
        self.requests: list[tuple[str, str, str]] = []  # method, path and type of the content
        self.bodies: list[bytes] = []


@contextlib.contextmanager
def webhook(status: int | None = 200, **headers: str) -> Iterator[ReceivedMessages]:
    """Serve a webhook that answers with this status. None: it hangs until it is released."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.requests.append((self.command, self.path, self.headers["Content-Type"]))
            received.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            if status is None:
                received.release.wait()
            with contextlib.suppress(OSError):  # who hung up gets no answer
                self.send_response(status or 200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = ReceivedMessages(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield received
        finally:
            received.release.set()
            server.shutdown()
            thread.join()
