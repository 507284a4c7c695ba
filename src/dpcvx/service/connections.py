"""Settings of the HTTP server: limits on connections that send little, slowly, or too much."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["server_config"]

REQUEST_SECONDS = 20.0  # from the first byte of a request, or from the connection, to the end of its body
HEADER_LIMIT = 16 * 1024  # bytes of the request line and headers that may wait for the rest of them
GRACE = 60  # seconds that open requests may take after the server was told to stop


class TimedConnection(H11Protocol):
    """A connection that is closed if a request is not complete after `REQUEST_SECONDS`.

    The server's own timer starts after an answer and stops at the next byte, so that a request sent byte by
    byte, or never, would hold its connection for ever.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        # An answer is written in two parts. Without this the second waits 40 ms for the first to arrive;
        # asyncio does it only for sockets that were opened with the number of the protocol.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read bytes, which may be part of a request, or of several."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()  # the request is complete
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server_config(app: Any, *, grace: int = GRACE, log_level: str = "warning") -> uvicorn.Config:
    """Return the settings of a server for the service."""
    return uvicorn.Config(
        app,
        http=TimedConnection,
        ws="none",
        h11_max_incomplete_event_size=HEADER_LIMIT,
        server_header=False,
        timeout_graceful_shutdown=grace,
        # Its own settings of logging would close the handlers of the whole process, and their streams.
        log_config=None,
        log_level=log_level,
    )
