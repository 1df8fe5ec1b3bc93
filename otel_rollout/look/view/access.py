"""The viewer's access control: the token, the Host check, and the response headers that isolate its pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_rollout.look.view.answers import error_answer

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
API: Final = "/api/"

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_UNKNOWN: Final = (
    "this needs the token: open the address that `otel-rollout view` printed, "
    "or send the header `Authorization: Bearer TOKEN`"
)


def new_token() -> str:
    """Return a random token for an address."""
    return secrets.token_urlsafe(24)


def host_of(header: str) -> str:
    """Return the host of a Host header, without port and brackets, in lower case; empty if it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Access:
    """Lets requests through that have the token and name an allowed host.

    The pages' own files need no token, as they hold no data: a link from another site brings no SameSite cookie. An
    address with `?token=` sets the cookie, and leads to the address without it.

    Args:
        app: The protected application.
        token: The token.
        hosts: The hosts that a request may name, besides the loopback interface's.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._once: set[str] = set()
        self._hosts = LOOPBACK | {host.lower().strip("[]") for host in hosts}
        # A cookie belongs to all ports of a host, where another viewer may listen.
        self._cookie = f"otel-rollout-view-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    def token_for_once(self) -> str:
        """Return a token that opens the pages once: a browser's command line can be read by other users."""
        token = new_token()
        self._once.add(token)
        return token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith(API) else "no-cache")
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if (name := host_of(host)) not in self._hosts:
            remedy = f": start it with --allow-host {name}" if name else ""
            return error_answer(403, f"the host {host!r} is not one of this viewer's{remedy}")
        if "\0" in scope["path"]:
            return error_answer(404, "no path has a zero byte")
        if scope["method"] not in ("GET", "HEAD"):
            return error_answer(405, "only GET is answered here")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if given and not scope["path"].startswith(API):
            return self._visit(given[0])
        if scope["path"].startswith(API) and not self._is_known(headers):
            return error_answer(401, _UNKNOWN)
        return None

    def _visit(self, given: str) -> Response:
        if given in self._once:
            self._once.discard(given)
        elif not self._is_token(given):
            return error_answer(401, "the token is another one: open the address that `otel-rollout view` printed last")
        # Relative, without a path: the browser may use another path for this place, as behind a proxy.
        answer = Response(status_code=303, headers={"Location": "./"})
        answer.set_cookie(self._cookie, self._token, path=None, httponly=True, samesite="strict")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        # Python's own parser stops at names that other programs of this host may use.
        return self._is_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, ""))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
