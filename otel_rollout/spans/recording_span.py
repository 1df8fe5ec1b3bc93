"""The span on the hot path: a valid current span for any instrumentation, and nothing that isn't needed before it ends.

The SDK's span costs its maker a copy and a check of each attribute, five locks and an immutable record. This one keeps
references and bytes; everything else happens on the delivery thread, in `processing.span_conversion`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import AnyValue, Attributes

from otel_rollout import semconv
from otel_rollout.safety.guard import guarded
from otel_rollout.spans.span_bounds import DEFAULT_BOUNDS, SpanBounds
from otel_rollout.values.attribute_values import (
    MAX_KEY_CHARACTERS,
    MAX_PAIRS,
    MAX_TEXT_CHARACTERS,
    held_bytes,
    read_attributes,
    read_context,
    read_key,
    read_name,
    read_pairs,
    read_text,
    read_time,
    read_value,
)
from otel_rollout.values.exception_record import ExceptionRecord, exception_text
from otel_rollout.values.sanitize import INT64_MAX, INT64_MIN
from otel_rollout.values.snapshot import Snapshot

if TYPE_CHECKING:
    from otel_rollout.spans.finished_span import FinishedSpan
    from otel_rollout.spans.trajectory_state import TrajectoryState

__all__ = ["RecordedEvent", "RecordedLink", "RolloutSpan"]

BASE_BYTES: Final = 1300
"""What a span without payload takes in memory, about."""
EVENT_BYTES: Final = 200
MAX_EXTRA_BYTES: Final = 16 * 1024 * 1024
"""How much a span holds beside its payload; what is set beyond that is dropped and counted."""


class RecordedEvent(NamedTuple):
    """An event as it was added.

    Args:
        name: Its name.
        timestamp: When it was, in nanoseconds since the epoch.
        attributes: Its attributes.
        dropped_attributes: How many more it was given.
        exception: The exception that it is about, if so.
    """

    name: str
    timestamp: int
    attributes: dict[str, Any]
    dropped_attributes: int
    exception: ExceptionRecord | None = None


class RecordedLink(NamedTuple):
    """A link as it was added.

    Args:
        context: The ids of the span that it points to.
        attributes: Its attributes.
        dropped_attributes: How many more it was given.
    """

    context: SpanContext
    attributes: dict[str, Any]
    dropped_attributes: int


class RolloutSpan(Span):
    """A span that is cheap to make; handed to `on_end` when it ends.

    Whatever its methods are given, they raise nothing and call no method of a user's class: values are read by type.

    Args:
        name: The span's name.
        context: Its ids; or its span id alone, where the rest is its parent's.
        parent: The parent's ids; None for a root.
        attributes: What is known at the start; kept, and copied only once more is set.
        trajectory: The trajectory that it belongs to, whose tags are merged when the span is read.
        links: Spans of other traces that it points to.
        on_end: Takes the finished span.
        bounds: How much of what others set on it is kept.
    """

    __slots__ = (
        "attributes",
        "bounds",
        "dropped_attributes",
        "dropped_events",
        "dropped_links",
        "end_time",
        "events",
        "extra_bytes",
        "finished",
        "ids",
        "input",
        "links",
        "name",
        "on_end",
        "output",
        "owns_attributes",
        "parent",
        "readable",
        "releases",
        "start_time",
        "status_code",
        "status_description",
        "tokenizer",
        "trajectory",
    )

    def __init__(
        self,
        name: str,
        context: SpanContext | int,
        parent: SpanContext | None,
        attributes: dict[str, Any],
        trajectory: TrajectoryState | None,
        links: tuple[Link, ...],
        on_end: Callable[[RolloutSpan], None],
        bounds: SpanBounds = DEFAULT_BOUNDS,
    ) -> None:
        self.name = name if type(name) is str else read_name(name)
        self.ids = context
        self.parent = parent
        self.attributes = attributes
        self.owns_attributes = False
        self.trajectory = trajectory
        self.bounds = bounds
        self.links: list[RecordedLink] | None = None
        self.on_end = on_end
        self.input: Snapshot | None = None
        self.output: Snapshot | None = None
        self.events: list[RecordedEvent] | None = None
        self.status_code = StatusCode.UNSET
        self.status_description: str | None = None
        self.extra_bytes = 0
        self.dropped_attributes = 0
        self.dropped_events = 0
        self.dropped_links = 0
        self.tokenizer: Any = None
        # Of a provider that is not ours: the span that this one stands for in our queues.
        self.readable: ReadableSpan | None = None
        self.finished: FinishedSpan | None = None
        # How many exporters are done with the span.
        self.releases = 0
        self.end_time: int | None = None
        if links:
            for link in links:
                self.add_link(link.context, link.attributes)
        self.start_time = time_ns()

    @classmethod
    def of_provider(cls, span: ReadableSpan, context: SpanContext, trajectory: TrajectoryState | None) -> RolloutSpan:
        """Return what stands in our queues for an ended span of a provider that is not ours.

        Args:
            span: The provider's span.
            context: Its ids.
            trajectory: The trajectory that it belongs to.
        """
        ours = cls(span.name, context, span.parent, {}, trajectory, (), lambda ended: None)
        ours.readable, ours.end_time = span, span.end_time
        return ours

    @property
    def context(self) -> SpanContext:
        """The span's ids, made when they are first asked for: a span that nothing runs inside is not, on its way."""
        ids = self.ids
        if isinstance(ids, int):
            trace_id, _, _, trace_flags, trace_state, is_valid = cast("SpanContext", self.parent)
            # As the tuple that it is: the constructor checks each id once more.
            ids = tuple.__new__(SpanContext, (trace_id, ids, False, trace_flags, trace_state, is_valid))
            self.ids = ids
        return ids

    @property
    def size(self) -> int:
        """Bytes that the span takes in memory, about."""
        size = BASE_BYTES + self.extra_bytes
        if self.input is not None:
            size += self.input.size
        return size if self.output is None else size + self.output.size

    def finish(self, finished: FinishedSpan) -> FinishedSpan:
        """Keep what is exported of the span, and no longer what it was made from."""
        self.finished = finished
        self.input = self.output = self.tokenizer = None
        return finished

    def release(self, exporters: int) -> None:
        """Give back what the span holds once each of `exporters` is done with it; called once by each.

        A copied context, such as a background task's, keeps the span itself for as long as it lives.
        """
        # Without a lock, for a trainer's thread never waits: a count lost between two threads only keeps the payload.
        self.releases += 1
        if self.releases >= exporters:
            self.readable = self.finished = self.input = self.output = self.events = self.tokenizer = None

    def copy(
        self,
        *,
        input: Snapshot | None = None,  # noqa: A002 - the attribute's name
        output: Snapshot | None = None,
        finished: FinishedSpan | None = None,
        readable: ReadableSpan | None = None,
    ) -> RolloutSpan:
        """Return a copy with another payload; this span stays as it is."""
        copied = copy.copy(self)
        copied.input, copied.output, copied.tokenizer = input, output, None
        copied.finished, copied.readable = finished, readable
        return copied

    def get_span_context(self) -> SpanContext:
        """Return the span's ids."""
        return self.context

    def is_recording(self) -> bool:
        """Return True until the span has ended."""
        return self.end_time is None

    @guarded("setting an attribute")
    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set one attribute as its value is now; a key that is no text is dropped and counted."""
        if self.end_time is None:
            self._set(((key, value),))

    @guarded("setting attributes")
    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set several attributes."""
        if self.end_time is not None:
            return
        if type(attributes) is dict and len(attributes) <= MAX_PAIRS:
            # At once, as another thread may add to it meanwhile.
            self._set([*attributes.items()])
            return
        pairs, dropped = read_pairs(attributes, self.bounds.attributes)
        self.dropped_attributes += dropped
        self._set(pairs)

    def _set(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Set attributes; beyond the limits they are dropped, unless they are there already."""
        own = self.attributes if self.owns_attributes or not pairs else self._own_attributes()
        limit = self.bounds.attributes
        held = self.extra_bytes
        for key, value in pairs:
            if type(key) is not str or not 0 < len(key) <= MAX_KEY_CHARACTERS:
                key = read_key(key)  # noqa: PLW2901 - the same key, as plain text
            is_new = key not in own
            if key is None or (is_new and len(own) >= limit) or held > MAX_EXTRA_BYTES:
                self.dropped_attributes += 1
                continue
            if not is_new:
                held -= held_bytes(own[key])
            kind = type(value)
            if kind is str and len(value) <= MAX_TEXT_CHARACTERS:
                held += len(value)
            elif kind is not bool and kind is not float and (kind is not int or not INT64_MIN <= value <= INT64_MAX):
                value = read_value(value)  # noqa: PLW2901, RUF100 - likewise
                held += held_bytes(value)
            own[key] = value
        self.extra_bytes = held

    def _own_attributes(self) -> dict[str, Any]:
        """Return the attributes, to be changed: a copy, where they are the op's until now."""
        if not self.owns_attributes:
            self.attributes = {**self.attributes}
            self.owns_attributes = True
        return self.attributes

    @guarded("adding an event")
    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event at `timestamp` (nanoseconds since the epoch; now where None)."""
        self._add_event(name, attributes, timestamp)

    @guarded("adding a link")
    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link to a span of another trace."""
        if self.end_time is not None:
            return
        ids = read_context(context)
        links = self.links
        if links is None:
            links = self.links = []
        if ids is None or len(links) >= self.bounds.links or self.extra_bytes > MAX_EXTRA_BYTES:
            self.dropped_links += 1
            return
        kept, dropped = read_attributes(attributes, self.bounds.link_attributes)
        self.extra_bytes += EVENT_BYTES + _all_held_bytes(kept)
        links.append(RecordedLink(ids, kept, dropped))

    @guarded("changing a span's name")
    def update_name(self, name: str) -> None:
        """Change the span's name."""
        if self.end_time is None and name is not None:
            self.name = read_name(name)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final (https://opentelemetry.io/docs/specs/otel/trace/api/#set-status)."""
        if self.end_time is not None or self.status_code is StatusCode.OK:
            return
        if type(status) is Status:
            code, description = status.status_code, status.description
        elif type(status) is StatusCode:
            code = status
        else:
            return
        if code is not StatusCode.UNSET:
            self.status_code = code
            self.status_description = read_text(description) if code is StatusCode.ERROR else None

    @guarded("recording an exception")
    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception as an event; its traceback is noted now and written out on the delivery thread.

        The traceback is not kept itself: it would keep the locals of every frame alive.

        Args:
            exception: The exception.
            attributes: More attributes of the event, which may also override those of the exception.
            timestamp: When it was, in nanoseconds since the epoch; now where None.
            escaped: Whether it leaves the span.
        """
        if not issubclass(type(exception), BaseException):
            self.dropped_events += 1
            return
        record = ExceptionRecord(exception)
        self._add_event(semconv.EXCEPTION_EVENT, attributes, timestamp, record, is_escaped=escaped is True)

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it over; only the first call counts."""
        if self.end_time is None:
            # The system's clock may have been set back meanwhile.
            now = max(time_ns(), self.start_time)
            self.end_time = now if end_time is None else read_time(end_time) or now
            self.on_end(self)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Record what leaves the `with` block, as the SDK's spans do, and end the span."""
        if exc_val is not None:
            self.record_exception(exc_val, escaped=True)
            self.set_status(StatusCode.ERROR, exception_text(exc_val))
        super().__exit__(exc_type, exc_val, exc_tb)

    def _add_event(
        self,
        name: Any,
        attributes: Any,
        timestamp: Any,
        exception: ExceptionRecord | None = None,
        *,
        is_escaped: bool = False,
    ) -> None:
        if self.end_time is not None:
            return
        if self.events is None:
            self.events = []
        if len(self.events) >= self.bounds.events or self.extra_bytes > MAX_EXTRA_BYTES:
            self.dropped_events += 1
            return
        kept, dropped = read_attributes(attributes, self.bounds.event_attributes)
        if exception is not None:
            kept.setdefault(semconv.EXCEPTION_ESCAPED, str(is_escaped))
            self.extra_bytes += exception.size
        self.extra_bytes += EVENT_BYTES + _all_held_bytes(kept)
        self.events.append(RecordedEvent(read_name(name), read_time(timestamp) or time_ns(), kept, dropped, exception))


def _all_held_bytes(attributes: dict[str, Any]) -> int:
    return sum(len(key) + held_bytes(value) for key, value in attributes.items())
