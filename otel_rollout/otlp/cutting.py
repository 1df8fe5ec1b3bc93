"""Cuts an OTLP request in protobuf into its spans, to parse one at a time: parsed, they take 80 times their size.

Source: https://protobuf.dev/programming-guides/encoding/ and opentelemetry-proto's trace.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
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
_NO_FIELD: Final = (0, 0, 0, 0)


class TooManySpansError(ValueError):
    """A request has more spans than the limit."""


class ScopePart(NamedTuple):
    """The spans of a scope in a request.

    Args:
        resource: The `ResourceSpans` without its scopes.
        scope: The `ScopeSpans` without its spans.
        start: The begin of the `ScopeSpans` in the request.
        end: Its end.
        spans: The number of its spans.
    """

    resource: bytes
    scope: bytes
    start: int
    end: int
    spans: int


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
    found: list[ScopePart] = []

    def fields(start: int, end: int) -> Iterator[_Field]:
        nonlocal left
        for field in fields_of(data, start, end):
            left -= 1
            if left < 0:
                raise TooManySpansError(f"more than {most:,} spans, scopes and resources")
            yield field

    for number, _, resource_start, resource_end in fields(0, len(data)):
        if number != _RESOURCE_SPANS:
            continue
        resource = bytearray()
        scopes: list[tuple[bytes, int, int, int]] = []
        for field, begin, scope_start, scope_end in fields(resource_start, resource_end):
            if field != _SCOPE_SPANS:
                resource += data[begin:scope_end]
                continue
            scope = bytearray()
            count = 0
            for inner, place, _, end in fields(scope_start, scope_end):
                if inner == _SPANS:
                    count += 1
                else:
                    scope += data[place:end]
            if count:
                scopes.append((bytes(scope), scope_start, scope_end, count))
        shared = bytes(resource)
        found += [ScopePart(shared, *each) for each in scopes]
    return found


def spans_of(data: bytes, part: ScopePart) -> Iterator[bytes]:
    """Yield the spans of a scope."""
    for number, _, start, end in fields_of(data, part.start, part.end):
        if number == _SPANS:
            yield data[start:end]


def has_too_many_fields(span: bytes, most: int) -> bool:
    """Return True if a span and all that is in it has more than `most` fields.

    Raises:
        ValueError: It is no message, or has a group, which no OTLP has and protobuf's parser passes over.
    """
    left, above = most, [(fields_of(span, 0, len(span)), _messages_of(Span.DESCRIPTOR))]
    while above and len(above) <= _MAX_DEPTH:
        fields, messages = above[-1]
        number, _, value, value_end = next(fields, _NO_FIELD)
        if not number and not value_end:
            above.pop()
            continue
        left -= 1
        if (found := messages.get(number)) is not None:
            left -= found[1] - 1
            above.append((fields_of(span, value, value_end), _messages_of(found[0])))
        if left < 0:
            return True
    return False


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
    try:
        number = data[place]
        if number < 0x80:
            return number, place + 1
        following = data[place + 1]
        if following < 0x80:
            return number & 0x7F | following << 7, place + 2
    except IndexError:
        raise ValueError(f"no number before byte {len(data)}") from None
    number = shift = 0
    for byte in data[place : place + _MAX_VARINT_BYTES]:
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError(f"no number before byte {place}")


@cache
def _messages_of(message: Any) -> dict[int, tuple[Any, int]]:
    """Return the fields of a message that are messages, and as how many fields each of them counts."""
    return {
        field.number: (field.message_type, _EVENTS_AND_LINKS if field.message_type.name in ("Event", "Link") else 1)
        for field in message.fields
        if field.message_type is not None
    }
