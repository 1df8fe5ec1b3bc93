"""The stores of conversations: trackio's folder, which its own process writes to, and a server over HTTP."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import orjson

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.http import HttpClient, RequestFailedError, shown_url
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.worker_process import Worker, WorkerGoneError
from otel_rollout.settings import Setting, read_text
from otel_rollout_trackio.translate import Conversation


class Store(abc.ABC):
    """A destination of conversations; each method raises `RequestFailedError`."""

    @abc.abstractmethod
    def write(self, conversations: Sequence[Conversation]) -> None:
        """Store conversations; one that is stored already stays as it is."""

    @abc.abstractmethod
    def read(self, project: str, run_id: str, log_id: str) -> list[dict[str, Any]]:
        """Return the stored trackio traces whose id or metadata have `log_id`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect."""


WORKER: Final = "otel_rollout_trackio.worker"
DIR: Final = Setting("TRACKIO_DIR", read_text, None, "the folder; unset: `trackio` in `HF_HOME`", "folder")
SERVER_URL: Final = Setting(
    "TRACKIO_SERVER_URL", read_text, None, "a trackio server, instead of the folder", "server_url"
)
WRITE_TOKEN: Final = Setting("TRACKIO_WRITE_TOKEN", str, None, "its write token, if the URL has none", "write_token")


def default_folder() -> Path:
    """Return the folder that trackio takes if it is given none."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(DIR.value() or Path(os.path.expandvars(home)).expanduser() / "trackio")


class FolderStore(Store):
    """trackio's folder, written to by a child process: trackio's import is not this process's."""

    def __init__(self, folder: Path) -> None:
        # Nothing of trackio's asks the Hub: without the variable, huggingface_hub may.
        self._environment = {str(DIR): str(folder), "HF_HUB_OFFLINE": "1"}
        self._worker = Worker(WORKER, self._environment, "trackio's folder")

    def write(self, conversations: Sequence[Conversation]) -> None:
        self._call({"method": "write", "conversations": [conversation._asdict() for conversation in conversations]})

    def read(self, project: str, run_id: str, log_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call(
            {"method": "read", "project": project, "run_id": run_id, "search": log_id}
        )
        return found

    def close(self) -> None:
        self._worker.close()

    def _call(self, request: dict[str, Any]) -> Any:
        body = orjson.dumps(request)
        try:
            answer = self._worker.call(body) if self._worker.start() else _answer_here(body, self._environment)
        except WorkerGoneError as error:
            raise RequestFailedError(Outcome(Verdict.RETRY, str(error), is_unanswered=True)) from error
        result = orjson.loads(answer)
        if "verdict" in result:
            raise RequestFailedError(Outcome(Verdict(result["verdict"]), result["reason"]))
        return result["found"]


def _answer_here(body: bytes, environment: dict[str, str]) -> bytes:
    # trackio reads the folder when it is imported; HF_HUB_OFFLINE would change the program's own downloads.
    os.environ[str(DIR)] = environment[str(DIR)]
    from otel_rollout_trackio.worker import answer

    return answer(body)


class Server(NamedTuple):
    """A trackio server."""

    url: str
    write_token: str


def parse_server_url(url: str, write_token: str | None) -> Server:
    """Return a server by its URL, whose query may hold the write token; else it is `write_token`.

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
    """A trackio server, over HTTP; this process needs no trackio."""

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        headers = {"X-Trackio-Write-Token": server.write_token, "Content-Type": "application/json"}
        self._client = HttpClient(
            headers=headers, timeout=timeout, configuration_hint=f"set {SERVER_URL} and {WRITE_TOKEN}"
        )

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
        try:
            return self._client.ask("POST", url, orjson.dumps(question))["data"]
        except KeyError as error:
            reason = f"{shown_url(url)} answered without `data`: is it a trackio server?"
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, reason)) from error
        except RequestFailedError as failure:
            if failure.answer.status == 400 and b"write_token" in failure.answer.body:
                # trackio has no other status for it.
                raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, str(failure))) from failure
            raise
