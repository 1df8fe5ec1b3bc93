"""The span on the hot path: a valid current span for any instrumentation, and nothing that isn't needed before it ends.

The SDK's span costs its maker a copy and a check of each attribute, five locks and an immutable record. This one keeps
references and bytes; everything else happens on the delivery thread, in `delivery.readable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import AnyValue, Attributes

from otel_rollout import semconv
from otel_rollout.exception_record import ExceptionRecord
from otel_rollout.payload import Snapshot, snapshot
from otel_rollout.payload_json import to_json

if TYPE_CHECKING:
    from otel_rollout.trajectory_state import TrajectoryState

__all__ = ["RolloutSpan"]

MAX_ATTRIBUTES: Final = 128
MAX_EVENTS: Final = 128

BASE_BYTES: Final = 1200
"""What a span without payload takes in memory, about."""


class RolloutSpan(Span):
    """A span that is cheap to make; handed to `on_end` when it ends.

    Args:
        name: The span's name.
        context: Its ids; or its span id alone, where the rest is its parent's.
        parent: The parent's ids; None for a root.
        attributes: What is known at the start; kept, and copied only once more is set.
        trajectory: The trajectory that it belongs to, whose tags are merged when the span is read.
        links: Spans of other traces that it points to.
        on_end: Takes the finished span.
    """

    __slots__ = (
        "attributes",
        "dropped_attributes",
        "dropped_events",
        "dropped_links",
        "end_time",
        "events",
        "extra_bytes",
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
    ) -> None:
        self.name = name
        self.ids = context
        self.parent = parent
        self.attributes = attributes
        self.owns_attributes = False
        self.trajectory = trajectory
        self.links = links
        self.on_end = on_end
        self.input: Snapshot | None = None
        self.output: Snapshot | None = None
        self.events: list[tuple[str, int, Attributes | ExceptionRecord]] | None = None
        self.status_code = StatusCode.UNSET
        self.status_description: str | None = None
        self.extra_bytes = 0
        self.dropped_attributes = 0
        self.dropped_events = 0
        self.dropped_links = 0
        self.tokenizer: Any = None
        self.readable: ReadableSpan | None = None
        # How many exporters are done with the span.
        self.releases = 0
        self.end_time: int | None = None
        self.start_time = time_ns()

    @property
    def context(self) -> SpanContext:
        """The span's ids, made when they are first asked for: a span that nothing runs inside is not, on its way."""
        ids = self.ids
        if isinstance(ids, int):
            parent = cast("SpanContext", self.parent)
            ids = self.ids = SpanContext(parent.trace_id, ids, False, parent.trace_flags, parent.trace_state)
        return ids

    @property
    def size(self) -> int:
        """Bytes that the span takes in memory, about."""
        size = BASE_BYTES + self.extra_bytes
        if self.input is not None:
            size += self.input.size
        return size if self.output is None else size + self.output.size

    def get_span_context(self) -> SpanContext:
        """Return the span's ids."""
        return self.context

    def is_recording(self) -> bool:
        """Return True until the span has ended."""
        return self.end_time is None

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set one attribute; a list or a dict is copied, so that later changes to it don't show."""
        if self.end_time is not None:
            return
        attributes = self.attributes if self.owns_attributes else self._own_attributes()
        if len(attributes) >= MAX_ATTRIBUTES and key not in attributes:
            self.dropped_attributes += 1
            return
        kind = type(value)
        if kind is int or kind is float or kind is bool:
            pass
        elif isinstance(value, str):
            self.extra_bytes += len(value)
        elif isinstance(value, (list, tuple)):
            value = tuple(value)
            self.extra_bytes += _held_bytes(value)
        elif isinstance(value, Mapping):
            value = to_json(snapshot(value)).decode()
            self.extra_bytes += len(value)
        attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set several attributes."""
        if self.end_time is not None or not attributes:
            return
        own = self._own_attributes()
        has_room = len(own) + len(attributes) <= MAX_ATTRIBUTES
        for key, value in attributes.items():
            kind = type(value)
            if has_room and (kind is int or kind is float or kind is bool):
                own[key] = value
            elif has_room and kind is str:
                self.extra_bytes += len(value)  # type: ignore[arg-type]  # it is a text
                own[key] = value
            else:
                self.set_attribute(key, value)

    def _own_attributes(self) -> dict[str, Any]:
        """Return the attributes, to be changed: a copy, where they are the op's until now."""
        if not self.owns_attributes:
            self.attributes = {**self.attributes}
            self.owns_attributes = True
        return self.attributes

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event at `timestamp` (nanoseconds since the epoch; now where None)."""
        size = 200 + (sum(_held_bytes(value) for value in attributes.values()) if attributes else 0)
        self._add_event(name, dict(attributes) if attributes else None, timestamp, size)

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link to a span of another trace."""
        if self.end_time is not None:
            return
        if len(self.links) >= MAX_EVENTS:
            self.dropped_links += 1
            return
        self.links = (*self.links, Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Change the span's name."""
        if self.end_time is None:
            self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final (https://opentelemetry.io/docs/specs/otel/trace/api/#set-status)."""
        if self.end_time is not None or self.status_code is StatusCode.OK:
            return
        if isinstance(status, Status):
            code, description = status.status_code, status.description
        else:
            code = status
        if code is not StatusCode.UNSET:
            self.status_code = code
            self.status_description = description if code is StatusCode.ERROR else None

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,  # noqa: FBT001, FBT002, RUF100 - the API's signature
    ) -> None:
        """Record an exception; its traceback is noted now and written out on the delivery thread.

        The traceback is not kept itself: it would keep the locals of every frame alive.
        """
        record = ExceptionRecord(exception)
        self._add_event(semconv.EXCEPTION_EVENT, record, timestamp, record.size)
        if attributes:
            self.set_attributes({key: value for key, value in attributes.items() if value is not None})

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it over; only the first call counts."""
        if self.end_time is None:
            # The system's clock may have been set back meanwhile.
            self.end_time = end_time or max(time_ns(), self.start_time)
            self.on_end(self)

    def _add_event(self, name: str, content: Attributes | ExceptionRecord, timestamp: int | None, size: int) -> None:
        if self.end_time is not None:
            return
        if self.events is None:
            self.events = []
        if len(self.events) >= MAX_EVENTS:
            self.dropped_events += 1
            return
        self.extra_bytes += size
        self.events.append((name, timestamp or time_ns(), content))


def _held_bytes(value: Any) -> int:
    """Return what an attribute's value keeps in memory, about."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(8 + _held_bytes(item) for item in value)
    return 32
