"""A Phoenix server for tests, and the part of its REST API that reads spans back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from .process import ServerProcess, answers_http, free_port, listens

__all__ = ["Phoenix", "PhoenixApi"]

PAGE_SIZE = 1000


class PhoenixApi:
    """What tests read back.

    Args:
        address: The server's base address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._session = requests.Session()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def spans(self, project: str, **filters: str) -> list[dict[str, Any]]:
        """Return a project's spans; none if the project does not exist yet.

        Args:
            project: Its name.
            filters: Query parameters of Phoenix, such as attribute="rollout.step:7" or name="trajectory".
        """
        return self._pages(f"/v1/projects/{quote(project, safe='')}/spans", filters)

    def traces(self, project: str) -> list[dict[str, Any]]:
        """Return a project's traces, each with its spans."""
        return self._pages(f"/v1/projects/{quote(project, safe='')}/traces", {"include_spans": "true"}, page_size=100)

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        return [project["name"] for project in self._pages("/v1/projects", {})]

    def search(self, project: str, condition: str) -> set[str]:
        """Return the ids of the spans that a condition finds, as typed into the filter bar of Phoenix's pages.

        Args:
            project: The project's name.
            condition: Such as "metadata['step'] == 7".
        """
        query = """
            query ($name: String!, $condition: String!) {
              getProjectByName(name: $name) {
                spans(filterCondition: $condition, first: 1000) { edges { node { spanId } } }
              }
            }
        """
        body = {"query": query, "variables": {"name": project, "condition": condition}}
        answer = self._session.post(self.address + "/graphql", json=body, timeout=60)
        answer.raise_for_status()
        assert "errors" not in answer.json(), answer.text
        edges = answer.json()["data"]["getProjectByName"]["spans"]["edges"]
        return {edge["node"]["spanId"] for edge in edges}

    def sessions(self, project: str) -> list[dict[str, Any]]:
        """Return a project's sessions, each with its traces."""
        return self._pages(f"/v1/projects/{quote(project, safe='')}/sessions", {})

    def annotations(self, project: str, of: str, **filters: list[str]) -> list[dict[str, Any]]:
        """Return a project's annotations.

        Args:
            project: Its name, without a slash.
            of: "span", "trace" or "session".
            filters: Query parameters of Phoenix, of which one is needed, such as identifier=["otel-rollout"].
        """
        return self._pages(f"/v1/projects/{quote(project, safe='')}/{of}_annotations", filters)

    def wait_for_spans(self, project: str, count: int, *, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return a project's spans as soon as there are at least so many.

        Args:
            project: Its name.
            count: How many are expected.
            seconds: How long Phoenix may go without showing any more of them.

        Raises:
            AssertionError: No span came for that long while some were missing.
        """
        best, deadline = -1, time.monotonic() + seconds
        while True:
            found = self.spans(project)
            if len(found) >= count:
                return found
            if len(found) > best:
                best, deadline = len(found), time.monotonic() + seconds
            assert time.monotonic() < deadline, f"{len(found)} of {count} spans of {project} readable"
            time.sleep(0.25)

    def wait_until_quiet(self, project: str, *, seconds: float = 5.0) -> None:
        """Wait until no more spans have become readable for that long: Phoenix shows them later than it takes them."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < seconds:
            found = len(self.spans(project))
            if found != count:
                count, since = found, time.monotonic()
            time.sleep(0.5)

    def _pages(self, path: str, query: Mapping[str, Any], *, page_size: int = PAGE_SIZE) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = {**query, "limit": str(page_size), **({"cursor": cursor} if cursor else {})}
            answer = self._session.get(self.address + path, params=page, timeout=60)
            if answer.status_code == 404:
                return found
            answer.raise_for_status()
            body = answer.json()
            found += body["data"]
            cursor = body.get("next_cursor")
            if not cursor:
                return found


class Phoenix:
    """A Phoenix with a store of its own on free ports.

    Args:
        environment: The virtual environment that arize-phoenix is installed in.
        folder: See `ServerProcess`.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        environment: Path,
        *,
        folder: Path | None = None,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        http, grpc = free_port(), free_port()
        self.address = f"http://127.0.0.1:{http}"
        self.grpc_address = f"http://127.0.0.1:{grpc}"
        self.api = PhoenixApi(self.address)
        self.process = ServerProcess(
            "Phoenix",
            [str(environment / "bin" / "phoenix"), "serve"],
            lambda: answers_http(f"{self.address}/healthz") and listens(grpc),
            environment={
                "PHOENIX_HOST": "127.0.0.1",
                "PHOENIX_PORT": str(http),
                "PHOENIX_GRPC_PORT": str(grpc),
                "PHOENIX_TELEMETRY_ENABLED": "false",
                # The assistant has a shell and web access on the server.
                "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
                "PHOENIX_AGENTS_DISABLE_BASH": "true",
                "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
            },
            folder=folder,
            uncaptured=uncaptured,
        )
        self.process.add_environment(PHOENIX_WORKING_DIR=str(self.process.folder))

    def endpoint(self, protocol: str) -> str:
        """Return the OTLP endpoint for a value of OTEL_EXPORTER_OTLP_PROTOCOL."""
        return self.grpc_address if protocol == "grpc" else self.address

    def start(self) -> None:
        """Start it, with what it stored before."""
        self.process.start()

    def stop(self) -> None:
        """Stop it; what it stored stays."""
        self.process.stop()

    def __enter__(self) -> Phoenix:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.api.close()
        self.stop()
