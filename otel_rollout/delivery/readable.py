"""A light span as the standard `ReadableSpan`, on the delivery thread: limits, redaction, token text, tags."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.types import Attributes

from otel_rollout import semconv
from otel_rollout.delivery.finished_span import FinishedSpan
from otel_rollout.delivery.shrink import replace_attributes
from otel_rollout.delivery.size import rest_size
from otel_rollout.exception_record import ExceptionRecord
from otel_rollout.log_once import internal_error
from otel_rollout.payload import Snapshot, clean_text, cut_text, snapshot
from otel_rollout.payload_json import to_json
from otel_rollout.payload_limits import cut_json, cut_media, may_need_mending, narrow_integers
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

_OTHER_ATTRIBUTES: Final = 10
"""How many attributes a span has beside its own, at most: input and output with their MIME types, and the tags."""


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

    def __call__(self, taken: Snapshot) -> str:
        """Return the finished text of a snapshot; what was cut is added to `truncated_bytes`."""
        self.truncated_bytes += cut_before(taken)
        return self.finish(to_json(taken))[0].decode()

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

    def finish(self, text: bytes) -> tuple[bytes, int]:
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
        self.truncated_bytes += cut
        return finished, cut


def cut_before(taken: Snapshot | None) -> int:
    """Return how many bytes the budget of a snapshot kept out of it, at least."""
    return 0 if taken is None else taken.left_out


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
                    readable = span.readable = self._read(span)
                    span.input = span.output = None
        elif tokenizer is not None:
            # A span of a provider that is not ours: its payload was finished when it was set.
            with self._lock:
                if span.tokenizer is not None:
                    span.readable = self._with_token_text(readable, span.tokenizer)
                    span.tokenizer = None
                readable = span.readable or readable
        if self._is_shared and isinstance(readable, FinishedSpan):
            readable = readable.view()
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
        return replace_attributes(span, {**attributes, semconv.OUTPUT_VALUE: self._finisher.finish(after)[0].decode()})

    def _read(self, span: RolloutSpan) -> ReadableSpan:
        trajectory = span.trajectory
        cut = cut_before(span.input) + cut_before(span.output)
        self._finisher.truncated_bytes += cut
        text = None if span.input is None else to_json(span.input)
        output = None if span.output is None else to_json(span.output)
        if output is not None and span.tokenizer is not None:
            output = add_token_text(span.tokenizer, text, output)
            span.tokenizer = None
        # In one piece: a look at it sees both.
        payload = b"%b\n%b" % (text or b"", output or b"")
        if not self._finisher.is_clean(payload):
            finished = [(b"", 0) if side is None else self._finisher.finish(side) for side in (text, output)]
            (text_finished, text_cut), (output_finished, output_cut) = finished
            cut += text_cut + output_cut
            text = None if text is None else text_finished
            payload = b"%b\n%b" % (text_finished, output_finished)
        span.name = _text(span.name)
        span.attributes, text_bytes = _plain_attributes(span.attributes)
        if trajectory is not None:
            text_bytes += trajectory.tag_bytes
            if cut:
                trajectory.truncated_bytes += cut
            if span.parent is None and trajectory.truncated_bytes:
                span.attributes = {**span.attributes, semconv.TRUNCATED_BYTES: trajectory.truncated_bytes}
        if span.status_description:
            span.status_description = _text(span.status_description)
        events: Sequence[Event] = ()
        size = SIZE_OF_SPAN + 4 * len(span.name) + text_bytes + len(payload)
        size += SIZE_OF_ATTRIBUTE * (len(span.attributes) + _OTHER_ATTRIBUTES)
        if span.events or span.links or span.status_description:
            events = [_event(*event) for event in span.events or ()]
            size += rest_size(events, span.links, span.status_description)
        return FinishedSpan(
            span,
            self._resource,
            self._scope,
            payload,
            -1 if text is None else len(text),
            output is not None,
            events,
            size,
        )


def _plain_attributes(attributes: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the attributes in a form that OTLP and every backend accept, and what their texts take, about.

    Args:
        attributes: The attributes; returned themselves where nothing is to be changed, as is usual.
    """
    size = 0
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            if len(value) > MAX_TEXT_CHARACTERS or not value.isascii():
                break
            size += len(value)
        elif kind is tuple and len(value) == 1 and type(value[0]) is str:
            # Why a model stopped, which each of its spans says.
            if len(value[0]) > MAX_TEXT_CHARACTERS or not value[0].isascii():
                break
            size += len(value[0]) + SIZE_OF_ATTRIBUTE
        elif kind is not bool and kind is not float and not (kind is int and -(2**63) <= value < 2**63):
            break
        if not key.isascii():
            break
    else:
        return attributes, size
    plain: dict[str, Any] = {}
    return plain, _add_attributes(plain, attributes)


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
    text = narrow_integers(to_json(snapshot(value)))
    # What is no list and no object is a scalar: of numpy, of a subclass, an enum.
    plain = value if type(value) is float else orjson.loads(text)
    return _text(plain) if isinstance(plain, str) else plain if isinstance(plain, (bool, int, float)) else text.decode()


def _text(text: str) -> str:
    if len(text) > MAX_TEXT_CHARACTERS:
        text = cut_text(text, MAX_TEXT_CHARACTERS)
    return text if text.isascii() else clean_text(text)


def _event(name: str, timestamp: int, content: Attributes | ExceptionRecord) -> Event:
    attributes: dict[str, Any] = {}
    if not isinstance(content, ExceptionRecord):
        _add_attributes(attributes, content or {})
        return Event(_text(name), attributes, timestamp)
    attributes = {key: _text(text) for key, text in content.attributes().items()}
    # The innermost frames stand at the end.
    attributes[semconv.EXCEPTION_STACKTRACE] = clean_text(content.format()[-MAX_TEXT_CHARACTERS:])
    return Event(name, attributes, timestamp)


def without_payload(span: RolloutSpan | ReadableSpan) -> RolloutSpan | ReadableSpan:
    """Return a copy of a finished span that says how large its payload was; the span itself where that is small."""
    if isinstance(span, RolloutSpan) and span.readable is None:
        sides = [side for side in (span.input, span.output) if side is not None]
        if sum(side.size for side in sides) <= SMALL_PAYLOAD:
            return span
        light = copy.copy(span)
        light.tokenizer = None
        light.input = None if span.input is None else _dropped(span.input)
        light.output = None if span.output is None else _dropped(span.output)
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
    attributes |= {key: f'"{_note(len(value))}"' for key, value in payload.items()}
    readable = replace_attributes(readable, attributes)
    if not isinstance(span, RolloutSpan):
        return readable
    light = copy.copy(span)
    light.readable, light.input, light.output = readable, None, None
    return light


def _dropped(taken: Snapshot) -> Snapshot:
    return Snapshot(_note(taken.size), SMALL_PAYLOAD // 2)


def _note(size: int) -> str:
    return f"…[{size:,} bytes dropped: the export queue was full]"
