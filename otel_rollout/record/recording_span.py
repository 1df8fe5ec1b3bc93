"""The recording span: cheap on the caller's thread, and a valid current span for any instrumentation.

The SDK's span copies and checks each attribute, takes five locks and builds an immutable record. This one keeps
references; the rest of the work happens on the delivery thread, in `finish.finishing`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from sys import getsizeof
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import AnyValue, Attributes

from otel_rollout import semconv
from otel_rollout.guard import clock
from otel_rollout.record.attribute_values import (
    BYTES_OF_A_KEY,
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
from otel_rollout.record.exception_record import (
    ExceptionRecord,
    exception_message,
    exception_text,
    exception_type_name,
)
from otel_rollout.record.snapshot import Snapshot
from otel_rollout.record.span_bounds import DEFAULT_BOUNDS, SpanBounds
from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from otel_rollout.record.finished_span import FinishedSpan
    from otel_rollout.record.trajectory_state import TrajectoryState

BASE_BYTES: Final = 1300
"""An estimate of the memory of a span without payload."""
EVENT_BYTES: Final = 200
MAX_EXTRA_BYTES: Final = 16 * 1024 * 1024
"""The limit of a span's bytes without its payload; beyond it attributes, events and links are dropped and counted."""
MAX_MESSAGE_CHARACTERS: Final = 2000


class RecordedEvent(NamedTuple):
    """An event."""

    name: str
    timestamp: int
    attributes: dict[str, Any]
    dropped_attributes: int
    exception: ExceptionRecord | None = None


class RecordedLink(NamedTuple):
    """A link."""

    context: SpanContext
    attributes: dict[str, Any]
    dropped_attributes: int


class RolloutSpan(Span):
    """A recording span.

    Its methods never raise and call no method of a user's class: values are read by their type.

    Args:
        context: Its ids; or only its span id, if the rest is its parent's.
        attributes: The first attributes; copied.
    """

    # Defaults of the class, not assignments of `__init__`: most spans keep most of them.
    links: list[RecordedLink] | None = None
    input: Snapshot | None = None
    output: Snapshot | None = None
    returned = ""
    """The classes of a generation's result, which the snapshot has as plain data."""
    events: list[RecordedEvent] | None = None
    status_code = StatusCode.UNSET
    status_description: str | None = None
    depth = 0
    """The number of agents, tools and evaluators that it is inside."""
    extra_bytes = 0
    dropped_attributes = 0
    dropped_events = 0
    dropped_links = 0
    tokenizer: Any = None
    start_context: Context | None = None
    """The context that it started in, if an application's provider is joined."""
    finished: FinishedSpan | None = None
    releases = 0
    """The number of exporters that are done with the span."""
    end_time: int | None = None

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
        if isinstance(context, int):
            trace_id, _, _, trace_flags, trace_state, is_valid = cast("SpanContext", parent)
            # The constructor of this tuple would check each id again.
            context = tuple.__new__(SpanContext, (trace_id, context, False, trace_flags, trace_state, is_valid))
        self.context = context
        self.parent = parent
        self.attributes = {**attributes}
        self.trajectory = trajectory
        self.bounds = bounds
        self.on_end = on_end
        if links:
            for link in links:
                self.add_link(link.context, link.attributes)
        self.clock_offset = offset = clock.clock_offset() if trajectory is None else trajectory.clock_offset
        self.start_time = clock.monotonic_ns() + offset

    @property
    def size(self) -> int:
        """An estimate of the span's memory in bytes."""
        size = BASE_BYTES + self.extra_bytes
        if self.input is not None:
            size += self.input.size
        return size if self.output is None else size + self.output.size

    def finish(self, finished: FinishedSpan) -> FinishedSpan:
        """Keep the finished span, and free its snapshots."""
        self.finished = finished
        self.input = self.output = self.tokenizer = None
        return finished

    def release(self, exporters: int) -> None:
        """Free the payload once each of `exporters` is done with it; called once by each.

        A copied context, such as a background task's, keeps the span itself alive.
        """
        # No lock, as a trainer's thread never waits: a count lost between two threads only keeps the payload longer.
        self.releases += 1
        if self.releases >= exporters:
            self.start_context = self.finished = self.input = self.output = self.events = self.tokenizer = None

    def copy(
        self,
        *,
        input: Snapshot | None = None,  # noqa: A002 - the attribute's name
        output: Snapshot | None = None,
        finished: FinishedSpan | None = None,
    ) -> RolloutSpan:
        """Return a copy with another payload; this span stays as it is."""
        copied = copy.copy(self)
        copied.input, copied.output, copied.tokenizer = input, output, None
        copied.finished = finished
        return copied

    def now(self) -> int:
        """Return the nanoseconds since 1970, by the clock of its trajectory, which never goes back."""
        return clock.monotonic_ns() + self.clock_offset

    def get_span_context(self) -> SpanContext:
        """Return the span's ids."""
        return self.context

    def is_recording(self) -> bool:
        """Return True until the span has ended."""
        return self.end_time is None

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set an attribute to the value's current state; a key that isn't a text is dropped and counted."""
        if self.end_time is None:
            self._set(((key, value),))

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set several attributes."""
        if self.end_time is not None:
            return
        if type(attributes) is dict and len(attributes) <= MAX_PAIRS:
            # In one step, as another thread may add an item meanwhile.
            self._set([*attributes.items()])
            return
        pairs, dropped = read_pairs(attributes, self.bounds.attributes)
        self.dropped_attributes += dropped
        self._set(pairs)

    def _set(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Set attributes; beyond the limits new ones are dropped."""
        own = self.attributes
        limit = self.bounds.attributes
        held = self.extra_bytes
        for key, value in pairs:
            if type(key) is not str or not 0 < len(key) <= MAX_KEY_CHARACTERS:
                key = read_key(key)  # noqa: PLW2901 - the same key, as plain text
            is_new = key not in own
            if key is None or (is_new and len(own) >= limit) or held > MAX_EXTRA_BYTES:
                self.dropped_attributes += 1
                continue
            held += len(key) + BYTES_OF_A_KEY if is_new else -held_bytes(own[key])
            kind = type(value)
            is_short = kind is str and len(value) <= MAX_TEXT_CHARACTERS
            if is_short or kind is float or kind is bool or (kind is int and INT64_MIN <= value <= INT64_MAX):
                held += getsizeof(value)
            else:
                value = read_value(value)  # noqa: PLW2901 - likewise
                held += held_bytes(value)
            own[key] = value
        self.extra_bytes = held

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event at `timestamp` (nanoseconds since the epoch; now if None)."""
        self._add_event(name, attributes, timestamp)

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
        kept: dict[str, Any] = {}
        dropped = 0
        if attributes is not None:
            kept, dropped = read_attributes(attributes, self.bounds.link_attributes)
            self.extra_bytes += _all_held_bytes(kept)
        self.extra_bytes += EVENT_BYTES
        links.append(RecordedLink(ids, kept, dropped))

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

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception as an event; the delivery thread formats its traceback.

        The traceback object is not kept: it would keep the locals of every frame alive.
        """
        if not issubclass(type(exception), BaseException):
            self.dropped_events += 1
            return
        record = ExceptionRecord(exception)
        self._add_event(semconv.EXCEPTION_EVENT, attributes, timestamp, record, is_escaped=escaped is True)

    def fail(self, error: BaseException) -> str:
        """Record the exception that left traced code; return the trajectory's status: `error` or `cancelled`.

        `asyncio.CancelledError`, `KeyboardInterrupt` and `SystemExit` cancel: the span fails, without a stack trace.
        `GeneratorExit` cancels and the span doesn't fail: the consumer stopped the iteration.
        """
        name = exception_type_name(error)
        if issubclass(type(error), Exception):
            self.set_attribute(semconv.ERROR_TYPE, name)
            message = exception_message(error)[:MAX_MESSAGE_CHARACTERS]
            self.set_status(StatusCode.ERROR, f"{name}: {message}" if message else name)
            self.record_exception(error)
            return "error"
        if not issubclass(type(error), GeneratorExit):
            self.set_attribute(semconv.ERROR_TYPE, name)
            self.set_status(StatusCode.ERROR, "cancelled")
        self.set_attribute(semconv.STATUS, "cancelled")
        return "cancelled"

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it to `on_end`; only the first call counts."""
        if self.end_time is None:
            # The program may have given a start in the future.
            now = max(self.now(), self.start_time)
            self.end_time = now if end_time is None else read_time(end_time) or now
            self.on_end(self)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Record an exception that leaves the `with` block, as the SDK does, and end the span."""
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
        self.events.append(RecordedEvent(read_name(name), read_time(timestamp) or self.now(), kept, dropped, exception))


def _all_held_bytes(attributes: dict[str, Any]) -> int:
    return sum(BYTES_OF_A_KEY + len(key) + held_bytes(value) for key, value in attributes.items())
