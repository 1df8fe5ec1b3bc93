"""A tracking server: OTLP for the spans, MLflow's REST API for what stands around them. mlflow is not imported.

Sources: https://mlflow.org/docs/latest/genai/tracing/opentelemetry/ingest/ and
https://mlflow.org/docs/latest/api_reference/rest-api.html
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.http import HttpAnswer, HttpClient, outcome_of_answer
from otel_rollout.export.otlp_encoding import encode_spans
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.attempt import AttemptError, denied
from otel_rollout_mlflow.credentials import Credentials
from otel_rollout_mlflow.store import FINISHED, REWARD_SOURCE, RUN_KEY_TAG, RUN_SETTLED_TAG, Feedback
from otel_rollout_mlflow.trace_info import TRACE_NAME_TAG, trace_infos, with_stored
from otel_rollout_mlflow.translate import otlp_spans

__all__ = ["FIRST_VERSION", "HttpStore"]

FIRST_VERSION: Final = (3, 6)
"""The first version with an OTLP endpoint."""
TEXTS_VERSION: Final = (3, 10)
"""The first tested version that takes JSON text for JSON; to older ones a payload is sent as nested values."""
TAGS_VERSION: Final = (3, 14)
"""The first version that makes trace tags of resource attributes; older ones are told of each trace on its own."""

_DENIED_HINT: Final = (
    "check MLFLOW_TRACKING_URI, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
)
_MISSING: Final = "RESOURCE_DOES_NOT_EXIST"
_TAKEN: Final = "RESOURCE_ALREADY_EXISTS"


class HttpStore:
    """One tracking server.

    Args:
        uri: Its address.
        credentials: How to authenticate.
        timeout: Seconds for a request.
    """

    def __init__(self, uri: str, credentials: Credentials, *, timeout: float = 30.0) -> None:
        self._address, headers = _without_userinfo(uri, credentials.headers)
        self._client = HttpClient(
            headers=headers, timeout=timeout, verify=credentials.verify, cert=credentials.certificate
        )
        self._fault = credentials.fault
        self._version: tuple[int, ...] | None = None

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`, created if there is none."""
        self._check_version()
        for _ in range(2):
            try:
                found = self._get("/api/2.0/mlflow/experiments/get-by-name", {"experiment_name": name})["experiment"]
            except AttemptError as error:
                if not error.is_missing:
                    raise
            else:
                if found.get("lifecycle_stage") == "deleted":
                    raise denied(
                        f"the MLflow experiment {name!r} (id {found['experiment_id']}) is deleted: restore it, "
                        "delete it for good, or choose another name"
                    )
                return str(found["experiment_id"])
            try:
                return str(self._post("/api/2.0/mlflow/experiments/create", {"name": name})["experiment_id"])
            except AttemptError as error:
                # Another worker made it between our two requests: look again.
                if not error.is_taken:
                    raise
        raise AttemptError(Outcome(Verdict.RETRY, f"the MLflow experiment {name!r} is there and not there"))

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        """Store spans, and from version 3.14 their traces' names, tags and sessions."""
        version = self._check_version()
        body = encode_spans(otlp_spans(spans, unwraps_texts=version >= TEXTS_VERSION))
        self._request(
            "POST",
            "/v1/traces",
            body,
            {"Content-Type": "application/x-protobuf", "x-mlflow-experiment-id": experiment_id},
        )

    def trace_infos(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
        """Return what a server before 3.14 is to be told of the traces, each with whether the root was there."""
        return trace_infos(experiment_id, spans) if self._check_version() < TAGS_VERSION else []

    def announce(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Tell what `trace_infos` returned of traces, unless the whole of one was told already."""
        path = "/api/3.0/mlflow/traces"
        for info in infos:
            stored = self._get(f"{path}/{info['trace_id']}", {})["trace"]["trace_info"]
            if TRACE_NAME_TAG not in stored.get("tags", {}):
                self._post(path, {"trace": {"trace_info": with_stored(info, stored)}})

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with a run."""
        # The header of the OTLP endpoint does this too, but a failure there only shows in the server's log.
        self._post("/api/2.0/mlflow/traces/link-to-run", {"trace_ids": list(trace_ids), "run_id": run_id})

    def record(self, rewards: Sequence[Feedback]) -> None:
        """Store at most `MAX_REWARDS` rewards, each in the place of an older one of its trace."""
        for feedback in rewards:
            self._record(feedback)

    def _record(self, feedback: Feedback) -> None:
        path = f"/api/3.0/mlflow/traces/{feedback.trace_id}/assessments"
        moment = datetime.fromtimestamp(feedback.time_ns / 1e9, timezone.utc).isoformat().replace("+00:00", "Z")
        assessment = {
            "assessment_id": feedback.assessment_id,
            "assessment_name": "reward",
            "trace_id": feedback.trace_id,
            "source": {"source_type": "CODE", "source_id": REWARD_SOURCE},
            "create_time": moment,
            "last_update_time": moment,
            "feedback": {"value": feedback.value},
            "metadata": feedback.metadata,
            "valid": True,
        }
        try:
            self._post(path, {"assessment": assessment})
        except AttemptError as error:
            # A second one of this id breaks a constraint of the database, which versions report in different ways.
            if error.is_missing or error.outcome.verdict in (Verdict.RETRY, Verdict.DENIED):
                raise
            path = f"{path}/{feedback.assessment_id}"
            try:
                stored = self._get(path, {})
            except AttemptError as second:
                raise error from second
            if feedback.is_newer_than(stored.get("assessment", {}).get("metadata")):
                self._send("PATCH", path, {"assessment": assessment, "update_mask": "feedback,metadata"})

    def span_ids(self, trace_id: str) -> set[str] | None:
        """Return the ids of the spans that a trace has, in 16 hexadecimal digits; None where they aren't listed."""
        try:
            trace = self._get("/api/3.0/mlflow/traces/get", {"trace_id": trace_id})["trace"]
        except AttemptError as error:
            if error.is_missing:
                return set()
            raise
        spans = trace.get("spans")
        if spans is None:
            return None
        return {base64.b64decode(span["span_id"]).hex() for span in spans}

    def run_status(self, run_id: str) -> str | None:
        """Return the status of a run; None if there is none, or it is deleted."""
        try:
            info = self._get("/api/2.0/mlflow/runs/get", {"run_id": run_id})["run"]["info"]
        except AttemptError as error:
            if error.is_missing or error.outcome.verdict is Verdict.REFUSED:
                return None
            raise
        return None if info.get("lifecycle_stage") == "deleted" else str(info.get("status", ""))

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        """Return the ids of the runs that were made under `key`, the first made first, and whether each is settled."""
        body = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{RUN_KEY_TAG}` = '{key}'",
            "order_by": ["attributes.start_time ASC", "attributes.run_id ASC"],
            "run_view_type": "ACTIVE_ONLY",
        }
        runs = self._post("/api/2.0/mlflow/runs/search", body).get("runs", [])
        return [
            (
                str(run["info"]["run_id"]),
                any(tag["key"] == RUN_SETTLED_TAG for tag in run.get("data", {}).get("tags", [])),
            )
            for run in runs
        ]

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        """Make a run and return its id."""
        body = {
            "experiment_id": experiment_id,
            "run_name": name,
            "start_time": int(time.time() * 1000),
            "tags": [{"key": RUN_KEY_TAG, "value": key}, {"key": "mlflow.runName", "value": name}],
        }
        return str(self._post("/api/2.0/mlflow/runs/create", body)["run"]["info"]["run_id"])

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""
        self._post("/api/2.0/mlflow/runs/delete", {"run_id": run_id})

    def settle_run(self, run_id: str) -> None:
        """Tag a run as the one that those who come later take."""
        self._post("/api/2.0/mlflow/runs/set-tag", {"run_id": run_id, "key": RUN_SETTLED_TAG, "value": "true"})

    def set_run_status(self, run_id: str, status: str) -> None:
        """Mark a run as `RUNNING` or `FINISHED`."""
        body: dict[str, Any] = {"run_id": run_id, "status": status}
        if status == FINISHED:
            body["end_time"] = int(time.time() * 1000)
        self._post("/api/2.0/mlflow/runs/update", body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _check_version(self) -> tuple[int, ...]:
        if self._fault:
            raise denied(self._fault)
        if self._version is None:
            answer = self._client.request("GET", f"{self._address}/version")
            if answer.status not in (200, 404):
                self._raise(answer, f"{self._address}/version")
            match = re.match(rb"(\d+)\.(\d+)", answer.body) if answer.status == 200 else None
            # Something in front of the server that hides its version is no reason to give up.
            version = tuple(int(part) for part in match.groups()) if match else TAGS_VERSION
            if version < FIRST_VERSION:
                needed = ".".join(str(part) for part in FIRST_VERSION)
                raise denied(
                    f"the MLflow server at {self._address} is version {answer.body.decode().strip()[:20]}: it takes "
                    f"no OpenTelemetry spans; {needed} or later is needed"
                )
            self._version = version
        return self._version

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        pairs = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        return self._json(self._request("GET", f"{path}?{pairs}" if pairs else path), path)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        return self._json(self._request(method, path, orjson.dumps(body), headers), path)

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        answer = self._client.request(method, self._address + path, body, headers)
        if not 200 <= answer.status < 300:
            self._raise(answer, self._address + path)
        return answer

    def _raise(self, answer: HttpAnswer, url: str) -> None:
        if answer.status == 0:
            # What answers next may be another version.
            self._version = None
        code = ""
        try:
            body = orjson.loads(answer.body)
            code = str(body.get("error_code", "")) if isinstance(body, dict) else ""
        except orjson.JSONDecodeError:
            pass
        raise AttemptError(
            outcome_of_answer(answer, url, denied_hint=_DENIED_HINT),
            is_missing=code == _MISSING,
            is_taken=code == _TAKEN,
        )

    def _json(self, answer: HttpAnswer, path: str) -> dict[str, Any]:
        try:
            body = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            raise denied(f"{self._address}{path} answered with something else than JSON: is it an MLflow server?")
        return body


def _without_userinfo(uri: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the address without a name and password in it, which would end up in logs, and the headers with them."""
    parts = urlsplit(uri)
    own = dict(headers)
    if "@" not in parts.netloc:
        return uri, own
    userinfo, _, host = parts.netloc.rpartition("@")
    own.setdefault("Authorization", f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}")
    return urlunsplit(parts._replace(netloc=host)), own
