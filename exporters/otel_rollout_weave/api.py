"""The exporter's requests to the W&B API and the trace server."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from otel_rollout.export.http import HttpClient, RequestFailedError, json_object, outcome_of_answer, unexpected_answer
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_weave.settings import CREDENTIALS_HINT, WeaveSettings

IDS_PER_QUESTION: Final = 1000
_JSON: Final = {"Content-Type": "application/json"}

_PROJECT_QUERY: Final = (
    "query Project($name: String!, $entity: String!) { project(name: $name, entityName: $entity) { name } }"
)
_PROJECT_MUTATION: Final = (
    "mutation UpsertModel($name: String!, $entity: String!) "
    "{ upsertModel(input: {name: $name, entityName: $entity}) { model { name } } }"
)
_VIEWER_QUERY: Final = "query DefaultEntity { viewer { username defaultEntity { name } } }"


class WeaveApi:
    """A client of the W&B API and the trace server; each method raises `RequestFailedError`."""

    def __init__(self, settings: WeaveSettings) -> None:
        self.settings = settings
        self._http = HttpClient(
            headers=settings.headers,
            timeout=settings.timeout,
            verify=settings.verify,
            configuration_hint=CREDENTIALS_HINT,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- the W&B API

    def default_entity(self) -> str | None:
        """Return the default entity of the key's owner."""
        viewer = self._graphql(_VIEWER_QUERY, {}).get("viewer") or {}
        return (viewer.get("defaultEntity") or {}).get("name") or viewer.get("username")

    def ensure_project(self, entity: str, project: str) -> str:
        """Create a project if there is none and return its name on the server."""
        variables = {"name": project, "entity": entity}
        found = self._graphql(_PROJECT_QUERY, variables).get("project")
        if not found:
            found = (self._graphql(_PROJECT_MUTATION, variables).get("upsertModel") or {}).get("model")
        if not found:
            raise RequestFailedError(
                Outcome(Verdict.CONFIGURATION_ERROR, f"project {entity}/{project} can't be made; {CREDENTIALS_HINT}")
            )
        return str(found["name"])

    # --- the trace server

    def post_calls(self, project_id: str, calls: Iterable[bytes]) -> None:
        """Store finished calls, each as JSON."""
        entity, project = project_id.split("/")
        path = f"/v2/{quote(entity, safe='')}/{quote(project, safe='')}/calls/complete"
        self._post(path, b'{"batch":[' + b",".join(calls) + b"]}")

    def stored_calls(self, project_id: str, ids: Sequence[str]) -> set[str]:
        """Return the ids of these calls that are stored."""
        found: set[str] = set()
        for start in range(0, len(ids), IDS_PER_QUESTION):
            wanted = {"call_ids": ids[start : start + IDS_PER_QUESTION]}
            question = {"project_id": project_id, "columns": ["id"], "filter": wanted}
            found |= self._ids(f"{self.settings.trace_server_url}/calls/stream_query", orjson.dumps(question))
        return found

    def _ids(self, url: str, question: bytes) -> set[str]:
        answer = self._http.request("POST", url, question, _JSON)
        outcome = outcome_of_answer(answer, url, configuration_hint=CREDENTIALS_HINT)
        rows = [json_object(line) or {} for line in answer.body.splitlines() if line.strip()]
        if outcome.verdict is Verdict.DELIVERED and not all("id" in row for row in rows):
            outcome = unexpected_answer(answer, url, "JSON lines", configuration_hint=CREDENTIALS_HINT)
        if outcome.verdict is not Verdict.DELIVERED:
            raise RequestFailedError(outcome, answer)
        return {str(row["id"]) for row in rows}

    def create_file(self, project_id: str, name: str, content: bytes) -> str:
        """Store a file and return its digest."""
        boundary = uuid.uuid4().hex
        head = f"--{boundary}\r\nContent-Disposition: form-data; name="
        body = (
            f'{head}"project_id"\r\n\r\n{project_id}\r\n'
            f'{head}"file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        ).encode()
        body += content + f"\r\n--{boundary}--\r\n".encode()
        return self._digest("/file/create", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    def create_object(self, project_id: str, object_id: str, value: dict[str, Any]) -> str:
        """Store an object and return its digest; idempotent."""
        wanted = {"obj": {"project_id": project_id, "object_id": object_id, "val": value}}
        return self._digest("/obj/create", orjson.dumps(wanted), _JSON)

    def _digest(self, path: str, body: bytes, headers: Mapping[str, str]) -> str:
        digest = self._post(path, body, headers).get("digest")
        if not isinstance(digest, str):
            # The server is at fault, no span is.
            reason = f"{self.settings.trace_server_url}{path} answered without a digest"
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, f"{reason}; {CREDENTIALS_HINT}"))
        return digest

    def create_feedback(self, feedback: Sequence[dict[str, Any]]) -> None:
        """Store several pieces of feedback."""
        self._post("/feedback/batch/create", orjson.dumps({"batch": list(feedback)}))

    def stored_feedback(self, project_id: str, feedback_type: str, references: Sequence[str]) -> dict[str, list[str]]:
        """Return the ids of the feedback of this type, by reference."""
        found: dict[str, list[str]] = {}
        for start in range(0, len(references), IDS_PER_QUESTION):
            wanted = [{"$literal": reference} for reference in references[start : start + IDS_PER_QUESTION]]
            question = {
                "project_id": project_id,
                "fields": ["id", "weave_ref"],
                "query": {
                    "$expr": {
                        "$and": [
                            {"$eq": [{"$getField": "feedback_type"}, {"$literal": feedback_type}]},
                            {"$in": [{"$getField": "weave_ref"}, wanted]},
                        ]
                    }
                },
            }
            for row in self._post("/feedback/query", orjson.dumps(question)).get("result", ()):
                found.setdefault(row["weave_ref"], []).append(row["id"])
        return found

    def purge_feedback(self, project_id: str, ids: Sequence[str]) -> None:
        """Delete pieces of feedback."""
        wanted = [{"$eq": [{"$getField": "id"}, {"$literal": one}]} for one in ids]
        purge = {"project_id": project_id, "query": {"$expr": wanted[0] if len(wanted) == 1 else {"$or": wanted}}}
        self._post("/feedback/purge", orjson.dumps(purge))

    # --- requests

    def _graphql(self, query: str, variables: dict[str, str]) -> dict[str, Any]:
        url = f"{self.settings.api_url}/graphql"
        body = orjson.dumps({"query": query, "variables": variables})
        answer = self._http.ask("POST", url, body, _JSON)
        if answer.get("errors"):
            message = str(answer["errors"][0].get("message", answer["errors"][0]))[:200]
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, f"{url}: {message}; {CREDENTIALS_HINT}"))
        return answer.get("data") or {}

    def _post(self, path: str, body: bytes, headers: Mapping[str, str] = _JSON) -> dict[str, Any]:
        return self._http.ask("POST", self.settings.trace_server_url + path, body, headers)
