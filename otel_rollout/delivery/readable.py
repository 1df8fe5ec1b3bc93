"""A light span as the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import copy
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
from otel_rollout.payload import cut_text, snapshot
from otel_rollout.payload_limits import cut_json, cut_media, narrow_integers
from otel_rollout.redaction import Redactor
from otel_rollout.span import RolloutSpan
from otel_rollout.token_text import add_token_text

__all__ = ["PayloadFinisher", "SpanReader", "without_payload"]

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""A text attribute other than the payload is cut beyond this."""

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

    def finish(self, text: bytes) -> tuple[str, int]:
        """Return the finished text, and how many bytes were cut from it."""
        text = narrow_integers(cut_media(text))
        if self.redactor is not None:
            text = self.redactor(text)
        cut = 0
        if len(text) > self.max_bytes:
            shorter = cut_json(text, self.max_bytes)
            cut = len(text) - len(shorter)
            self.truncated_bytes += cut
            text = shorter
        return text.decode(), cut


class SpanReader:
    """Turns light spans into `ReadableSpan`s, once per span, whichever exporter asks first.

    Args:
        resource: What the spans were made by.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
    """

    def __init__(self, resource: Resource, scope: InstrumentationScope, finisher: PayloadFinisher) -> None:
        self._resource = resource
        self._scope = scope
        self._finisher = finisher
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the span in its standard form.

        Args:
            span: A finished span, ours or the SDK's.
            exporter: Whose queue asks; a root says what that queue lost of its trajectory.
        """
        if not isinstance(span, RolloutSpan):
            return span
        readable = span.readable
        if readable is None:
            with self._lock:
                readable = span.readable
                if readable is None:
                    readable = span.readable = self._read(span)
                    # The bytes are in the text now.
                    span.input = span.output = None
        if span.parent is None and span.trajectory is not None:
            dropped = span.trajectory.dropped_spans[exporter]
            if dropped:
                readable = replace_attributes(readable, {**(readable.attributes or {}), semconv.DROPPED_SPANS: dropped})
        return readable

    def _read(self, span: RolloutSpan) -> ReadableSpan:
        trajectory = span.trajectory
        attributes: dict[str, Any] = {}
        cut = 0
        if span.input is not None:
            attributes[semconv.INPUT_VALUE], cut = self._finisher.finish(span.input)
            attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
        if span.output is not None:
            output = span.output
            if span.tokenizer is not None:
                output = add_token_text(span.tokenizer, span.input, output)
                span.tokenizer = None
            attributes[semconv.OUTPUT_VALUE], cut_output = self._finisher.finish(output)
            attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
            cut += cut_output
        for key, value in span.attributes.items():
            kind = type(value)
            if kind is str:
                attributes[key] = value if len(value) <= MAX_TEXT_CHARACTERS else cut_text(value, MAX_TEXT_CHARACTERS)
            elif kind is bool or kind is int or kind is float:
                attributes[key] = value
            else:
                attributes[key] = _plain(value)
        if trajectory is not None:
            attributes.update(trajectory.tags)
            if cut:
                trajectory.truncated_bytes += cut
            if span.parent is None and trajectory.truncated_bytes:
                attributes[semconv.TRUNCATED_BYTES] = trajectory.truncated_bytes
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=self._resource,
            attributes=attributes,
            events=[_event(*event) for event in span.events] if span.events else (),
            links=span.links,
            status=Status(span.status_code, span.status_description) if span.status_code.value else _UNSET,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=self._scope,
        )


def _event(name: str, timestamp: int, content: Attributes | TracebackException) -> Event:
    if not isinstance(content, TracebackException):
        return Event(name, content, timestamp)
    cls = content.exc_type
    type_name = ""
    if cls is not None:
        type_name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    stack = "".join(content.format())
    attributes = {
        semconv.EXCEPTION_TYPE: type_name,
        semconv.EXCEPTION_MESSAGE: cut_text(str(content), MAX_TEXT_CHARACTERS)
        if len(str(content)) > MAX_TEXT_CHARACTERS
        else str(content),
        semconv.EXCEPTION_STACKTRACE: stack[-MAX_TEXT_CHARACTERS:],
        "exception.escaped": "False",
    }
    return Event(name, {key: value.encode("utf-8", "replace").decode() for key, value in attributes.items()}, timestamp)


def _plain(value: Any) -> Any:
    """Return what OTLP and every backend accept: a scalar, a list of scalars of one kind, else a JSON text."""
    if isinstance(value, tuple) and value and isinstance(value[0], (str, bool, int, float)):
        kind = type(value[0])
        if all(type(item) is kind for item in value):
            return value
    if value is None or isinstance(value, (Mapping, list, tuple, bytes)):
        return snapshot(value).decode()
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def without_payload(span: RolloutSpan | ReadableSpan) -> RolloutSpan | ReadableSpan:
    """Return a copy of a finished span that says how large its payload was, in place of the payload."""
    if isinstance(span, RolloutSpan):
        light = copy.copy(span)
        light.tokenizer = None
        if light.readable is not None:
            light.readable = _without_payload(light.readable)
            light.input = light.output = None
        if light.input is not None:
            light.input = _note(len(light.input))
        if light.output is not None:
            light.output = _note(len(light.output))
        return light
    return _without_payload(span)


def _without_payload(span: ReadableSpan) -> ReadableSpan:
    attributes = dict(span.attributes or {})
    for key in (semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
        value = attributes.get(key)
        if isinstance(value, str):
            attributes[key] = _note(len(value)).decode()
    return replace_attributes(span, attributes)


def _note(size: int) -> bytes:
    return orjson.dumps(f"…[{size:,} characters dropped: the export queue was full]")
