"""Names and attributes, made fit to leave the process: within the limits, and with nothing that OTLP can't say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import orjson

from otel_rollout import semconv
from otel_rollout.processing.payload_limits import cut_json_characters, narrow_integers
from otel_rollout.processing.redaction import Redactor
from otel_rollout.spans.recording_span import RecordedEvent, RecordedLink
from otel_rollout.spans.span_bounds import SpanBounds
from otel_rollout.values.exception_record import ExceptionRecord
from otel_rollout.values.sanitize import INT64_MAX, INT64_MIN, replace_surrogates
from otel_rollout.values.snapshot import Snapshot, cut_text
from otel_rollout.values.snapshot_json import to_json

__all__ = ["MAX_NAME_CHARACTERS", "MAX_TEXT_CHARACTERS", "AttributeFinisher", "plain_size"]

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""A text attribute other than the payload is cut beyond this."""
MAX_NAME_CHARACTERS: Final = 256
"""Names of spans and events have few values, which backends index and group by; a longer one is cut."""


def plain_size(attributes: Mapping[str, Any], characters: int | None) -> int | None:
    """Return what the texts of attributes take when they are encoded, if all are fit as they are; else None.

    Args:
        attributes: The attributes of a span.
        characters: How many characters a text may have, if there is a limit.
    """
    most = MAX_TEXT_CHARACTERS if characters is None else min(characters, MAX_TEXT_CHARACTERS)
    size = 0
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > most or not value.isascii():
                return None
            size += len(value)
        elif kind is tuple and len(value) == 1 and type(value[0]) is str:
            # Why a model stopped, which each of its spans says.
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
        redactor: Replaces secrets, before anything is cut: half a secret does not look like one.
    """

    __slots__ = ("_bounds", "_redactor", "cut_characters")

    def __init__(self, bounds: SpanBounds, redactor: Redactor | None = None) -> None:
        self._bounds = bounds
        self._redactor = redactor
        self.cut_characters = 0
        """How many characters were cut so far."""

    def name(self, name: str) -> str:
        """Return the name of a span or an event."""
        if self._redactor is not None:
            name = self._redactor.label(name)
        if len(name) > MAX_NAME_CHARACTERS:
            self.cut_characters += len(name) - MAX_NAME_CHARACTERS
            name = f"{name[: MAX_NAME_CHARACTERS - 1]}…"
        return replace_surrogates(name)

    def description(self, text: str) -> str:
        """Return what a status says."""
        return self._text(self._without_secrets(text), None)

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of the span."""
        return self._finish(attributes, self._bounds.characters)

    def event(self, event: RecordedEvent) -> RecordedEvent:
        """Return an event."""
        attributes = self._finish(event.attributes, self._bounds.other_characters)
        if event.exception is not None:
            attributes = {**self._exception(event.exception), **attributes}
        kept = dict(islice(attributes.items(), self._bounds.event_attributes))
        dropped = event.dropped_attributes + len(attributes) - len(kept)
        return RecordedEvent(self.name(event.name), event.timestamp, kept, dropped)

    def link(self, link: RecordedLink) -> RecordedLink:
        """Return a link."""
        return link._replace(attributes=self._finish(link.attributes, self._bounds.other_characters))

    def _exception(self, exception: ExceptionRecord) -> dict[str, Any]:
        characters = self._bounds.other_characters
        most = MAX_TEXT_CHARACTERS if characters is None else min(characters, MAX_TEXT_CHARACTERS)
        stack = replace_surrogates(self._without_secrets(exception.format()))
        self.cut_characters += max(0, len(stack) - most)
        return {
            semconv.EXCEPTION_TYPE: self._text(self._without_secrets(exception.type_name), characters),
            semconv.EXCEPTION_MESSAGE: self._text(self._without_secrets(exception.message), characters),
            # The innermost frames stand at the end.
            semconv.EXCEPTION_STACKTRACE: stack[max(0, len(stack) - most) :],
        }

    def _finish(self, attributes: Mapping[str, Any], characters: int | None) -> dict[str, Any]:
        return {
            replace_surrogates(key): self._value(value, characters, key)
            for key, value in attributes.items()
            # OTLP has no value for it that all backends take.
            if value is not None
        }

    def _without_secrets(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.text(text)

    def _value(self, value: Any, characters: int | None, key: str) -> Any:
        kind = type(value)
        if kind is Snapshot:
            self.cut_characters += value.left_out
            text = narrow_integers(to_json(value))
            # An integer over 64 bits is a text.
            value = str(orjson.loads(text)) if text[:1] == b'"' else text.decode()
            kind = str
        if kind is str:
            return self._text(self._label(value, key), characters)
        if kind is tuple:
            return tuple(
                self._text(self._label(item, key), characters) if type(item) is str else item for item in value
            )
        return value

    def _label(self, text: str, key: str) -> str:
        return text if self._redactor is None else self._redactor.label(text, key)

    def _text(self, text: str, characters: int | None) -> str:
        most = MAX_TEXT_CHARACTERS if characters is None else min(characters, MAX_TEXT_CHARACTERS)
        text = replace_surrogates(text)
        if len(text) <= most:
            return text
        if text[0] in "{[" and _is_json(text):
            shorter = cut_json_characters(text.encode(), most).decode()
        else:
            shorter = text[:most] if most == characters else cut_text(text, most)
        self.cut_characters += len(text) - len(shorter)
        return shorter


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
