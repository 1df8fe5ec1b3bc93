"""A light span as the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Mapping
from traceback import TracebackException
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode
from opentelemetry.util.types import Attributes

from otel_rollout import semconv
from otel_rollout.delivery.shrink import replace_attributes
from otel_rollout.delivery.size import SizedSpan
from otel_rollout.log_once import internal_error
from otel_rollout.payload import MAX_TEXT_CHARACTERS as EARLY_CUT_CHARACTERS
from otel_rollout.payload import clean_text, cut_text, snapshot
from otel_rollout.payload_limits import characters_cut, cut_json, cut_media, may_need_mending, narrow_integers
from otel_rollout.redaction import Redactor
from otel_rollout.span import RolloutSpan
from otel_rollout.token_text import add_token_text

__all__ = ["PayloadFinisher", "SpanReader", "without_payload"]

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""A text attribute other than the payload is cut beyond this."""

SMALL_PAYLOAD: Final = 256
"""A payload up to this size is not worth a note in its place."""

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""What a span and one of its attributes take beside payload and long texts, about; a little more rather than less."""

_UNSET: Final = Status(StatusCode.UNSET)


class PayloadFinisher:
    """Makes a payload's JSON text fit to leave the process.

    Args:
        max_bytes: The longest text that leaves; longer ones are cut inside the JSON.
        redactor: Replaces secrets.
    """

    def __init__(self, max_bytes: int, redactor: Redactor | None) -> None:
        self.max_bytes = max_bytes
        self.redactor = redactor
        self.truncated_bytes = 0

    def __call__(self, text: bytes) -> str:
        """Return the finished text; what was cut is added to `truncated_bytes`."""
        return self.finish(text)[0]

    def is_clean(self, text: bytes) -> bool:
        """Return whether `text` is fit as it is: most payloads are, and a look at both sides of a span says so.

        Args:
            text: JSON in UTF-8, or several such texts one after the other, shorter than the limit together.
        """
        return (
            len(text) <= self.max_bytes
            and not may_need_mending(text)
            and not (self.redactor is not None and self.redactor.may_find(text))
        )

    def finish(self, text: bytes) -> tuple[str, int]:
        """Return the finished text, and how many bytes were cut from it; what can't be finished does not leave."""
        try:
            text = narrow_integers(cut_media(text))
            if self.redactor is not None:
                text = self.redactor(text)
            finished = cut_json(text, self.max_bytes)
        except Exception:  # noqa: BLE001, RUF100 - the span still counts
            internal_error("finishing a payload")
            finished = orjson.dumps("…[the payload could not be read]")
        cut = max(0, len(text) - len(finished))
        if len(text) >= EARLY_CUT_CHARACTERS:
            cut += characters_cut(text)
        self.truncated_bytes += cut
        return finished.decode(), cut


class SpanReader:
    """Turns light spans into `ReadableSpan`s; payloads are finished once, whichever exporter asks first.

    Args:
        resource: What the spans were made by.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
        is_shared: Whether several exporters read each span.
    """

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, finisher: PayloadFinisher, *, is_shared: bool = True
    ) -> None:
        self._is_shared = is_shared
        self._readers = 0
        self._resource = resource
        self._scope = scope
        self._finisher = finisher
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()

    def register(self) -> None:
        """Count one more exporter that every span goes to, before the first span."""
        self._readers += 1

    def release(self, span: RolloutSpan | ReadableSpan) -> None:
        """Give back what a span holds once every exporter is done with it; called once by each.

        A copied context, such as a background task's, keeps the span itself for as long as it lives.
        """
        if not isinstance(span, RolloutSpan):
            return
        # Without a lock, for a trainer's thread never waits: a count lost between two threads only keeps the payload.
        span.releases += 1
        if span.releases >= self._readers:
            span.readable = span.input = span.output = span.events = span.tokenizer = None

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the span in its standard form.

        Args:
            span: A finished span, ours or the SDK's.
            exporter: Whose queue asks; a root says what that queue lost of its trajectory.
        """
        if not isinstance(span, RolloutSpan):
            return span
        # The tokenizer first: it goes once its text is there.
        tokenizer = span.tokenizer
        readable = span.readable
        if readable is None:
            with self._lock:
                readable = span.readable
                if readable is None:
                    readable = self._read(span)
                    if self._is_shared:
                        _keep(span, readable)
                    else:
                        span.readable = readable
                        span.input = span.output = None
        elif tokenizer is not None:
            # A span of a provider that is not ours: its payload was finished when it was set.
            with self._lock:
                if span.tokenizer is not None:
                    span.readable = self._with_token_text(readable, span.tokenizer)
                    span.tokenizer = None
                readable = span.readable or readable
        if span.parent is None and span.trajectory is not None:
            dropped = span.trajectory.dropped_spans[exporter]
            if dropped:
                readable = replace_attributes(readable, {**(readable.attributes or {}), semconv.DROPPED_SPANS: dropped})
        return readable

    def _with_token_text(self, span: ReadableSpan, tokenizer: Any) -> ReadableSpan:
        attributes = dict(span.attributes or {})
        input_text, output_text = attributes.get(semconv.INPUT_VALUE), attributes.get(semconv.OUTPUT_VALUE)
        if not isinstance(output_text, str):
            return span
        before = output_text.encode("utf-8", "replace")
        try:
            after = add_token_text(
                tokenizer, str(input_text).encode("utf-8", "replace") if input_text else None, before
            )
        except ValueError:
            # The provider's own limit has cut the JSON.
            return span
        if after is before:
            return span
        return replace_attributes(span, {**attributes, semconv.OUTPUT_VALUE: self._finisher(after)})

    def _read(self, span: RolloutSpan) -> ReadableSpan:
        trajectory = span.trajectory
        attributes: dict[str, Any] = {}
        cut = 0
        output = span.output
        if output is not None and span.tokenizer is not None:
            output = add_token_text(span.tokenizer, span.input, output)
            span.tokenizer = None
        is_clean = self._finisher.is_clean(b"\n".join((span.input or b"", output or b"")))
        for text, value, mime_type in (
            (span.input, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE),
            (output, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE),
        ):
            if text is None:
                continue
            if is_clean:
                attributes[value] = text.decode()
            else:
                attributes[value], bytes_cut = self._finisher.finish(text)
                cut += bytes_cut
            attributes[mime_type] = semconv.JSON_MIME_TYPE
        text_bytes = len(span.name) * 4 + _add_attributes(attributes, span.attributes)
        if trajectory is not None:
            attributes.update(trajectory.tags)
            text_bytes += trajectory.tag_bytes
            if cut:
                trajectory.truncated_bytes += cut
            if span.parent is None and trajectory.truncated_bytes:
                attributes[semconv.TRUNCATED_BYTES] = trajectory.truncated_bytes
        readable = SizedSpan(
            name=_text(span.name),
            context=span.context,
            parent=span.parent,
            resource=self._resource,
            attributes=attributes,
            events=[_event(*event) for event in span.events] if span.events else (),
            links=span.links,
            status=Status(span.status_code, _text(span.status_description or "") or None)
            if span.status_code.value
            else _UNSET,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=self._scope,
        )
        if span.dropped_attributes or span.dropped_events or span.dropped_links:
            readable.dropped = (span.dropped_attributes, span.dropped_events, span.dropped_links)
        if not span.events and not span.links:
            payload_bytes = len(span.input or b"") + len(output or b"") - cut
            readable.size = SIZE_OF_SPAN + SIZE_OF_ATTRIBUTE * len(attributes) + payload_bytes + text_bytes
        return readable


def _keep(span: RolloutSpan, readable: ReadableSpan) -> None:
    """Keep the finished payload for the next exporter: in the standard form, or as bytes where that is far smaller."""
    attributes = readable.attributes or {}
    texts = (attributes.get(semconv.INPUT_VALUE, ""), attributes.get(semconv.OUTPUT_VALUE, ""))
    for text in texts:
        if isinstance(text, str) and not text.isascii():
            break
    else:
        span.readable = readable
        span.input = span.output = None
        return
    # One emoji makes a text of Python take four bytes for each character, and a slow exporter's queue holds many.
    span.input, span.output = (text.encode() if isinstance(text, str) and text else None for text in texts)


def _add_attributes(attributes: dict[str, Any], added: Mapping[str, Any]) -> int:
    """Add attributes in a form that OTLP and every backend accept; return what their texts take, about."""
    size = 0
    for key, value in added.items():
        kind = type(value)
        if kind is str:
            text = attributes[_text(key)] = _text(value)
            size += len(text) if text.isascii() else 4 * len(text)
        elif kind is bool or kind is float or (kind is int and -(2**63) <= value < 2**63):
            attributes[_text(key)] = value
        elif value is not None:
            plain = attributes[_text(key)] = _attribute(value)
            size += 4 * len(repr(plain))
    return size


def _attribute(value: Any) -> Any:
    """Return a scalar, a tuple of scalars of one kind, else a JSON text."""
    if isinstance(value, tuple) and value:
        items = tuple(_attribute(item) if isinstance(item, (str, bool, int, float)) else None for item in value)
        if items[0] is not None and all(type(item) is type(items[0]) for item in items):
            return items
    text = narrow_integers(snapshot(value))
    # What is no list and no object is a scalar: of numpy, of a subclass, an enum.
    plain = value if type(value) is float else orjson.loads(text)
    return _text(plain) if isinstance(plain, str) else plain if isinstance(plain, (bool, int, float)) else text.decode()


def _text(text: str) -> str:
    if len(text) > MAX_TEXT_CHARACTERS:
        text = cut_text(text, MAX_TEXT_CHARACTERS)
    return text if text.isascii() else clean_text(text)


def _event(name: str, timestamp: int, content: Attributes | TracebackException) -> Event:
    attributes: dict[str, Any] = {}
    if not isinstance(content, TracebackException):
        _add_attributes(attributes, content or {})
        return Event(_text(name), attributes, timestamp)
    stack = "".join(content.format())
    attributes = {
        semconv.EXCEPTION_TYPE: _text(_type_name(content)),
        semconv.EXCEPTION_MESSAGE: _text(str(content)),
        # The innermost frames stand at the end.
        semconv.EXCEPTION_STACKTRACE: clean_text(stack[-MAX_TEXT_CHARACTERS:]),
        "exception.escaped": "False",
    }
    return Event(name, attributes, timestamp)


def _type_name(content: TracebackException) -> str:
    if sys.version_info >= (3, 13):
        return content.exc_type_str or ""
    cls = content.exc_type
    if cls is None:
        return ""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def without_payload(span: RolloutSpan | ReadableSpan) -> RolloutSpan | ReadableSpan:
    """Return a copy of a finished span that says how large its payload was; the span itself where that is small."""
    if isinstance(span, RolloutSpan) and span.readable is None:
        if len(span.input or b"") + len(span.output or b"") <= SMALL_PAYLOAD:
            return span
        light = copy.copy(span)
        light.tokenizer = None
        light.input = _note(len(light.input)) if light.input is not None else None
        light.output = _note(len(light.output)) if light.output is not None else None
        return light
    readable = span.readable if isinstance(span, RolloutSpan) else span
    attributes = dict(readable.attributes or {}) if readable is not None else {}
    payload = {
        key: value
        for key, value in attributes.items()
        if key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE) and isinstance(value, str)
    }
    if readable is None or sum(map(len, payload.values())) <= SMALL_PAYLOAD:
        return span
    attributes |= {key: _note(len(value)).decode() for key, value in payload.items()}
    readable = replace_attributes(readable, attributes)
    if not isinstance(span, RolloutSpan):
        return readable
    light = copy.copy(span)
    light.readable, light.input, light.output = readable, None, None
    return light


def _note(size: int) -> bytes:
    # Not by orjson, whose texts keep a buffer of 4 KiB.
    return f'"…[{size:,} characters dropped: the export queue was full]"'.encode()
