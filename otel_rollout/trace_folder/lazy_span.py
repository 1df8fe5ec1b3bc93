"""Spans of a line that are parsed one by one, each when something of it is asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.spans.counted_span import CountedSpan
from otel_rollout.trace_folder.otlp_json import START
from otel_rollout.trace_folder.otlp_json_reading import (
    MALFORMED,
    decode_resource,
    decode_scope,
    decode_span,
    parse_json,
)

__all__ = ["LazySpan", "lazy_spans"]

_MAX_CACHED: Final = 256
_COMMA: Final = ord(",")


class LazySpan(CountedSpan):
    """A span that is parsed on first use.

    Args:
        message: The span as JSON.
        resource: Its resource.
        scope: Its scope.
    """

    def __init__(self, message: bytes, resource: Resource, scope: InstrumentationScope | None) -> None:
        # Not the SDK's: the fields that it sets are missing until one of them is asked for.
        self._unparsed = (message, resource, scope)

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        if (unparsed := fields.get("_unparsed")) is not None:
            message, resource, scope = unparsed
            try:
                parsed = vars(decode_span(parse_json(message), resource, scope))
            except MALFORMED as error:
                raise UnreadableTraceError(
                    f"no span of OTLP JSON ({type(error).__name__}: {error}): {message[:40]!r}"
                ) from error
            # What an exporter has set before anything was read stays as it set it.
            for field, value in parsed.items():
                fields.setdefault(field, value)
            fields.pop("_unparsed", None)
        if name not in fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Of two threads the other may have been the one that parsed.
        return fields[name]


def lazy_spans(line: bytes, trace_id: str) -> list[ReadableSpan] | None:
    """Return the spans of a line without parsing them; None where that can't be had.

    Args:
        line: A line with a tab before each span, as `encode_line` writes it and nobody else does; its checksum holds.
        trace_id: The trace that all of them are of.
    """
    first = b'{"traceId":"%b","spanId":"' % trace_id.encode()
    spans: list[ReadableSpan] = []
    resource: Resource | None = None
    scope: InstrumentationScope | None = None
    is_open, start = False, 0
    # Not `split`, which looks at each byte by itself.
    while (tab := line.find(b"\t", start)) >= 0:
        if resource is not None and is_open and line.startswith(first, start):
            is_open = line[tab - 1] == _COMMA
            spans.append(LazySpan(line[start : tab - is_open], resource, scope))
        elif not is_open and line.endswith(b'"spans":[', start, tab):
            try:
                new_resource, scope = _origin(line[start:tab])
            except MALFORMED:
                return None
            resource, is_open = new_resource or resource, True
        else:
            return None
        start = tab + 1
    # With a line end behind it, it is a journal's, and perhaps another one by now: that is seen when it is parsed.
    return spans if not is_open and line[start:] == b"]}]}]}" else None


@lru_cache(_MAX_CACHED)
def _origin(piece: bytes) -> tuple[Resource | None, InstrumentationScope | None]:
    """Return what stands before the first span of a group: its resource, where it is another one, and its scope."""
    for before in (START, b"]}]},"):
        if piece.startswith(before):
            message = orjson.loads(piece[len(before) :] + b"]}]}")
            return decode_resource(message), decode_scope(message["scopeSpans"][0])
    return None, decode_scope(orjson.loads(piece.removeprefix(b"]},") + b"]}"))
