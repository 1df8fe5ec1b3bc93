"""A connection within bounds that hold before a token is seen: their number, and the time for the head of a request."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BoundedConnection"]

HEAD_SECONDS: Final = 30.0
FOLDER_FILES: Final = 256


def _max_connections() -> int:
    """Return the number of files that the process may have open, less the folder's."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if most == resource.RLIM_INFINITY else max(most - FOLDER_FILES, most // 2)


MAX_CONNECTIONS: Final = _max_connections()


class BoundedConnection(H11Protocol):
    """Closes itself if there are too many, or if a request's head does not come; senders try again."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._check, self.cycle)

    def _check(self, last: Any) -> None:
        """Close the connection if the head of a request has not come since `last`; uvicorn does if nothing has."""
        if self.conn.their_state is h11.IDLE and self.cycle is last:
            self.transport.abort()
        else:
            self._watch()
