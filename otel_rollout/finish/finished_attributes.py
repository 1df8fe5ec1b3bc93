"""Names, attributes, events and links as they are exported: redacted, within the limits, encodable by OTLP."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.finish.payload_limits import cut_json_characters, narrow_integers
from otel_rollout.finish.redaction import Redactor
from otel_rollout.record.exception_record import ExceptionRecord
from otel_rollout.record.recording_span import RecordedEvent, RecordedLink
from otel_rollout.record.snapshot import Snapshot, to_json
from otel_rollout.record.span_bounds import SpanBounds
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, replace_surrogates

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""The longest text attribute other than the payload."""
MAX_NAME_CHARACTERS: Final = 256
"""The longest name of a span or an event; backends index and group by names."""


def plain_size(attributes: Mapping[str, Any], characters: int | None) -> int | None:
    """Return the encoded bytes of the texts in attributes; None if an attribute must be changed before its export.

    Args:
        attributes: The attributes of a span.
        characters: Characters that a text may have; None without a limit.
    """
    most = _longest(characters)
    size = 0
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > most or not value.isascii():
                return None
            size += len(value)
        elif kind is tuple and len(value) == 1 and type(value[0]) is str:
            # The finish reason, on each span of a model.
            if len(value[0]) > most or not value[0].isascii():
                return None
            size += len(value[0]) + 72
        elif kind is not bool and kind is not float and not (kind is int and INT64_MIN <= value <= INT64_MAX):
            return None
        if not key.isascii():
            return None
        size += len(key)
    return size


class AttributeFinisher:
    """Finishes the names, attributes, events and links of one span.

    Args:
        bounds: The limits of the span.
        redactor: Replaces secrets before a text is cut: half a secret may not be found.
    """

    __slots__ = ("_bounds", "_redactor", "cut_characters", "redacted")

    def __init__(self, bounds: SpanBounds, redactor: Redactor | None = None) -> None:
        self._bounds = bounds
        self._redactor = redactor
        self.cut_characters = 0
        """The number of characters cut so far."""
        self.redacted = 0
        """The number of secrets replaced so far."""

    def name(self, name: str) -> str:
        """Return the finished name of a span or an event."""
        name = self._label(name)
        if len(name) > MAX_NAME_CHARACTERS:
            self.cut_characters += len(name) - MAX_NAME_CHARACTERS
            name = f"{name[: MAX_NAME_CHARACTERS - 1]}…"
        return replace_surrogates(name)

    def description(self, text: str) -> str:
        """Return the finished description of a status."""
        return self._redacted_text(text, None)

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a finished copy of the span's attributes."""
        return self._finish(attributes, self._bounds.characters)

    def event(self, event: RecordedEvent) -> RecordedEvent:
        """Return a finished copy of an event."""
        attributes = self._finish(event.attributes, self._bounds.other_characters)
        if event.exception is not None:
            attributes = {**self._exception(event.exception), **attributes}
        kept = dict(islice(attributes.items(), self._bounds.event_attributes))
        dropped = event.dropped_attributes + len(attributes) - len(kept)
        return RecordedEvent(self.name(event.name), event.timestamp, kept, dropped)

    def link(self, link: RecordedLink) -> RecordedLink:
        """Return a finished copy of a link."""
        return link._replace(attributes=self._finish(link.attributes, self._bounds.other_characters))

    def _exception(self, exception: ExceptionRecord) -> dict[str, Any]:
        characters = self._bounds.other_characters
        most = _longest(characters)
        stack = replace_surrogates(self._clean(exception.format()))
        self.cut_characters += max(0, len(stack) - most)
        return {
            semconv.EXCEPTION_TYPE: self._redacted_text(exception.type_name, characters),
            semconv.EXCEPTION_MESSAGE: self._redacted_text(exception.message, characters),
            # The innermost frames are at the end.
            semconv.EXCEPTION_STACKTRACE: stack[max(0, len(stack) - most) :],
        }

    def _finish(self, attributes: Mapping[str, Any], characters: int | None) -> dict[str, Any]:
        return {
            replace_surrogates(key): self._value(value, characters, key)
            for key, value in attributes.items()
            # No encoding of None works in all backends.
            if value is not None
        }

    def _redacted_text(self, text: str, characters: int | None) -> str:
        return self._text(self._clean(text), characters)

    def _clean(self, text: str) -> str:
        if self._redactor is None:
            return text
        text, count = self._redactor.text(text)
        self.redacted += count
        return text

    def _label(self, text: str, key: str = "") -> str:
        if self._redactor is None:
            return text
        text, count = self._redactor.label(text, key)
        self.redacted += count
        return text

    def _value(self, value: Any, characters: int | None, key: str) -> Any:
        kind = type(value)
        if kind is Snapshot:
            self.cut_characters += value.left_out
            text = narrow_integers(to_json(value))
            # Integers over 64 bits are texts.
            value = str(orjson.loads(text)) if text[:1] == b'"' else text.decode()
            kind = str
        if kind is str:
            return self._text(self._label(value, key), characters)
        return tuple(self._value(item, characters, key) for item in value) if kind is tuple else value

    def _text(self, text: str, characters: int | None) -> str:
        most = _longest(characters)
        text = replace_surrogates(text)
        if len(text) <= most:
            return text
        if text[0] in "{[" and _is_json(text):
            shorter = cut_json_characters(text.encode(), most).decode()
        else:
            shorter = text[:most] if most == characters else cut_text(text, most)
        self.cut_characters += len(text) - len(shorter)
        return shorter


def _longest(characters: int | None) -> int:
    return MAX_TEXT_CHARACTERS if characters is None else min(characters, MAX_TEXT_CHARACTERS)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
