"""OTLP JSON: what other programs wrote is read into protobuf, and protobuf is printed for people and other tools.

Ids are in hexadecimal, 64-bit integers strings, enumerations numbers. Null is the same as no value, as in all JSON of
protobuf. Names of OTLP before 1.0 are read too, and what Grafana Tempo writes: `batches`, ids in base64.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any, Final, NoReturn, TypeAlias

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from otel_rollout.otlp.cutting import TooManySpansError
from otel_rollout.otlp.encoding import EncodedSpan, join_spans
from otel_rollout.otlp.reading import MALFORMED, MAX_FIELDS, check_span
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
_ID_BYTES: Final = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
_SPANS_BELOW: Final = ("scope_spans", "spans")
_Found: TypeAlias = tuple[Any, bytes, bytes]
_Setter: TypeAlias = Callable[[Any, Any], None]
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


def _messages(request: Any) -> Iterator[_Found]:
    """Yield each span of a request with its resource and scope; raise one of `MALFORMED`."""
    for resource_spans in _lists(request, "resourceSpans", "batches"):
        resource = _bytes_of(ResourceSpans(), resource_spans)
        for scope_spans in _lists(resource_spans, "scopeSpans", "instrumentationLibrarySpans"):
            scope = _bytes_of(ScopeSpans(), scope_spans)
            for span in _lists(scope_spans, "spans"):
                yield span, resource, scope


def _lists(message: dict[str, Any], *names: str) -> Iterator[Any]:
    for name in names:
        yield from _items(message.get(name))


def _encode(messages: Sequence[_Found], on_refused: Callable[[str], object]) -> Iterator[EncodedSpan]:
    for message, resource, scope in messages:
        try:
            span = check_span(_bytes_of(Span(), message), resource, scope)
        except MALFORMED as error:  # noqa: PERF203 - each span by itself
            on_refused(f"a malformed span: {_reason_of(error)}")
        else:
            yield span


def _reason_of(error: Exception) -> str:
    """Return the fault of a message, in words for its sender: it is one of `MALFORMED`."""
    if isinstance(error, AttributeError):
        return f"{_JSON_NAMES.get(type(error.obj), 'a value')} in place of an object"
    if isinstance(error, RecursionError):
        return "values within values without end"
    # Python's own words name its types.
    return "a value of another type" if isinstance(error, TypeError) else str(error)


def _bytes_of(message: Message, given: dict[str, Any]) -> bytes:
    _fill(message, given)
    return message.SerializeToString()


def _fill(message: Message, given: dict[str, Any]) -> None:
    """Fill a message with an object of JSON; raise one of `MALFORMED`."""
    setters: dict[str, _Setter] = _setters_of(message.DESCRIPTOR)
    for name, value in given.items():
        if value is not None and (setter := setters.get(name)) is not None:
            setter(message, value)


@cache
def _setters_of(message: Any) -> dict[str, _Setter]:
    """Return the setters of a message's fields by their names in JSON, without spans and their scopes."""
    setters = {field.json_name: _setter_of(field) for field in message.fields if field.name not in _SPANS_BELOW}
    if message.name == "ScopeSpans":
        setters["instrumentationLibrary"] = setters["scope"]
    if message.name == "AnyValue":
        setters["intValue"] = _set_integer
    return setters


def _setter_of(field: Any) -> _Setter:
    name, is_list = field.name, field.default_value == []
    if field.message_type is not None:
        return partial(_add_messages if is_list else _set_message, name)
    if field.enum_type is not None:
        read: Callable[[Any], Any] = partial(_enum, field.enum_type.values_by_name)
    elif name in _ID_BYTES:
        read = partial(_id, _ID_BYTES[name])
    else:
        read = _READERS.get(field.type, _integer)
    if is_list:
        return lambda message, value: getattr(message, name).extend(map(read, _items(value)))
    return lambda message, value: setattr(message, name, read(value))


def _set_message(name: str, message: Message, value: Any) -> None:
    inner = getattr(message, name)
    # Present even without anything in it.
    inner.SetInParent()
    _fill(inner, value)


def _add_messages(name: str, message: Message, value: Any) -> None:
    add = getattr(message, name).add
    for item in _items(value):
        _fill(add(), {} if item is None else item)


def _set_integer(message: Any, value: Any) -> None:
    number = _integer(value)
    if fits_int64(number):
        message.int_value = number
    else:
        message.string_value = str(number)


def _items(value: Any) -> Sequence[Any]:
    return () if value is None else value if type(value) is list else _refuse(value, "a list")


def _text(value: Any) -> str:
    return value if type(value) is str else _refuse(value, "a string")


def _boolean(value: Any) -> bool:
    return value if type(value) is bool else _refuse(value, "a boolean")


def _enum(names: Mapping[str, Any], value: Any) -> int:
    """Return an enumeration's number; some senders write its name, though OTLP doesn't allow it."""
    return names[value].number if type(value) is str and value in names else _integer(value)


def _id(size: int, text: Any) -> bytes:
    try:
        digits = bytes.fromhex(text) if len(text) == 2 * size else base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        digits = b"?"
    if len(digits) not in (0, size):
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


_READERS: Final[Mapping[int, Callable[[Any], Any]]] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BYTES: _bytes,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_DOUBLE: _number,
}
"""By the type of a field; all others are integers."""
