"""Reads spans back from Phoenix at the OTLP endpoint's address: OTLP itself only writes.

Source: https://arize.com/docs/phoenix/sdk-api-reference/rest-api/overview
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.export.exporter import ReadBack
from otel_rollout.export.http import HttpClient, outcome_of_answer, shown_url
from otel_rollout.export.span_facts import span_id_of, trace_id_of

__all__ = ["read_back_from_phoenix", "where_to_look"]

TRACES_PATH: Final = "/v1/traces"
NO_WAY: Final = "OTLP has no way to ask a receiver what it has, and this one is not a Phoenix"


def read_back_from_phoenix(client: HttpClient, endpoint: str, spans: Sequence[ReadableSpan]) -> ReadBack:
    """Count the stored ones of `spans`, all of one trace, if the receiver is a Phoenix.

    Args:
        client: A client with the exporter's headers.
        endpoint: The endpoint that the spans were sent to.
        spans: The spans.

    Raises:
        OSError: It is a Phoenix, and the request failed.
    """
    if not endpoint.endswith(TRACES_PATH):
        return ReadBack(None, NO_WAY)
    address = endpoint.removesuffix(TRACES_PATH)
    accept = {"accept": "application/json"}
    about = client.request("GET", f"{address}/arize_phoenix_version", headers=accept)
    if about.status != 200 or b"<" in about.body:
        return ReadBack(None, NO_WAY)
    project = str(spans[0].resource.attributes.get(semconv.OPENINFERENCE_PROJECT) or "default")
    url = f"{address}/v1/projects/{quote(project, safe='')}/spans?trace_id={trace_id_of(spans[0]):032x}&limit=1000"
    answer = client.request("GET", url, headers=accept)
    if answer.status == 404:
        # A project is created with its first span.
        found = 0
    elif answer.status == 200:
        stored = {span["context"]["span_id"] for span in orjson.loads(answer.body)["data"]}
        found = len(stored & set(map(span_id_of, spans)))
    else:
        raise OSError(outcome_of_answer(answer, url).reason)
    return ReadBack(found, f"project {project} of Phoenix at {shown_url(address)}")


def where_to_look(endpoint: str, project_name: str) -> list[str]:
    """Return lines of text on how to find trajectories; code is indented.

    Args:
        endpoint: The endpoint that they were sent to.
        project_name: Their project.
    """
    return [
        f"The trajectories went to {shown_url(endpoint)} as project {project_name}.",
        "The root spans carry rollout.step, rollout.sample_index, rollout.reward and session.id, the same for all",
        "rollouts of one prompt. In Phoenix, filter the traces with",
        "",
        "    metadata['step'] == 1",
    ]
