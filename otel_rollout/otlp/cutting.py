"""Cuts an OTLP request in protobuf into its spans, to parse one at a time: parsed, they take 80 times their size.

Source: https://protobuf.dev/programming-guides/encoding/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.proto.trace.v1.trace_pb2 import Span

_RESOURCE_SPANS: Final = 1
_SCOPE_SPANS: Final = 2
_SPANS: Final = 2
_VARINT: Final = 0
_BYTES: Final = 2
_WIDTHS: Final = {1: 8, 5: 4}
_MAX_NUMBER: Final = 1 << 29
_MAX_VARINT_BYTES: Final = 10
_MAX_DEPTH: Final = 100
"""Protobuf's own limit: what is deeper is not parsed."""
_EVENTS_AND_LINKS: Final = 3
"""An event or a link counts as so many fields: even an empty one is written with a time, a name, ids."""
_Field: TypeAlias = tuple[int, int, int, int]
"""The number of a field, its begin, its value's begin, its end; the number is 0 if the value is no bytes."""
_Counted: TypeAlias = tuple[Any, int]


class TooManySpansError(ValueError):
    """A request has more spans than the limit."""


class ScopePart(NamedTuple):
    """A scope in a request.

    Args:
        resource: The `ResourceSpans` without its scopes.
        scope: The `ScopeSpans` without its spans.
        spans: The begin and the end of each span in the request.
    """

    resource: bytes
    scope: bytes
    spans: list[tuple[int, int]]


def cut_request(data: bytes, most: int) -> list[ScopePart]:
    """Return the scopes of a request that have spans.

    Args:
        data: An `ExportTraceServiceRequest`.
        most: The limit on its spans, scopes and resources together.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no such request.
    """
    left = most

    def cut(start: int, end: int, number: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return a message without the fields of a number, and the places of these."""
        nonlocal left
        rest, places = bytearray(), []
        for found, begin, value, after in fields_of(data, start, end):
            left -= 1
            if left < 0:
                raise TooManySpansError(f"more than {most:,} spans, scopes and resources")
            if found == number:
                places.append((value, after))
            else:
                rest += data[begin:after]
        return bytes(rest), places

    parts: list[ScopePart] = []
    for resource_place in cut(0, len(data), _RESOURCE_SPANS)[1]:
        resource, scopes = cut(*resource_place, _SCOPE_SPANS)
        for scope_place in scopes:
            scope, spans = cut(*scope_place, _SPANS)
            if spans:
                parts.append(ScopePart(resource, scope, spans))
    return parts


def check_fields(span: bytes, most: int) -> None:
    """Raise an error if a span and all that is in it has more than `most` fields.

    Raises:
        ValueError: It has, or is no message, or has a group, which no OTLP has and protobuf's parser passes over.
    """
    if _fields_left(span, (0, len(span)), _messages_of(Span.DESCRIPTOR), most, 0) < 0:
        raise ValueError(f"a span of more than {most:,} values, which is the limit")


def _fields_left(span: bytes, place: tuple[int, int], messages: Mapping[int, _Counted], left: int, depth: int) -> int:
    """Return `left` less the number of fields of a message; a negative number once there are too many."""
    # No function of a function: that would be a cycle, which keeps the span until the garbage collector runs.
    for number, _, value, after in fields_of(span, *place):
        inner, weight = messages.get(number, (None, 1))
        left -= weight
        if left < 0:
            break
        if inner is not None and depth < _MAX_DEPTH:
            left = _fields_left(span, (value, after), _messages_of(inner), left, depth + 1)
    return left


def fields_of(data: bytes, place: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: It is no message.
    """
    while place < end:
        start = place
        tag, place = _number_at(data, place)
        number, kind = tag >> 3, tag & 7
        value = place
        if kind == _BYTES:
            size, value = _number_at(data, place)
            place = value + size
            if place <= end and 0 < number < _MAX_NUMBER:
                yield number, start, value, place
                continue
        elif kind == _VARINT:
            _, place = _number_at(data, place)
        elif (width := _WIDTHS.get(kind)) is not None:
            place += width
        else:
            raise ValueError(f"a field of kind {kind} at byte {start}")
        if not 0 < number < _MAX_NUMBER:
            raise ValueError(f"a field with number {number} at byte {start}")
        if place > end:
            raise ValueError(f"the field at byte {start} is cut off")
        yield (number if kind == _BYTES else 0), start, value, place


def _number_at(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it.

    Raises:
        ValueError: There is none.
    """
    number = shift = 0
    for byte in data[place : place + _MAX_VARINT_BYTES]:
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError(f"no number before byte {place}")


@cache
def _messages_of(message: Any) -> Mapping[int, _Counted]:
    """Return the fields of a message that are messages, and as how many fields each of them counts."""
    return {
        field.number: (field.message_type, _EVENTS_AND_LINKS if field.message_type.name in ("Event", "Link") else 1)
        for field in message.fields
        if field.message_type is not None
    }
