"""A trackio server, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import orjson

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import HttpClient, outcome_of_answer, shown_url
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_trackio.store import Store, StoreError
from otel_rollout_trackio.translate import Conversation

__all__ = ["SERVER_URL", "WRITE_TOKEN", "Server", "ServerStore", "parse_server_url"]

SERVER_URL: Final = "TRACKIO_SERVER_URL"
WRITE_TOKEN: Final = "TRACKIO_WRITE_TOKEN"  # noqa: S105 - the name of a variable


class Server(NamedTuple):
    """A trackio server."""

    url: str
    write_token: str


def parse_server_url(url: str, write_token: str | None) -> Server:
    """Return a server by its URL, whose query may hold the write token.

    Args:
        url: The URL.
        write_token: The token if the URL has none.

    Raises:
        ConfigurationError: It is no URL, or there is no token.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"{SERVER_URL}={shown_url(url)!r}: this should be http://host:port")
    query = parse_qsl(parts.query, keep_blank_values=True)
    token = dict(query).get("write_token") or write_token
    if not token:
        raise ConfigurationError(
            f"{SERVER_URL}={shown_url(url)!r} needs a write token: set {WRITE_TOKEN}; `trackio show` prints it"
        )
    rest = urlencode([pair for pair in query if pair[0] != "write_token"])
    return Server(urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), rest, "")), token)


class ServerStore(Store):
    """A trackio server, over HTTP; this process needs no trackio.

    Args:
        server: The server.
        timeout: Seconds for a request.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        headers = {"X-Trackio-Write-Token": server.write_token, "Content-Type": "application/json"}
        self._client = HttpClient(headers=headers, timeout=timeout)

    def write(self, conversations: Sequence[Conversation]) -> None:
        logs = [
            {
                "project": each.project,
                "run": each.run,
                "run_id": each.run_id,
                "metrics": {each.key: each.trace},
                "step": each.step,
                "log_id": each.log_id,
                "config": None,
            }
            for each in conversations
        ]
        self._ask("bulk_log", {"logs": logs, "hf_token": None})

    def read(self, project: str, run_id: str, log_id: str) -> list[dict[str, Any]]:
        question = {"project": project, "run_id": run_id, "search": log_id, "limit": 10}
        found: list[dict[str, Any]] = self._ask("get_traces", question)
        return found

    def close(self) -> None:
        self._client.close()

    def _ask(self, name: str, question: dict[str, Any]) -> Any:
        base, mark, query = self._server.url.partition("?")
        url = f"{base}/api/{name}{mark}{query}"
        answer = self._client.request("POST", url, orjson.dumps(question))
        outcome = outcome_of_answer(answer, url, configuration_hint=f"set {SERVER_URL} and {WRITE_TOKEN}")
        if answer.status == 400 and b"write_token" in answer.body:
            # trackio has no other status for it.
            outcome = Outcome(Verdict.CONFIGURATION_ERROR, outcome.reason)
        if outcome.verdict is not Verdict.DELIVERED:
            raise StoreError(outcome)
        try:
            return orjson.loads(answer.body)["data"]
        except (ValueError, KeyError, TypeError) as error:
            # A proxy's page, for example: status 200, and nothing stored.
            reason = f"{shown_url(url)} answered with something other than trackio's JSON: {answer.body[:80]!r}"
            raise StoreError(Outcome(Verdict.UNEXPLAINED, reason)) from error
