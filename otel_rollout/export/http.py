"""The HTTP client of exporters, and the outcome of its answers."""

from __future__ import annotations

import email.utils
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from otel_rollout.export.connection_errors import describe_connection_error, is_before_request, is_wrong_protocol
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.proxies import Proxy, proxy_for
from otel_rollout.guard.log_once import warn_once

if TYPE_CHECKING:
    import requests

__all__ = [
    "HttpAnswer",
    "HttpClient",
    "RequestFailedError",
    "destination_of",
    "import_requests",
    "json_object",
    "outcome_of_answer",
    "shown_url",
    "unexpected_answer",
    "without_secrets",
    "without_userinfo",
]

_USERINFO = re.compile(r"[^/?#]*@|[^/?#:\[]*:(?!\d*(?:[/?#]|\Z)).*@", re.DOTALL)
"""The part before the host, even if the password has a character that should be escaped."""
_URL_WITH_USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"\?\S*")


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP answer, or the failure to get one.

    Args:
        status: The HTTP status; 0 without an answer.
        body: The body, decompressed.
        retry_after: Seconds of the `Retry-After` header, if there was one.
        fault: Why there is no answer, in one line.
        is_permanent: A setting is at fault: a bad URL, a certificate that isn't trusted.
        is_unanswered: The request may have been carried out, though its answer was not read.
        media_type: The type of the body, in lower case; empty if the answer names none.
        proxy: The proxy of the environment that the request went to, if any.
    """

    status: int
    body: bytes = b""
    retry_after: float | None = None
    fault: str = ""
    is_permanent: bool = False
    is_unanswered: bool = False
    media_type: str = ""
    proxy: Proxy | None = None


class RequestFailedError(Exception):
    """A request failed.

    Args:
        outcome: The outcome, which decides delivery's next step.
        answer: The answer, if it was one of HTTP.
    """

    def __init__(self, outcome: Outcome, answer: HttpAnswer | None = None) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        self.answer = answer or HttpAnswer(0)


class HttpClient:
    """An HTTP client with connection pooling that never raises.

    Args:
        headers: Sent with each request; a function of them is called again after the server has refused credentials.
        timeout: Seconds for a request in all, from its start to the last byte of the answer.
        verify: Check the server's certificate; or a file of trusted certificates.
        cert: The client certificate: a file, or a pair of certificate and key files.
        configuration_hint: For an auth or configuration error: the settings to check.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        timeout: float = 10.0,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        configuration_hint: str = "",
    ) -> None:
        self.timeout = timeout
        self._headers = headers if callable(headers) else lambda given=dict(headers or {}): given
        self._verify = verify
        self._cert = cert
        self._hint = configuration_hint
        self._session: requests.Session | None = None
        self._pid = os.getpid()

    def _open(self) -> requests.Session:
        from otel_rollout.export.http_transport import new_session

        session = new_session()
        session.headers.update(headers := self._headers())
        if any(name.lower() == "authorization" for name in headers):
            # Else requests replaces our header by a netrc entry of the host.
            session.auth = lambda request: request
        session.cert = self._cert
        if self._verify is False:
            warn_once("unchecked certificates", "certificates of HTTPS servers are not checked, as a setting says")
        return session

    def request(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Make one request and return its answer or its fault; never raises."""
        import requests
        from urllib3.exceptions import HTTPError

        from otel_rollout.export.http_transport import MAX_BYTES, deadline_of, read_body

        proxy = proxy_for(url)
        try:
            session = self._session
            if session is None or self._pid != os.getpid():
                # A forked child must not use its parent's connections.
                self._pid = os.getpid()
                session = self._session = self._open()
            with session.request(
                method,
                url,
                data=body,
                headers=dict(headers or {}),
                timeout=deadline_of(self.timeout),
                allow_redirects=False,
                stream=True,
                # On a session REQUESTS_CA_BUNDLE would precede it.
                verify=self._verify,
            ) as answer:
                found = read_body(answer)
                status, fields = answer.status_code, answer.headers
        except Exception as error:
            # A broken connection is not used again.
            self.close()
            fault = without_secrets(describe_connection_error(error, url, self.timeout, proxy=proxy), url)
            is_passing = isinstance(error, (requests.RequestException, HTTPError)) and not is_wrong_protocol(fault)
            if isinstance(error, requests.exceptions.SSLError):
                # A server that goes away during a handshake is no fault of certificates: "EOF occurred in violation of
                # protocol", or of other versions of OpenSSL, "connection has been closed (EOF)".
                is_passing = is_passing and "EOF" in str(error)
            elif isinstance(error, ValueError):
                # Bad URLs and headers are ValueErrors in requests; so is broken JSON, which it never parses here.
                is_passing = False
            is_unanswered = is_passing and not is_before_request(error)
            return HttpAnswer(0, fault=fault, is_permanent=not is_passing, is_unanswered=is_unanswered)
        if found is None or status in (401, 403):
            # The rest of the answer is not read; the next attempt reads the credentials again.
            self.close()
        if found is None:
            fault = f"the answer is over {MAX_BYTES >> 20} MiB"
            return HttpAnswer(0, fault=fault, is_unanswered=True, proxy=proxy)
        media_type = fields.get("Content-Type", "").partition(";")[0].strip().lower()
        retry_after = _retry_after(fields.get("Retry-After", ""))
        return HttpAnswer(status, found, retry_after, media_type=media_type, proxy=proxy)

    def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Make one request to an API of JSON, and return the answer's object.

        Raises:
            RequestFailedError: There is no answer, a failure, or one without a JSON object.
        """
        answer = self.request(method, url, body, headers)
        outcome = outcome_of_answer(answer, url, configuration_hint=self._hint)
        found = json_object(answer.body)
        if outcome.verdict is Verdict.DELIVERED and found is None:
            outcome = unexpected_answer(answer, url, "JSON", configuration_hint=self._hint)
        if outcome.verdict is not Verdict.DELIVERED:
            raise RequestFailedError(outcome, answer)
        return found or {}

    def close(self) -> None:
        """Close the connections; the next request opens new ones, with headers that are read again."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return a body as a JSON object; None if it isn't one."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def import_requests() -> None:
    """Import requests before threads start: a child forked during an import waits for it for ever."""
    import requests  # noqa: F401


def without_userinfo(url: str) -> str:
    """Return a URL, or a host and port, without user and password."""
    return "".join(_split_userinfo(url)[::2])


def shown_url(url: str) -> str:
    """Return a URL, or a host and port, for a message: without user, password and query."""
    return without_userinfo(url).partition("?")[0]


def destination_of(url: str, headers: Mapping[str, str]) -> str:
    """Return a secret-free id of a destination; equal ids mean the same destination.

    Args:
        url: The URL, or host and port; its user, password and query are hashed.
        headers: Sent with each request, hashed: one can name a project, or its owner.
    """
    secrets = sorted((name.lower(), value) for name, value in headers.items())
    names = [name for name, _ in secrets]
    if (place := shown_url(url)) != url:
        secrets.append(("", url))
        names = names or ["a user name" if without_userinfo(url) != url else "a query"]
    if not secrets:
        return place
    return f"{place} ({', '.join(names)}: {hashlib.sha256(repr(secrets).encode()).hexdigest()[:8]})"


def without_secrets(text: str, url: str) -> str:
    """Return another library's message about `url` without the URL's user, password and query."""
    _, userinfo, rest = _split_userinfo(url)
    # A URL that was split at the wrong place has the start of a password as its port.
    for secret in (userinfo, re.split(r"[/?#]", userinfo)[0]):
        if ":" in secret or secret.endswith("@"):
            text = text.replace(secret, "")
    _, mark, query = rest.partition("?")
    if mark:
        # As given; and as sent, with some characters escaped.
        text = _QUERY.sub("", text.replace(mark + query, ""))
    return _URL_WITH_USERINFO.sub("", text)


def _split_userinfo(url: str) -> tuple[str, str, str]:
    """Return the scheme with its slashes, the user and password with their `@`, and the rest; each may be empty."""
    start = url.find("://") + 3 if "://" in url else 0
    match = _USERINFO.match(url, start)
    end = match.end() if match else start
    return url[:start], url[start:end], url[end:]


def unexpected_answer(answer: HttpAnswer, url: str, expected: str, *, configuration_hint: str = "") -> Outcome:
    """Return the outcome of a success by its status that isn't the `expected` answer: a login page, a proxy's."""
    start = answer.body[:400].lstrip().lower()
    is_page = answer.media_type.endswith("html") or start.startswith((b"<!doctype html", b"<html"))
    kind = "an HTML page: a login or a proxy?" if is_page else f"not with {expected}"
    reason = f"HTTP {answer.status} from {_from(url, answer.proxy)}, but {kind} {_first_line(answer.body)!r}"
    return Outcome(Verdict.CONFIGURATION_ERROR, "; ".join(filter(None, (reason, configuration_hint))))


def _from(url: str, proxy: Proxy | None) -> str:
    return f"{shown_url(url)} through {proxy}" if proxy is not None else shown_url(url)


def outcome_of_answer(answer: HttpAnswer, url: str, *, configuration_hint: str = "") -> Outcome:
    """Return the outcome of an answer.

    Args:
        answer: The answer.
        url: The request's URL, for the message.
        configuration_hint: For an auth or configuration error: the settings to check.
    """
    status = answer.status
    url, place = shown_url(url), _from(url, answer.proxy)
    if 200 <= status < 300:
        return DELIVERED
    if status == 0:
        verdict = Verdict.CONFIGURATION_ERROR if answer.is_permanent else Verdict.RETRY
        return Outcome(verdict, f"{url}: {answer.fault}", is_unanswered=answer.is_unanswered)
    reason = f"HTTP {status} from {place}: {_first_line(answer.body)}".rstrip(": ")
    if status in (404, 405) and urlsplit(url).path.rstrip("/").endswith("/v1/traces/v1/traces"):
        remedy = "the URL has /v1/traces twice: leave it out of OTEL_EXPORTER_OTLP_ENDPOINT, to which it is added"
        return Outcome(Verdict.CONFIGURATION_ERROR, f"{reason}; {remedy}")
    if status in (408, 425, 429, 502, 503, 504):
        return Outcome(Verdict.RETRY, reason, answer.retry_after)
    if status == 413:
        return Outcome(Verdict.TOO_LARGE, reason)
    if status in (400, 422):
        return Outcome(Verdict.REFUSED, reason)
    if status >= 500 and status not in (501, 505):
        # A server answers 500 for one bad span and if it is down.
        return Outcome(Verdict.UNEXPLAINED, reason, answer.retry_after)
    reason = "; ".join(filter(None, (reason, configuration_hint)))
    return Outcome(Verdict.CONFIGURATION_ERROR, reason, answer.retry_after)


def _first_line(body: bytes) -> str:
    lines = body[:400].decode("utf-8", "replace").strip().splitlines()
    return lines[0][:200] if lines and lines[0].isprintable() else ""


def _retry_after(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
