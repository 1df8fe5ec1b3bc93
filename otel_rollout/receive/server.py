"""Runs a receiver: the socket, TLS, signals, and the line on the terminal."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from otel_rollout.errors import ConfigurationError
from otel_rollout.receive.app import PATH
from otel_rollout.receive.receiver import Receiver

SECONDS_TO_END: Final = 10
"""The time for requests that are under way when the server is asked to end."""
MAX_HEAD_BYTES: Final = 2**16
SHOW_SECONDS: Final = 1.0
_BACKLOG: Final = 2048
HEAD_SECONDS: Final = 30.0
CLOSING_SECONDS: Final = 1.0
"""The time for the last bytes of an answer, and for a TLS client to say goodbye: one that is idle never does."""
FOLDER_FILES: Final = 256
_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
MAX_CONNECTIONS: Final = 2**20 if _FILES == resource.RLIM_INFINITY else max(_FILES - FOLDER_FILES, _FILES // 2)
"""The files that the process may have open, less the folder's."""


class Address(NamedTuple):
    """The address to listen on, and the files of its TLS certificate and key."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None


def run_server(
    app: Starlette, receiver: Receiver, address: Address, on_start: Callable[[str], None], show: Callable[[], None]
) -> int:
    """Serve until SIGTERM or SIGINT; then finish the requests that are under way, and close the receiver.

    Args:
        app: The application.
        receiver: The receiver that it serves.
        address: The address.
        on_start: Called with the URL for senders once it listens.
        show: Called each second.

    Returns:
        The signal.

    Raises:
        ConfigurationError: The address can't be listened on, or the certificate or key can't be used.
    """
    config = uvicorn.Config(
        app,
        # Its memory for a head is bounded; httptools takes headers without end.
        http=BoundedConnection,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SECONDS_TO_END,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--certificate {address.certificate}, --key {address.key}: {error}") from error
    with _listen(address) as listener:
        host, port = listener.getsockname()[:2]
        scheme = "http" if address.certificate is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{PATH}"
        return asyncio.run(_serve(uvicorn.Server(config), receiver, listener, lambda: on_start(url), show))


async def _serve(
    server: uvicorn.Server,
    receiver: Receiver,
    listener: socket.socket,
    on_start: Callable[[], None],
    show: Callable[[], None],
) -> int:
    ended_by: list[int] = []

    def end(number: int, _: object) -> None:
        ended_by.append(number)
        server.should_exit = True

    # uvicorn takes the signals while it serves, and raises them again at its end, the first one last, which would kill
    # the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    await receiver.begin()
    on_start()
    tasks = [asyncio.create_task(receiver.work()), asyncio.create_task(_show_often(show))]
    try:
        await server.serve([listener])
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await receiver.close()
    return ended_by[-1]


async def _show_often(show: Callable[[], None]) -> None:
    while True:
        show()
        await asyncio.sleep(SHOW_SECONDS)


def _listen(address: Address) -> socket.socket:
    is_ipv6 = ":" in address.host
    if not 0 <= address.port < 2**16:
        raise ConfigurationError(f"--port {address.port}: a port is a number up to 65535")
    try:
        return socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise ConfigurationError(f"--host {address.host} --port {address.port}: {error}") from error


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

    def shutdown(self) -> None:
        """Close the connection once its request is answered, whether or not the sender closes its side."""
        super().shutdown()
        self.loop.call_later(CLOSING_SECONDS, self._abort_if_closing)

    def _abort_if_closing(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self.loop.call_later(CLOSING_SECONDS, self._abort_if_closing)

    def _watch(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._check, self.cycle)

    def _check(self, last: Any) -> None:
        """Close the connection if the head of a request has not come since `last`; uvicorn does if nothing has."""
        if self.conn.their_state is h11.IDLE and self.cycle is last:
            self.transport.abort()
        else:
            self._watch()
