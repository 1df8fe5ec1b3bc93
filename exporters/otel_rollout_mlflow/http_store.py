"""A tracking server: OTLP for spans, MLflow's REST API for the rest. mlflow is not imported.

Sources: https://mlflow.org/docs/latest/genai/tracing/opentelemetry/ingest/ and
https://mlflow.org/docs/latest/api_reference/rest-api.html
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.http import HttpAnswer, HttpClient, RequestFailedError, json_object, outcome_of_answer
from otel_rollout.export.otlp_http import outcome_of_sent
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.facts.reward_parts import REWARD
from otel_rollout.otlp.encoding import encode_spans
from otel_rollout_mlflow.credentials import read_credentials
from otel_rollout_mlflow.payloads import preview_with_reward
from otel_rollout_mlflow.store import (
    FINISHED,
    REWARD_SOURCE,
    RUN_KEY_TAG,
    RUN_SETTLED_TAG,
    AttemptError,
    Feedback,
    Store,
    configuration_error,
    get_or_create_experiment,
    upsert_reward,
)
from otel_rollout_mlflow.translate import TRACE_NAME_TAG, otlp_spans, timestamp, trace_infos, with_stored

FIRST_VERSION: Final = (3, 6)
"""The first version with an OTLP endpoint."""
TEXTS_VERSION: Final = (3, 10)
"""The first tested version that parses JSON text; older ones get a payload as nested values."""
TAGS_VERSION: Final = (3, 14)
"""The first version that makes trace tags of resource attributes; older ones need `announce`."""

PREVIEW_VERSION: Final = (3, 17)
"""The first version on which an upsert of a trace's preview is tested."""

_CONFLICT: Final = re.compile(r"^\(\S+(IntegrityError|UniqueViolation)\)")
"""The beginning of MLflow's message if another request has stored the same row meanwhile: it answers 400, not 409."""
ATTEMPTS_IN_CONFLICT: Final = 4

_CONFIGURATION_HINT: Final = (
    "check MLFLOW_TRACKING_URI, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
)


class HttpStore(Store):
    """One tracking server; `timeout` is in seconds, for a request."""

    def __init__(self, uri: str, *, timeout: float = 30.0) -> None:
        credentials = read_credentials()
        self._address, _ = _without_userinfo(uri, {})
        self._client = HttpClient(
            # Read again after the server has refused them: a token may have been renewed.
            headers=lambda: _without_userinfo(uri, read_credentials().headers)[1],
            timeout=timeout,
            verify=credentials.verify,
            cert=credentials.certificate,
            configuration_hint=_CONFIGURATION_HINT,
        )
        self._fault = credentials.fault
        self._version: tuple[int, ...] | None = None

    def ensure_experiment(self, name: str) -> str:
        self._check_version()

        def find() -> tuple[str, bool] | None:
            try:
                found = self._get("/api/2.0/mlflow/experiments/get-by-name", {"experiment_name": name})["experiment"]
            except AttemptError as error:
                if error.is_missing:
                    return None
                raise
            return str(found["experiment_id"]), found.get("lifecycle_stage") == "deleted"

        def create() -> str:
            return str(self._post("/api/2.0/mlflow/experiments/create", {"name": name})["experiment_id"])

        return get_or_create_experiment(name, find, create)

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        version = self._check_version()
        body = encode_spans(otlp_spans(spans, unwraps_texts=version >= TEXTS_VERSION))
        headers = {"Content-Type": "application/x-protobuf", "x-mlflow-experiment-id": experiment_id}
        url = f"{self._address}/v1/traces"
        answer = self._client.request("POST", url, body, headers)
        outcome = outcome_of_sent(answer, url, len(spans), _CONFIGURATION_HINT)
        if outcome.rejected:
            # Halving the batch finds the span at fault; the others are stored once.
            outcome = Outcome(Verdict.REFUSED, outcome.reason)
        if outcome.verdict is not Verdict.DELIVERED:
            raise self._failure(RequestFailedError(outcome, answer))

    def trace_infos(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
        return trace_infos(experiment_id, spans) if self._check_version() < TAGS_VERSION else []

    def announce(self, infos: Sequence[Mapping[str, Any]]) -> None:
        path = "/api/3.0/mlflow/traces"
        for info in infos:
            stored = self._get(f"{path}/{info['trace_id']}")["trace"]["trace_info"]
            if TRACE_NAME_TAG not in stored.get("tags", {}):
                self._post(path, {"trace": {"trace_info": with_stored(info, stored)}})

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        # A header of the OTLP endpoint does this too, but its failures only show in the server's log.
        self._post("/api/2.0/mlflow/traces/link-to-run", {"trace_ids": list(trace_ids), "run_id": run_id})

    def record(self, rewards: Sequence[Feedback]) -> None:
        for feedback in rewards:
            self._record(feedback)

    def _record(self, feedback: Feedback) -> None:
        path = f"/api/3.0/mlflow/traces/{feedback.trace_id}/assessments"
        moment = timestamp(feedback.time_ns)
        assessment = {
            "assessment_id": feedback.assessment_id,
            "assessment_name": feedback.name,
            "trace_id": feedback.trace_id,
            "source": {"source_type": "CODE", "source_id": REWARD_SOURCE},
            "create_time": moment,
            "last_update_time": moment,
            "feedback": {"value": feedback.value},
            "metadata": feedback.metadata,
            "valid": True,
            **({"rationale": feedback.rationale} if feedback.rationale else {}),
        }
        own_path = f"{path}/{feedback.assessment_id}"
        update = {"assessment": assessment, "update_mask": "feedback,rationale,metadata"}
        is_written = upsert_reward(
            feedback,
            lambda: self._post(path, {"assessment": assessment}),
            lambda: self._get(own_path).get("assessment", {}).get("metadata"),
            lambda: self._call("PATCH", own_path, update),
        )
        if is_written and feedback.is_late and feedback.name == REWARD and self._check_version() >= PREVIEW_VERSION:
            self._rewrite_preview(feedback)

    def _rewrite_preview(self, reward: Feedback) -> None:
        """Have MLflow's list show a reward that came after the end of its trajectory."""
        path = "/api/3.0/mlflow/traces"
        info = self._get(f"{path}/{reward.trace_id}")["trace"]["trace_info"]
        old = info.get("response_preview")
        new = preview_with_reward(old, float(reward.value))
        if new != old:
            self._post(path, {"trace": {"trace_info": {**info, "response_preview": new}}})

    def span_ids(self, trace_id: str) -> set[str] | None:
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
        try:
            info = self._get("/api/2.0/mlflow/runs/get", {"run_id": run_id})["run"]["info"]
        except AttemptError as error:
            if error.is_missing or error.outcome.verdict is Verdict.REFUSED:
                return None
            raise
        return None if info.get("lifecycle_stage") == "deleted" else str(info.get("status", ""))

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        body = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{RUN_KEY_TAG}` = '{key}'",
            "order_by": ["attributes.start_time ASC", "attributes.run_id ASC"],
            "run_view_type": "ACTIVE_ONLY",
        }
        runs = self._post("/api/2.0/mlflow/runs/search", body).get("runs", [])
        tags = [{tag["key"] for tag in run.get("data", {}).get("tags", [])} for run in runs]
        return [(str(run["info"]["run_id"]), RUN_SETTLED_TAG in found) for run, found in zip(runs, tags, strict=True)]

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        body = {
            "experiment_id": experiment_id,
            "run_name": name,
            "start_time": int(time.time() * 1000),
            "tags": [{"key": RUN_KEY_TAG, "value": key}, {"key": "mlflow.runName", "value": name}],
        }
        return str(self._post("/api/2.0/mlflow/runs/create", body)["run"]["info"]["run_id"])

    def delete_run(self, run_id: str) -> None:
        self._post("/api/2.0/mlflow/runs/delete", {"run_id": run_id})

    def settle_run(self, run_id: str) -> None:
        self._post("/api/2.0/mlflow/runs/set-tag", {"run_id": run_id, "key": RUN_SETTLED_TAG, "value": "true"})

    def set_run_status(self, run_id: str, status: str) -> None:
        body: dict[str, Any] = {"run_id": run_id, "status": status}
        if status == FINISHED:
            body["end_time"] = int(time.time() * 1000)
        self._post("/api/2.0/mlflow/runs/update", body)

    def close(self) -> None:
        self._client.close()

    def _check_version(self) -> tuple[int, ...]:
        if self._fault:
            raise configuration_error(self._fault)
        if self._version is None:
            url = f"{self._address}/version"
            answer = self._client.request("GET", url)
            if answer.status not in (200, 404):
                outcome = outcome_of_answer(answer, url, configuration_hint=_CONFIGURATION_HINT)
                raise self._failure(RequestFailedError(outcome, answer))
            match = re.match(rb"(\d+)\.(\d+)", answer.body) if answer.status == 200 else None
            # A proxy may hide the server's version.
            version = tuple(int(part) for part in match.groups()) if match else TAGS_VERSION
            if version < FIRST_VERSION:
                needed = ".".join(str(part) for part in FIRST_VERSION)
                raise configuration_error(
                    f"the MLflow server at {self._address} is version {answer.body.decode().strip()[:20]}: it takes "
                    f"no OpenTelemetry spans; {needed} or later is needed"
                )
            self._version = version
        return self._version

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._call("GET", f"{path}?{urlencode(query, safe='', quote_via=quote)}" if query else path)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make a request to the REST API and return the answer's JSON object.

        A request that met another one in the database has changed nothing, and is repeated: it finds the other's row.
        """
        given = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        attempts = ATTEMPTS_IN_CONFLICT
        while True:
            attempts -= 1
            try:
                return self._client.ask(method, self._address + path, given, headers)
            except RequestFailedError as failure:
                if not attempts or not _is_conflict(failure.answer):
                    raise self._failure(failure) from failure

    def _failure(self, failure: RequestFailedError) -> AttemptError:
        if failure.answer.status == 0:
            # The next answer may be another version's.
            self._version = None
        code = (json_object(failure.answer.body) or {}).get("error_code")
        return AttemptError(
            failure.outcome,
            is_missing=code == "RESOURCE_DOES_NOT_EXIST",
            is_taken=code == "RESOURCE_ALREADY_EXISTS",
        )


def _is_conflict(answer: HttpAnswer) -> bool:
    """Return True if the database refused the request because another one wrote the same row first."""
    return answer.status == 400 and bool(_CONFLICT.match(str((json_object(answer.body) or {}).get("message", ""))))


def _without_userinfo(uri: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the address without user and password, which must not be logged, and the headers with them."""
    parts = urlsplit(uri)
    own = dict(headers)
    if "@" not in parts.netloc:
        return uri, own
    userinfo, _, host = parts.netloc.rpartition("@")
    own.setdefault("Authorization", f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}")
    return urlunsplit(parts._replace(netloc=host)), own
