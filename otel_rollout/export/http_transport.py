"""The transport of requests with one deadline for the whole answer: its own timeout is one for each read."""

from __future__ import annotations

import io
import zlib
from http.client import HTTPResponse
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ProtocolError
from urllib3.util import Timeout

from otel_rollout.guard.clock import monotonic

MAX_BYTES: Final = 32 * 2**20
"""The largest answer: a page of stored spans with their payloads; an answer to spans has some bytes."""


class _DeadlineReader(io.RawIOBase):
    """A socket's bytes until as long after now as its timeout is, however many reads that takes."""

    def __init__(self, sock: Any) -> None:
        timeout = sock.gettimeout()
        self._deadline = None if timeout is None else monotonic() + timeout
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(sock))


class _Pool(HTTPConnectionPool):
    class ConnectionCls(HTTPConnection):
        response_class = _Response


class _SecurePool(HTTPSConnectionPool):
    class ConnectionCls(HTTPSConnection):
        response_class = _Response
        # urllib3 warns at each request of a certificate that isn't checked; `HttpClient` warns once.
        is_verified = property(lambda self: True, lambda self, value: None)


_POOLS: Final = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: Any, **named: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **named)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def new_session() -> requests.Session:
    """Return a session whose answers have a deadline, and come uncompressed or as gzip."""
    session = requests.Session()
    session.mount("http://", _Adapter())
    session.mount("https://", _Adapter())
    session.headers["Accept-Encoding"] = "gzip"
    return session


def deadline_of(seconds: float) -> Any:
    """Return the timeout of a request that takes so long in all: to connect, to send and to be answered."""
    return Timeout(total=seconds)


def read_body(answer: requests.Response) -> bytes | None:
    """Return an answer's body, decompressed; None if it is over `MAX_BYTES`.

    Raises:
        urllib3.exceptions.HTTPError: The connection broke, or the body can't be decompressed.
    """
    body = bytearray()
    for chunk in answer.raw.stream(64 * 1024, decode_content=False):
        body += chunk
        if len(body) > MAX_BYTES:
            return None
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if not body or encoding in ("", "identity"):
        return bytes(body)
    if encoding != "gzip":
        raise ProtocolError(f"the answer is compressed by {encoding[:20]!r}, which was not asked for")
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        text = decompressor.decompress(bytes(body), MAX_BYTES + 1)
    except zlib.error as error:
        raise ProtocolError(f"the answer is no gzip: {error}") from error
    if len(text) > MAX_BYTES:
        return None
    if not decompressor.eof:
        raise ProtocolError("the answer is cut off")
    return text
