"""A finished span of ours as exporters see it, most of which is made only where an exporter asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, SupportsIndex

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes

from otel_rollout import semconv
from otel_rollout.delivery.shrink import replace_attributes
from otel_rollout.span import RolloutSpan

__all__ = ["FinishedSpan", "merge_parts"]

_UNSET: Final = Status(StatusCode.UNSET)
_PAYLOAD: Final = frozenset(
    {semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE}
)


class FinishedSpan(ReadableSpan):
    """The standard form of a light span; its payload stays bytes until somebody reads the attributes.

    One is made for each span, on a thread that takes turns with the trainer's: so it holds what is there already,
    and has no containers of its own, for which Python's garbage collector would run more often.

    Args:
        span: The light span; its name, attributes and status are fit to leave the process, and don't change any more.
        resource: What it was made by.
        scope: The instrumentation scope.
        payload: Input and output as JSON in UTF-8, with a byte between them.
        input_bytes: How long the input is; -1 where there is none.
        has_output: Whether there is an output.
        events: The events.
        size: The bytes that it takes when it is encoded, about; a little more rather than less.
    """

    def __init__(  # the SDK's constructor would set the same once more: every property is defined here
        self,
        span: RolloutSpan,
        resource: Resource,
        scope: InstrumentationScope,
        payload: bytes,
        input_bytes: int,
        has_output: bool,  # noqa: FBT001, RUF100 - by position, which costs half
        events: Sequence[Event],
        size: int,
    ) -> None:
        self.light = span
        self._resource = resource
        self._scope = scope
        self.payload = payload
        self.input_bytes = input_bytes
        self.has_output = has_output
        self._all_events = events
        self.size = size
        self._merged: dict[str, Any] | None = None

    def view(self) -> FinishedSpan:
        """Return the same span for one more exporter: what is made for that one goes when that one is done."""
        return FinishedSpan(
            self.light,
            self._resource,
            self._scope,
            self.payload,
            self.input_bytes,
            self.has_output,
            self._all_events,
            self.size,
        )

    @property
    def is_in_parts(self) -> bool:
        """Whether payload, own attributes and tags have no name in common, so that each can be written by itself."""
        attributes, trajectory = self.light.attributes, self.light.trajectory
        return _PAYLOAD.isdisjoint(attributes) and (trajectory is None or trajectory.tags.keys().isdisjoint(attributes))

    @property
    def has_rest(self) -> bool:
        """Whether it has what few spans have: events, links, a status, or something dropped."""
        light = self.light
        return bool(
            self._all_events
            or light.links
            or light.status_code is not StatusCode.UNSET
            or light.dropped_attributes
            or light.dropped_events
            or light.dropped_links
        )

    @property
    def name(self) -> str:
        """The name."""
        return self.light.name

    @property
    def context(self) -> SpanContext:
        """The ids."""
        return self.light.context

    def get_span_context(self) -> SpanContext:
        """Return the ids."""
        return self.light.context

    @property
    def kind(self) -> SpanKind:
        """The kind: what runs in a trajectory calls no service as far as we know."""
        return SpanKind.INTERNAL

    @property
    def parent(self) -> SpanContext | None:
        """The parent's ids."""
        return self.light.parent

    @property
    def start_time(self) -> int:
        """When it began, in nanoseconds since the epoch."""
        return self.light.start_time

    @property
    def end_time(self) -> int | None:
        """When it ended, in nanoseconds since the epoch."""
        return self.light.end_time

    @property
    def status(self) -> Status:
        """The status."""
        code = self.light.status_code
        return _UNSET if code is StatusCode.UNSET else Status(code, self.light.status_description)

    @property
    def attributes(self) -> Attributes:
        """All attributes: the payload, the span's own, and the trajectory's tags."""
        merged = self._merged
        if merged is None:
            merged = self._merged = merge_parts(*self.parts)
        return MappingProxyType(merged)

    def attribute(self, key: str) -> Any:
        """Return one attribute, and read the payload for that only where it is asked for; None where there is none."""
        light, merged = self.light, self._merged
        if merged is None and key not in _PAYLOAD:
            trajectory = light.trajectory
            if trajectory is not None and key in trajectory.tags:
                return trajectory.tags[key]
            return light.attributes.get(key)
        return (self.attributes or {}).get(key)

    @property
    def events(self) -> Sequence[Event]:
        """The events."""
        return self._all_events

    @property
    def links(self) -> Sequence[Link]:
        """The links."""
        return self.light.links

    @property
    def resource(self) -> Resource:
        """What it was made by."""
        return self._resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        """The instrumentation scope."""
        return self._scope

    @property
    def dropped_attributes(self) -> int:
        """How many attributes were dropped."""
        return self.light.dropped_attributes

    @property
    def dropped_events(self) -> int:
        """How many events were dropped."""
        return self.light.dropped_events

    @property
    def dropped_links(self) -> int:
        """How many links were dropped."""
        return self.light.dropped_links

    def to_json(self, indent: int | None = 4) -> str:
        """Return the span as the SDK writes it for people to read."""
        text: str = self._as_sdk_span().to_json(indent)
        return text

    def __getattr__(self, name: str) -> Any:
        """Return what the SDK's spans have beside their properties: some exporters look behind these."""
        if name.startswith("__") or "light" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._as_sdk_span(), name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Have copies and pickles be the SDK's spans: this one leads to locks."""
        return self._as_sdk_span().__reduce_ex__(protocol)

    def _as_sdk_span(self) -> ReadableSpan:
        return replace_attributes(self, dict(self.attributes or {}))

    @property
    def parts(self) -> tuple[bytes, int, bool, dict[str, Any], dict[str, Any]]:
        """What `merge_parts` makes the attributes of."""
        trajectory = self.light.trajectory
        tags = trajectory.tags if trajectory is not None else {}
        return self.payload, self.input_bytes, self.has_output, self.light.attributes, tags


def merge_parts(
    payload: bytes,
    input_bytes: int,
    has_output: bool,  # noqa: FBT001, RUF100 - as in the constructor
    own: dict[str, Any],
    tags: dict[str, Any],
) -> dict[str, Any]:
    """Return all attributes of a span.

    Args:
        payload: Input and output as JSON in UTF-8, with a byte between them.
        input_bytes: How long the input is; -1 where there is none.
        has_output: Whether there is an output.
        own: The span's own attributes.
        tags: The trajectory's tags.
    """
    attributes: dict[str, Any] = {}
    if input_bytes >= 0:
        attributes[semconv.INPUT_VALUE] = payload[:input_bytes].decode()
        attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
    if has_output:
        attributes[semconv.OUTPUT_VALUE] = payload[max(input_bytes, 0) + 1 :].decode()
        attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON_MIME_TYPE
    attributes.update(own)
    attributes.update(tags)
    return attributes
