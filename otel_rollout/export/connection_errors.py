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
_TRACES_PATH: Final = "/v1/traces"
MAX_CHARACTERS: Final = 300
MAX_DEPTH: Final = 8


def describe_connection_error(
    error: BaseException, url: str, timeout: float | None = None, *, proxy: Proxy | None = None
) -> str:
    """Return one line on an error of an HTTP client.

    Args:
        error: The error, with its causes.
        url: The request's URL; of it only host and port are named.
        timeout: Seconds that the request had.
        proxy: The proxy that the request went to.
    """
    described = _described(error, url, timeout, proxy)
    return described if proxy is None or str(proxy) in described else f"{described}, through {proxy}"


def _described(error: BaseException, url: str, timeout: float | None, proxy: Proxy | None) -> str:
    place = _place(url)
    # We connect to the peer; a proxy connects to the place.
    peer, host = (place, _host(url)) if proxy is None else (f"{proxy}, on the way to {place}", str(proxy))
    chain = list(_causes(error, 0))
    texts = " ".join(map(str, chain))
    seconds = "" if timeout is None else f" within {timeout:g} s"
    for cause in reversed(chain):
        if isinstance(cause, socket.gaierror):
            return f"unknown host: {host} has no address"
        if isinstance(cause, ConnectionRefusedError):
            return f"connection refused: nothing listens on {peer}"
        if isinstance(cause, http.client.BadStatusLine) and _HTTP2_SETTINGS.match(str(cause)):
            return f"{place} {_SPEAKS_GRPC}"
        if isinstance(cause, http.client.RemoteDisconnected):
            return f"{peer} closed the connection without an answer"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {place} isn't trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(cause):
            return f"{place} {_NO_TLS}"
        if isinstance(cause, ConnectionError):
            return f"the connection to {peer} broke: {_reason(cause)}"
        if isinstance(cause, TimeoutError):
            is_connecting = "connect" in texts.lower() and "Read timed out" not in texts
            return f"no connection to {peer}{seconds}" if is_connecting else f"no whole answer of {place}{seconds}"
        if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return f"{peer} can't be reached: {_reason(cause)}"
    return _first_line(f"{type(error).__name__}: {error}")


def describe_grpc_error(details: str, endpoint: str, *, proxy: Proxy | None = None) -> str:
    """Return one line on a gRPC channel that got no answer; other details stay as they are.

    Args:
        details: The status's details.
        endpoint: The URL, or the host and port.
        proxy: The proxy that the channel goes to.
    """
    place = _place(endpoint)
    described, peer, host = details, place, _host(endpoint)
    if proxy is not None:
        peer, host = f"{proxy}, on the way to {place}", str(proxy)
    if "HTTP/2" in details and "frame" in details:
        described = f"{place} {_SPEAKS_HTTP}"
    elif "WRONG_VERSION_NUMBER" in details:
        described = f"{place} {_NO_TLS}"
    elif "Connection refused" in details:
        described = f"connection refused: nothing listens on {peer}"
    elif "DNS" in details or "Name or service not known" in details:
        described = f"unknown host: {host} has no address"
    return described if proxy is None or str(proxy) in described else f"{described}, through {proxy}"


def is_wrong_protocol(described: str) -> bool:
    """Return True for a description of a port that speaks another protocol: trying again doesn't help."""
    return any(words in described for words in (_SPEAKS_GRPC, _SPEAKS_HTTP, _NO_TLS))


def is_before_request(error: BaseException) -> bool:
    """Return True for an error of requests that came before the request was sent: there was no connection."""
    names = {type(cause).__name__ for cause in _causes(error, 0)}
    return not names.isdisjoint({"ConnectTimeoutError", "NewConnectionError", "ProxyError", "SSLError"})


def describe_status(status: int, url: str) -> str:
    """Return the remedy for an HTTP status that a wrong URL explains; empty if there is none."""
    path = urlsplit(url).path.rstrip("/")
    if status in (404, 405) and path.endswith(_TRACES_PATH * 2):
        return "the URL has /v1/traces twice: leave it out of OTEL_EXPORTER_OTLP_ENDPOINT, to which it is added"
    return ""


def _causes(error: BaseException, depth: int) -> Iterator[BaseException]:
    """Return an error, and those that it was made of: requests and urllib3 keep them in `args` and `reason`."""
    yield error
    if depth < MAX_DEPTH:
        inner = [*error.args, getattr(error, "reason", None), error.__cause__]
        for cause in {id(one): one for one in inner if isinstance(one, BaseException)}.values():
            yield from _causes(cause, depth + 1)


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"//{url}"


def _host(url: str) -> str:
    try:
        return str(urlsplit(_with_scheme(url)).hostname)
    except ValueError:
        return "the server"


def _place(url: str) -> str:
    """Return a URL's host and port."""
    try:
        parts = urlsplit(_with_scheme(url))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "the server"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{port}" if port else str(host)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else _first_line(str(error))


def _first_line(text: str) -> str:
    return " ".join(text.split())[:MAX_CHARACTERS]
