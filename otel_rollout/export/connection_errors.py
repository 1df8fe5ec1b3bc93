"""Explain in one line why a request got no answer, with the usual remedy."""

from __future__ import annotations

import errno
import http.client
import os
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from otel_rollout.export.proxies import Proxy

# The first frame of an HTTP/2 server: a gRPC receiver's answer to a request of HTTP/1.1.
_HTTP2_SETTINGS: Final = re.compile(r"\A\x00\x00.\x04\x00", re.DOTALL)
_SPEAKS_GRPC: Final = (
    "speaks gRPC, not HTTP: give its port for HTTP (4318 rather than 4317), or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
)
_SPEAKS_HTTP: Final = (
    "speaks HTTP, not gRPC: give its port for gRPC (4317 rather than 4318), or set "
    "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
)
_NO_TLS: Final = "speaks no TLS: write http:// in place of https://"
_REFUSED: Final = "connection refused: nothing listens on {peer}"
_UNKNOWN_HOST: Final = "unknown host: {host} has no address"


def describe_connection_error(
    error: BaseException, url: str, timeout: float | None = None, *, proxy: Proxy | None = None
) -> str:
    """Return one line on an error of an HTTP client; of the URL it names only host and port."""
    return _described(*_words_for(error, "" if timeout is None else f" within {timeout:g} s"), url, proxy)


def _words_for(error: BaseException, seconds: str) -> tuple[str, str]:
    """Return words on an error, for `_described`, and the reason in them."""
    chain = list(_causes(error, 0))
    for cause in reversed(chain):
        if isinstance(cause, socket.gaierror):
            return _UNKNOWN_HOST, ""
        if isinstance(cause, ConnectionRefusedError):
            return _REFUSED, ""
        if isinstance(cause, http.client.BadStatusLine) and _HTTP2_SETTINGS.match(str(cause)):
            return f"{{place}} {_SPEAKS_GRPC}", ""
        if isinstance(cause, http.client.RemoteDisconnected):
            return "{peer} closed the connection without an answer", ""
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the certificate of {place} isn't trusted: {reason}", cause.verify_message
        if isinstance(cause, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(cause):
            return f"{{place}} {_NO_TLS}", ""
        if isinstance(cause, ConnectionError):
            return "the connection to {peer} broke: {reason}", _reason(cause)
        if isinstance(cause, TimeoutError):
            texts = " ".join(map(str, chain))
            is_connecting = "connect" in texts.lower() and "Read timed out" not in texts
            return f"{'no connection to {peer}' if is_connecting else 'no whole answer of {place}'}{{reason}}", seconds
        if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return "{peer} can't be reached: {reason}", _reason(cause)
    return "{reason}", _first_line(f"{type(error).__name__}: {error}")


def describe_grpc_error(details: str, endpoint: str, *, proxy: Proxy | None = None) -> str:
    """Return one line on a gRPC channel to a URL, or host and port, that got no answer; other details stay."""
    words = "{reason}"
    if "HTTP/2" in details and "frame" in details:
        words = f"{{place}} {_SPEAKS_HTTP}"
    elif "WRONG_VERSION_NUMBER" in details:
        words = f"{{place}} {_NO_TLS}"
    elif "Connection refused" in details:
        words = _REFUSED
    elif "DNS" in details or "Name or service not known" in details:
        words = _UNKNOWN_HOST
    return _described(words, details, endpoint, proxy)


def _described(words: str, reason: str, url: str, proxy: Proxy | None) -> str:
    place, host = _place_and_host(url)
    if proxy is None:
        return words.format(place=place, peer=place, host=host, reason=reason)
    # We connect to the peer; a proxy connects to the place.
    described = words.format(place=place, peer=f"{proxy}, on the way to {place}", host=proxy, reason=reason)
    return described if str(proxy) in described else f"{described}, through {proxy}"


def is_wrong_protocol(described: str) -> bool:
    """Return True for a description of a port that speaks another protocol: trying again doesn't help."""
    return any(words in described for words in (_SPEAKS_GRPC, _SPEAKS_HTTP, _NO_TLS))


def is_before_request(error: BaseException) -> bool:
    """Return True for an error of requests that came before the request was sent: there was no connection."""
    names = {type(cause).__name__ for cause in _causes(error, 0)}
    return not names.isdisjoint({"ConnectTimeoutError", "NewConnectionError", "ProxyError", "SSLError"})


def _causes(error: BaseException, depth: int) -> Iterator[BaseException]:
    """Return an error, and those that it was made of: requests and urllib3 keep them in `args` and `reason`."""
    yield error
    if depth < 8:
        inner = [*error.args, getattr(error, "reason", None), error.__cause__]
        for cause in {id(one): one for one in inner if isinstance(one, BaseException)}.values():
            yield from _causes(cause, depth + 1)


def _place_and_host(url: str) -> tuple[str, str]:
    """Return a URL's host and port, and its host."""
    host = "the server"
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host = str(parts.hostname)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "the server", host
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown, host


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else _first_line(str(error))


def _first_line(text: str) -> str:
    return " ".join(text.split())[:300]
