"""A failed span's exception as the weave client writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.values.sanitize import replace_surrogates

__all__ = ["exception_of_span"]

_FRAME = re.compile(r'^  File "(?P<filename>.*)", line (?P<line>\d+), in (?P<function>.*)\n?(?P<text>    \S.*)?', re.M)


def exception_of_span(span: ReadableSpan) -> str | None:
    """Return the JSON text of a failed span's exception; None if the span did not fail."""
    if span.status.status_code is not StatusCode.ERROR:
        return None
    found: Mapping[str, Any] = {}
    for event in span.events:
        if event.name == semconv.EXCEPTION_EVENT:
            found = event.attributes or {}
    kind = found.get(semconv.EXCEPTION_TYPE) or (span.attributes or {}).get(semconv.ERROR_TYPE) or "Error"
    message = found.get(semconv.EXCEPTION_MESSAGE) or span.status.description or ""
    record: dict[str, Any] = {"type": replace_surrogates(str(kind)), "message": replace_surrogates(str(message))}
    stacktrace = found.get(semconv.EXCEPTION_STACKTRACE)
    if stacktrace:
        record["traceback"] = _frames(replace_surrogates(str(stacktrace)))
    return orjson.dumps(record).decode()


def _frames(stacktrace: str) -> list[dict[str, Any]]:
    return [
        {
            "filename": frame["filename"],
            "line_number": int(frame["line"]),
            "function_name": frame["function"],
            "text": (frame["text"] or "").strip(),
        }
        for frame in _FRAME.finditer(stacktrace)
    ]
