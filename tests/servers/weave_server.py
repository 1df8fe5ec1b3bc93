"""A Weave trace server for tests: W&B's own code, on a free loopback port, with faults on demand."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from .process import ServerProcess, answers_http, free_port

__all__ = ["API_KEY", "WeaveServer"]

API_KEY = "0123456789" * 4
"""A key in the form that the server takes: 40 characters."""


class WeaveServer:
    """The trace server of weave 0.53.12.

    Args:
        environment: The virtual environment that it is installed in.
        store: `memory`, or `clickhouse` for the production SQL on an embedded engine; only that shows duplicates.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        environment: Path,
        *,
        store: str = "memory",
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        program = Path(__file__).with_name("weave_trace_server.py")
        self.process = ServerProcess(
            f"weave-{store}",
            [str(environment / "bin" / "python"), str(program), "--port", str(port), "--store", store],
            lambda: answers_http(f"{self.url}/server_info"),
            uncaptured=uncaptured,
        )

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that lead weave, and the exporter, to this server."""
        return {
            "WANDB_BASE_URL": self.url,
            "WF_TRACE_SERVER_URL": self.url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_ERROR_REPORTING": "false",
            "WEAVE_USE_SERVER_CACHE": "false",
            "WEAVE_PRINT_CALL_LINK": "false",
        }

    def set_faults(self, path: str, *faults: int | str | dict[str, Any]) -> None:
        """Answer the next requests whose path holds `path` with these faults, one each.

        Args:
            path: A part of the path.
            *faults: A status; "lost" for an answer of 503 after the request was carried out; or a dict with `status`,
                `headers` and `body`.
        """
        told = []
        for fault in faults:
            if fault == "lost":
                told.append({"path": path, "status": 503, "after_commit": True})
            else:
                told.append({"path": path, **(fault if isinstance(fault, dict) else {"status": fault})})
        self._post("/_faults", told)

    def take_requests(self, path: str = "") -> list[dict[str, Any]]:
        """Return the requests since the last call whose path holds `path`."""
        return [request for request in self._post("/_requests", None) if path in request["path"]]

    def calls(self, project_id: str) -> list[dict[str, Any]]:
        """Return the calls of a project, over HTTP: weave 0.54's client takes a minute for a call of 4 MB."""
        return [json.loads(line) for line in self._body("/calls/stream_query", {"project_id": project_id}).splitlines()]

    def feedback(self, project_id: str) -> list[dict[str, Any]]:
        """Return the feedback of a project."""
        return list(self._post("/feedback/query", {"project_id": project_id})["result"])

    def create_feedback(self, feedback: dict[str, Any]) -> None:
        """Store a piece of feedback."""
        self._post("/feedback/create", feedback)

    def inserts(self) -> dict[str, int]:
        """Return how often each call was stored, by its id; the memory store shows a call only once in any case."""
        return dict(self._post("/_inserts", None))

    def remove_project(self, project_id: str) -> None:
        """Make a project unknown again."""
        self._post("/_remove_project", project_id)

    def make_project(self, project_id: str) -> None:
        """Make a project as the W&B API does."""
        entity, project = project_id.split("/")
        query = "mutation { upsertModel }"
        self._post("/graphql", {"query": query, "variables": {"name": project, "entity": entity}})

    def _post(self, path: str, content: Any) -> Any:
        return json.loads(self._body(path, content))

    def _body(self, path: str, content: Any) -> bytes:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(content).encode(),
            {"Content-Type": "application/json", "wandb-api-key": API_KEY},
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return bytes(answer.read())

    def __enter__(self) -> WeaveServer:  # noqa: PYI034 - typing has Self from 3.11 on
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()
