"""A span between its end and its export: what the functions of finishing change, the user's among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Status, StatusCode
from opentelemetry.util.types import Attributes

from otel_rollout import semconv
from otel_rollout.facts.span_record import SpanRecord
from otel_rollout.finish.payload_limits import narrow_integers
from otel_rollout.finish.token_text import add_token_text, numbers_last
from otel_rollout.messages import ChatSide
from otel_rollout.record.attribute_values import read_name
from otel_rollout.record.recording_span import RecordedEvent, RecordedLink, RolloutSpan
from otel_rollout.record.snapshot import Snapshot, to_json
from otel_rollout.record.trajectory_state import TrajectoryState

_UNSET: Final = Status(StatusCode.UNSET)
_NO_TEXTS: Final[frozenset[str]] = frozenset()
_NO_MESSAGES: Final[Mapping[str, bytes]] = MappingProxyType({})
_NEVER_PRIVATE: Final = (semconv.SPAN_KIND, semconv.OPERATION_NAME, semconv.STATUS)


class SpanDraft:
    """An ended span before its export, whose name, attributes, input and output the functions of `init` may change.

    Args:
        name: The span's name.
        attributes: Its attributes, without input, output and the trajectory's tags.
    """

    __slots__ = (
        "attributes",
        "cut",
        "events",
        "has_input",
        "has_output",
        "input",
        "input_json",
        "is_copy",
        "links",
        "messages",
        "name",
        "output",
        "output_json",
        "record",
        "recorded",
        "redacted",
        "status",
        "tags",
        "text_bytes",
        "texts",
        "trajectory",
        "turn",
    )

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.name = name
        self.attributes = attributes
        self.input: Any = None
        """The arguments by name as plain data; on a root the prompt. None without an input."""
        self.output: Any = None
        """The result as plain data; on a root the answer. None without an output."""
        self.has_input = self.has_output = False
        self.input_json: bytes | None = None
        """The input as JSON, or as a text; None without an input."""
        self.output_json: bytes | None = None
        self.texts = _NO_TEXTS
        """The attribute keys of the sides that are text, not JSON."""
        self.messages = _NO_MESSAGES
        """The attributes of the messages, as JSON."""
        self.turn: tuple[ChatSide | None, ChatSide | None] | None = None
        """The messages that an LLM op got and its answer."""
        self.record: SpanRecord | None = None
        """The facts that its payload shows by itself, if an exporter needs them."""
        self.recorded: RolloutSpan | None = None
        """The span as it was recorded; None for one of another instrumentation."""
        self.is_copy = False
        """True if another exporter has the span whole, and this one a note in place of its payload."""
        self.trajectory: TrajectoryState | None = None
        self.tags: dict[str, Any] = {}
        self.events: Sequence[RecordedEvent] = ()
        self.links: Sequence[RecordedLink] = ()
        self.status = _UNSET
        self.cut = 0
        """Bytes, items and characters that were cut."""
        self.redacted = 0
        """Secrets that were replaced."""
        self.text_bytes = 0
        """The encoded bytes of the attributes' texts."""

    @property
    def kind(self) -> str | None:
        """AGENT, CHAIN, EVALUATOR, LLM or TOOL; None for most spans of other instrumentations."""
        return self.attributes.get(semconv.SPAN_KIND)

    def hide(self, note: str) -> None:
        """Replace input and output by a note, and leave out all other texts that may be private."""
        self.input = note if self.has_input else None
        self.output = note if self.has_output else None
        self.attributes = {
            key: value
            for key, value in self.attributes.items()
            if key in _NEVER_PRIVATE or type(value) in (bool, int, float)
        }
        self.events, self.status = (), Status(self.status.status_code)
        self.links = [RecordedLink(link.context, {}, link.dropped_attributes) for link in self.links]


Transform: TypeAlias = Callable[[SpanDraft], "SpanDraft | None"]
"""A function of the user's: it changes the draft that it gets, and returns it or None."""


def draft_of(span: RolloutSpan) -> SpanDraft:
    """Load a recorded span: the text of token ids before them, and long lists of numbers last."""
    draft = SpanDraft(span.name, span.attributes)
    draft.recorded = span
    given, result = span.input, span.output
    if given is not None:
        draft.input, draft.cut, draft.has_input = given.load(), given.left_out, True
    if result is not None:
        draft.output, draft.has_output = result.load(), True
        draft.cut += result.left_out
    if span.tokenizer is not None:
        draft.input, draft.output = add_token_text(span.tokenizer, draft.input, draft.output)
    draft.input, draft.output = numbers_last(draft.input), numbers_last(draft.output)
    for value in span.attributes.values():
        if type(value) is Snapshot or value is None:
            draft.attributes = shown(draft, span.attributes)
            break
    if span.trajectory is not None:
        draft.trajectory, draft.tags = span.trajectory, span.trajectory.tags
    if span.events:
        draft.events = [_shown_event(draft, event) for event in span.events]
    if span.links:
        draft.links = [link._replace(attributes=shown(draft, link.attributes)) for link in span.links]
    if span.status_code is not StatusCode.UNSET:
        draft.status = Status(span.status_code, span.status_description)
    return draft


def draft_of_readable(span: ReadableSpan) -> SpanDraft:
    """Return the draft of another instrumentation's span, all of whose payload is in its attributes."""
    draft = SpanDraft(read_name(span.name), {**(span.attributes or {})})
    draft.status = span.status
    draft.events = [
        RecordedEvent(read_name(event.name), event.timestamp, {**(event.attributes or {})}, _dropped(event.attributes))
        for event in span.events
    ]
    draft.links = [
        RecordedLink(link.context, {**(link.attributes or {})}, _dropped(link.attributes)) for link in span.links
    ]
    return draft


def _dropped(attributes: Attributes) -> int:
    return getattr(attributes, "dropped", 0)


def _shown_event(draft: SpanDraft, event: RecordedEvent) -> RecordedEvent:
    attributes = shown(draft, event.attributes)
    if event.exception is not None:
        attributes = {**event.exception.attributes(), **attributes}
    return RecordedEvent(event.name, event.timestamp, attributes, event.dropped_attributes)


def shown(draft: SpanDraft, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without None, which not all backends have, and with JSON texts in the place of snapshots."""
    return {key: _shown_value(draft, value) for key, value in attributes.items() if value is not None}


def _shown_value(draft: SpanDraft, value: Any) -> Any:
    if type(value) is not Snapshot:
        return value
    draft.cut += value.left_out
    text = narrow_integers(to_json(value))
    # Integers over 64 bits are texts.
    return str(orjson.loads(text)) if text[:1] == b'"' else text.decode()
