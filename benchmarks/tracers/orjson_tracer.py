"""An SDK span with orjson, the faster encoder that one would take by hand."""

from __future__ import annotations

from typing import Any

import orjson

from benchmarks.tracers.plain_tracer import PlainTracer


def _to_json(value: Any) -> str:
    return orjson.dumps(value).decode()


def tracer() -> PlainTracer:
    """Return the tracer."""
    return PlainTracer(_to_json)


TRACER = tracer
