"""Starts the viewer's server: its port, its address, the browser."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

import uvicorn

from otel_rollout.errors import ConfigurationError
from otel_rollout.look.view.access import Access

DEFAULT_PORT: Final = 8642
PORTS_TO_TRY: Final = 50
_UNSPECIFIED: Final = ("0.0.0.0", "::", "")  # noqa: S104 - only compared


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: The name or address of the interface.
        port: The port; None for the default one, or the next that is free.

    Raises:
        ConfigurationError: It can't listen there.
    """
    ports: Iterable[int] = range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TO_TRY) if port is None else [port]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"--host {host}: {error.strerror or error}") from error
    family, _, _, _, address = found[0]
    for each in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # A port whose last connections wait for their end is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address[0], each, *address[2:]))
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise ConfigurationError(f"port {each} of {host}: {error.strerror or error}") from error
        return listener
    raise ConfigurationError(f"the ports {DEFAULT_PORT} to {DEFAULT_PORT + PORTS_TO_TRY - 1} are taken; give a --port")


def names_of(host: str) -> list[str]:
    """Return the names that a request may give to the interface, the best known from outside first."""
    if host not in _UNSPECIFIED:
        return [host]
    own = socket.gethostname()
    addresses = _addresses_of(own)
    outside = _outside_address(socket.AF_INET6 if host == "::" else socket.AF_INET)
    reached = [each for each in addresses if not ip_address(each).is_loopback]
    # A name that leads to this machine only from itself, as in many containers, is of no use outside.
    names = [own, outside] if outside is None or outside in reached else [outside, own]
    return list(dict.fromkeys(name for name in (*names, socket.getfqdn(), *addresses) if name))


def _addresses_of(name: str) -> list[str]:
    try:
        return [str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(name, None)]
    except OSError:
        return []


def _outside_address(family: int) -> str | None:
    """Return the address of the interface that leads out; None without one. Nothing is sent."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        # An address for documentation, which no host has.
        probe.connect(("2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return None


def url_of(listener: socket.socket, host: str, token: str) -> str:
    """Return the address that opens the pages, from other machines too if the host is every interface."""
    name = names_of(host)[0]
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{listener.getsockname()[1]}/?token={token}"


def make_server(application: Access) -> uvicorn.Server:
    """Return a server of the application, which has not started."""
    config = uvicorn.Config(
        application,
        loop="asyncio",
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # A page that waits for changes never ends its request.
        timeout_graceful_shutdown=0,
    )
    return uvicorn.Server(config)


def serve(application: Access, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        application: The application.
        listener: The socket.
        on_start: Called once it answers.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    server = make_server(application)
    threading.Thread(target=_when_started, args=(server, on_start), daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))


def open_browser(url: str) -> bool:
    """Open the address in a browser if there is a display; False if there is none."""
    has_display = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform != "darwin" and not has_display:
        return False
    return webbrowser.open(url)


def _when_started(server: uvicorn.Server, on_start: Callable[[], None]) -> None:
    ended = threading.Event()
    while not server.started and not server.should_exit:
        ended.wait(0.01)
    if server.started:
        on_start()
