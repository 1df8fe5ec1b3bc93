"""The requests to Phoenix's REST API.

Source: https://arize.com/docs/phoenix/sdk-api-reference/rest-api/overview
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from otel_rollout.export.http import HttpClient, RequestFailedError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_phoenix.annotations import IDENTIFIER, TIME_KEY, Annotation

CONFIGURATION_HINT: Final = "check PHOENIX_COLLECTOR_ENDPOINT, PHOENIX_API_KEY and PHOENIX_CLIENT_HEADERS"
PAGE: Final = 10_000
PROJECTS: Final = 1000
MAX_PAGES: Final = 100
_JSON: Final = {"accept": "application/json", "content-type": "application/json"}
_NOT_IN_A_PATH: Final = re.compile(r"[/?#]")
_SPAN_ID: Final = re.compile(r"\b[0-9a-f]{16}\b")


class PhoenixApi:
    """Requests to one Phoenix, by a client with the credentials; each makes one attempt."""

    def __init__(self, client: HttpClient, address: str) -> None:
        self._client = client
        self._address = address
        self._ids: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def annotate(self, annotations: Sequence[Annotation]) -> set[str]:
        """Upsert annotations, and return the ids of the spans that Phoenix has not stored yet.

        Raises:
            RequestFailedError: Phoenix did not answer, or refused.
        """
        missing: set[str] = set()
        # Phoenix takes all records of a request, or none.
        while unknown := self._annotate_spans(annotations):
            missing |= unknown
            annotations = [each for each in annotations if each.span_id not in unknown]
        totals = [each for each in annotations if each.is_total]
        self._post("trace_annotations", [each.trace_record() for each in totals])
        self._post("session_annotations", [each.session_record() for each in totals if each.session_id])
        return missing

    def stored_times(self, project: str, annotations: Sequence[Annotation]) -> dict[str, int]:
        """Return the times of our annotations that are stored, by the keys of `annotations`.

        Raises:
            RequestFailedError: Phoenix did not answer, or refused.
        """
        identifier = self.project_path(project)
        if identifier is None:
            return {}
        query = urlencode(
            [
                *(("span_ids", one) for one in dict.fromkeys(each.span_id for each in annotations)),
                *(("include_annotation_names", one) for one in dict.fromkeys(each.part.name for each in annotations)),
                ("identifier", IDENTIFIER),
                ("limit", PAGE),
            ]
        )
        stored = self._get(f"projects/{identifier}/span_annotations?{query}")
        times: dict[str, int] = {}
        for row in stored.get("data", ()) if stored is not None else ():
            time_ns = str((row.get("metadata") or {}).get(TIME_KEY, ""))
            if row.get("identifier") == IDENTIFIER and time_ns.isdecimal():
                times[f"{row['span_id']} {row['name']}"] = int(time_ns)
        return times

    def stored_spans(self, project: str, trace_id: str, *, limit: int) -> set[str]:
        """Return the ids of a trace's spans.

        Raises:
            RequestFailedError: Phoenix did not answer, or refused.
        """
        identifier = self.project_path(project)
        if identifier is None:
            return set()
        found = self._get(f"projects/{identifier}/spans?trace_id={trace_id}&limit={limit}")
        return set() if found is None else {span["context"]["span_id"] for span in found["data"]}

    def project_path(self, name: str) -> str | None:
        """Return a project's part of a path: its name, or its id if the name has `/`, `?` or `#`; None if unknown."""
        if not _NOT_IN_A_PATH.search(name):
            return quote(name, safe="")
        cursor: str | None = ""
        pages = 0
        while name not in self._ids and cursor is not None and pages < MAX_PAGES:
            pages += 1
            page = self._get(f"projects?limit={PROJECTS}" + (f"&cursor={quote(cursor, safe='')}" if cursor else ""))
            self._ids.update({project["name"]: project["id"] for project in (page or {}).get("data", ())})
            cursor = (page or {}).get("next_cursor")
        return quote(self._ids[name], safe="") if name in self._ids else None

    def _annotate_spans(self, annotations: Sequence[Annotation]) -> set[str]:
        ids = {each.span_id for each in annotations}
        return self._post("span_annotations", [each.span_record() for each in annotations], span_ids=ids)

    def _post(self, path: str, records: Sequence[Mapping[str, Any]], *, span_ids: Collection[str] = ()) -> set[str]:
        """Upsert records, and return the ids among `span_ids` that don't exist; nothing is stored if there are any."""
        if not records:
            return set()
        # Without `sync` Phoenix answers before it has looked for the spans.
        url = f"{self._address}/v1/{path}?sync=true"
        try:
            self._client.ask("POST", url, orjson.dumps({"data": records}), _JSON)
        except RequestFailedError as failure:
            answer = failure.answer
            if answer.status != 404 or b"do not exist" not in answer.body:
                raise
            words = answer.body.decode("utf-8", "replace")
            if named := set(_SPAN_ID.findall(words)) & set(span_ids):
                return named
            # A trace or a session is stored with its first span.
            raise RequestFailedError(Outcome(Verdict.RETRY, f"{path}: {words[:200]}")) from failure
        return set()

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the object at a path; None if there is none."""
        try:
            return self._client.ask("GET", f"{self._address}/v1/{path}", headers=_JSON)
        except RequestFailedError as failure:
            if failure.answer.status == 404:
                return None
            raise
