"""OTLP JSON: what other programs wrote is read into protobuf, and protobuf is printed for people and other tools.

Ids are in hexadecimal, 64-bit integers strings, enumerations numbers. Null is the same as no value, as in all JSON of
protobuf. Names of OTLP before 1.0 are read too, and what Grafana Tempo writes: `batches`, ids in base64.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NoReturn

import orjson
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status, TracesData
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from otel_rollout.otlp.cutting import TooManySpansError
from otel_rollout.otlp.encoding import EncodedSpan, join_spans
from otel_rollout.otlp.reading import MALFORMED, MAX_FIELDS
from otel_rollout.otlp.received import Origin, check_span, origin_of
from otel_rollout.text.json_marks import marks_outside_text
from otel_rollout.text.sanitize import clean, fits_int64

LONG_BYTES: Final = 2**23
MAX_VALUES: Final = 2**22
"""As Python objects they take a multiple of the JSON."""

_JSON_NAMES: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_IDS: Final = ("traceId", "spanId", "parentSpanId")
_NO_PARENT: Final = "0" * 16
"""Some senders write it for a root."""
_OTHER_ALPHABET: Final = str.maketrans("-_", "+/")


def json_of_request(request: bytes) -> bytes:
    """Return an OTLP request in JSON, on one line.

    Raises:
        DecodeError: It is no request in protobuf.
    """
    message = MessageToDict(TracesData.FromString(request), use_integers_for_enums=True)
    for resource_spans in message.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for each in (span, *span.get("links", ())):
                    each |= {key: base64.b64decode(each[key]).hex() for key in _IDS if key in each}
    return orjson.dumps(message)


def request_of_json(body: bytes) -> bytes:
    """Return a request in JSON as protobuf.

    Raises:
        ValueError: It is no such request, or a span in it is malformed.
    """

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"the body is no OTLP request in JSON: {reason}")

    return join_spans(split_json(body, refuse, MAX_FIELDS))


def split_json(body: bytes, on_refused: Callable[[str], object], max_spans: int) -> Iterator[EncodedSpan]:
    """Return the spans of a request that any sender made, each encoded when it is asked for.

    Args:
        body: An `ExportTraceServiceRequest` in JSON.
        on_refused: Called with the reason for each span that is malformed.
        max_spans: The limit on its spans.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no such request.
    """
    try:
        messages = list(islice(_messages(_parse(body)), max_spans + 1))
    except MALFORMED as error:
        raise ValueError(f"the body is no OTLP request in JSON: {_reason_of(error)}") from error
    if len(messages) > max_spans:
        raise TooManySpansError(f"more than {max_spans:,} spans")
    return _encode(messages, on_refused)


def has_too_many_values(json_bytes: bytes, most: int = MAX_VALUES) -> bool:
    """Return True if JSON of more than `LONG_BYTES` has more than `most` values."""
    # An upper bound first: commas and brackets within strings count too.
    return (
        len(json_bytes) > LONG_BYTES
        and sum(map(json_bytes.count, (b",", b"[", b"{"))) > most
        and next(islice(marks_outside_text(json_bytes, b",[{"), most, None), None) is not None
    )


def _parse(body: bytes) -> Any:
    """Parse JSON; senders in JavaScript cut characters in half, which no UTF-8 has.

    Raises:
        ValueError: It is no JSON, or has more than `MAX_VALUES` values.
    """
    if has_too_many_values(body):
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if len(body) > LONG_BYTES:
            raise
        with suppress(RecursionError, ValueError):
            return clean(json.loads(body.decode(errors="replace")))
        raise


def _messages(request: Any) -> Iterator[tuple[Any, Origin]]:
    """Yield each span of a request with its resource and scope; raise one of `MALFORMED`."""
    for resource_spans in (*_items(request, "resourceSpans"), *_items(request, "batches")):
        resource = _resource(resource_spans)
        for scope_spans in (
            *_items(resource_spans, "scopeSpans"),
            *_items(resource_spans, "instrumentationLibrarySpans"),
        ):
            origin = origin_of(resource, _scope(scope_spans))
            for span in _items(scope_spans, "spans"):
                yield span, origin


def _encode(messages: Sequence[tuple[Any, Origin]], on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    for message, origin in messages:
        try:
            span = check_span(_span(message).SerializeToString(), origin)
        except MALFORMED as error:  # noqa: PERF203 - each span by itself
            on_refused(f"a malformed span: {_reason_of(error)}")
        else:
            yield span


def _reason_of(error: Exception) -> str:
    """Return the fault of a message, in words for its sender: it is one of `MALFORMED`."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, AttributeError):
        return f"{_JSON_NAMES.get(type(error.obj), 'a value')} in place of an object"
    if isinstance(error, RecursionError):
        return "values within values without end"
    # Python's own words name its types.
    return "a value of another type" if isinstance(error, TypeError) else str(error)


def _resource(message: dict[str, Any]) -> bytes:
    resource_spans = ResourceSpans(schema_url=_text(message.get("schemaUrl")))
    resource_spans.resource.SetInParent()
    _fill_attributes(resource_spans.resource.attributes, message.get("resource") or {})
    return resource_spans.SerializeToString()


def _scope(message: dict[str, Any]) -> bytes:
    scope_spans = ScopeSpans(schema_url=_text(message.get("schemaUrl")))
    if (scope := message.get("scope", message.get("instrumentationLibrary"))) is not None:
        scope_spans.scope.SetInParent()
        scope_spans.scope.name = _text(scope.get("name"))
        scope_spans.scope.version = _text(scope.get("version"))
        _fill_attributes(scope_spans.scope.attributes, scope)
    return scope_spans.SerializeToString()


def _span(message: dict[str, Any]) -> SpanMessage:
    """Return a span in protobuf's class, which checks types and ranges; raise one of `MALFORMED`."""
    get = message.get
    parent_id, status = get("parentSpanId"), get("status")
    span = SpanMessage(
        trace_id=_id(message["traceId"], 16),
        span_id=_id(message["spanId"], 8),
        trace_state=_text(get("traceState")),
        parent_span_id=_id(parent_id, 8) if parent_id and parent_id != _NO_PARENT else b"",
        flags=_flags(get("flags")),
        name=_text(get("name")),
        kind=_enum(get("kind"), SpanMessage.SpanKind),
        start_time_unix_nano=_time(get("startTimeUnixNano")),
        end_time_unix_nano=_time(get("endTimeUnixNano")),
        dropped_attributes_count=_count(get("droppedAttributesCount")),
        dropped_events_count=_count(get("droppedEventsCount")),
        dropped_links_count=_count(get("droppedLinksCount")),
    )
    _fill_attributes(span.attributes, message)
    for event in _items(message, "events"):
        filled = span.events.add(
            time_unix_nano=_time(event.get("timeUnixNano")),
            name=_text(event.get("name")),
            dropped_attributes_count=_count(event.get("droppedAttributesCount")),
        )
        _fill_attributes(filled.attributes, event)
    for link in _items(message, "links"):
        linked = span.links.add(
            trace_id=_id(link["traceId"], 16),
            span_id=_id(link["spanId"], 8),
            trace_state=_text(link.get("traceState")),
            flags=_flags(link.get("flags")),
            dropped_attributes_count=_count(link.get("droppedAttributesCount")),
        )
        _fill_attributes(linked.attributes, link)
    if status is not None:
        span.status.SetInParent()
        span.status.code = _enum(status.get("code"), Status.StatusCode)
        span.status.message = _text(status.get("message"))
    return span


def _fill_attributes(attributes: Any, message: dict[str, Any]) -> None:
    """Add the attributes of a message to a repeated field of protobuf's classes."""
    for pair in _items(message, "attributes"):
        filled = attributes.add(key=_text(pair.get("key")))
        _fill_value(filled.value, pair.get("value") or {})


def _fill_value(message: AnyValue, value: dict[str, Any]) -> None:
    # Present even without anything in it.
    message.SetInParent()
    for kind, item in value.items():
        if item is None:
            continue
        if kind == "stringValue":
            message.string_value = _text(item)
        elif kind == "boolValue":
            message.bool_value = item if type(item) is bool else _refuse(item, "a boolean")
        elif kind == "intValue":
            number = _integer(item)
            if fits_int64(number):
                message.int_value = number
            else:
                message.string_value = str(number)
        elif kind == "doubleValue":
            message.double_value = _number(item)
        elif kind == "bytesValue":
            message.bytes_value = _bytes(item)
        elif kind == "arrayValue":
            message.array_value.SetInParent()
            for each in _items(item, "values"):
                _fill_value(message.array_value.values.add(), each or {})
        elif kind == "kvlistValue":
            message.kvlist_value.SetInParent()
            for pair in _items(item, "values"):
                _fill_value(message.kvlist_value.values.add(key=_text(pair.get("key"))).value, pair.get("value") or {})
        else:
            continue
        return


def _items(message: dict[str, Any], key: str) -> Sequence[Any]:
    """Return the list in a field; an empty one if the field is null or not there."""
    value = message.get(key)
    if value is None:
        return ()
    return value if type(value) is list else _refuse(value, "a list")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if type(value) is str else _refuse(value, "a string")


def _enum(value: Any, names: Any) -> Any:
    """Return an enumeration's number; some senders write its name, though OTLP doesn't allow it."""
    if type(value) is str and value in names.keys():  # noqa: SIM118 - no dictionary
        return names.Value(value)
    return _count(value)


def _count(value: Any) -> int:
    return 0 if value is None else _integer(value)


def _time(value: Any) -> int:
    time = _count(value)
    if time < 0:
        raise ValueError("a time before 1970")
    return time


def _flags(value: Any) -> int:
    return 0 if value is None else value if type(value) is int else _refuse(value, "a number")


def _id(text: Any, size: int) -> bytes:
    try:
        digits = bytes.fromhex(text) if len(text) == 2 * size else base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        digits = b""
    if len(digits) != size:
        raise ValueError(f"an id of other than {2 * size} hexadecimal digits")
    return digits


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is str or (type(value) is float and value.is_integer()):
        with suppress(ValueError):
            return int(value)
    return _refuse(value, "a whole number")


def _number(value: Any) -> float:
    if type(value) in (int, float, str):
        with suppress(OverflowError, ValueError):
            return float(value)
    return _refuse(value, "a number")


def _bytes(value: Any) -> bytes:
    # Protobuf's JSON has both alphabets, with and without the padding.
    text = _text(value).translate(_OTHER_ALPHABET).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        _refuse(value, "base64")


def _refuse(value: Any, expected: str) -> NoReturn:
    raise ValueError(f"{_JSON_NAMES.get(type(value), 'a value')} in place of {expected}")
