"""The driver of a launch, as the server at the other end of its channel sees it."""

from __future__ import annotations

import time
from multiprocessing.connection import wait

import msgspec

from ddp_perf.launch.protocol import Answer, Channel, EndRequest, Request

_REQUEST: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_IDLE_S = 60.0  # a connection that is silent for longer may be closed on the way


class EndedError(Exception):
    """The driver asks for the end of the launch."""


class Driver:
    """The driver, which sends requests and reads answers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def next(self) -> Request:
        """Return the next request. Raises EOFError.

        An idle server beats, too: what lies between may close a connection that is silent.
        """
        while (data := self._channel.receive(_IDLE_S)) is None:
            self._channel.beat()
        return _REQUEST.decode(data)

    def answer(self, answer: Answer) -> None:
        """Send the answer to the last request. Raises BrokenPipeError."""
        self._channel.send(msgspec.json.encode(answer))

    def fileno(self) -> int:
        """Return the descriptor that is ready when the driver has sent something, or ended."""
        return self._channel.fileno()

    def beat(self) -> None:
        """Give a sign of life."""
        self._channel.beat()

    def check(self, patience_s: float = 0.0) -> None:
        """Raise EOFError if the driver ends in this time, and EndedError if it asks for the end.

        It gets signs of life meanwhile.
        """
        end = time.monotonic() + patience_s
        while not (self._channel.pending or wait([self.fileno()], min(patience_s, 1.0))):
            self.beat()
            if time.monotonic() >= end:
                return
        if isinstance(self.next(), EndRequest):
            raise EndedError
        raise EOFError  # a driver sends nothing else during a launch

    def close(self) -> None:
        """Close the channel in a fork of this process."""
        self._channel.close()
