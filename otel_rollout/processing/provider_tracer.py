"""The tracer on an application's provider: payload is finished and redacted before the SDK's span has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, Tracer
from opentelemetry.util.types import Attributes, AttributeValue

from otel_rollout import semconv
from otel_rollout.processing.redaction import Redactor
from otel_rollout.processing.secret_patterns import REDACTED
from otel_rollout.safety.log_once import internal_error
from otel_rollout.spans.context import Frame
from otel_rollout.spans.tracer import RolloutTracer
from otel_rollout.spans.trajectory_state import TrajectoryState
from otel_rollout.values.exception_record import ExceptionRecord
from otel_rollout.values.snapshot import Snapshot

__all__ = ["ProviderTracer"]

_Value = TypeVar("_Value")


class ProviderTracer(RolloutTracer):
    """Starts spans with an application's provider, which samples, limits and exports them in its own way.

    Args:
        tracer: The provider's tracer.
        finish: Redacts and cuts a payload; called before the span ends.
        on_start: Called with each span and its trajectory, if our queues get them too.
        redactor: Replaces secrets before a span gets them.
    """

    def __init__(
        self,
        tracer: Tracer,
        finish: Callable[[Snapshot], str],
        on_start: Callable[[Span, TrajectoryState | None], None] | None = None,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self._tracer = tracer
        self._finish = finish
        self._on_start = on_start
        self._redactor = redactor

    def start_root(self, name: str, trajectory: TrajectoryState, links: Sequence[Link]) -> Span | None:
        """Start the root of a new trace; None if the provider's sampler drops it."""
        return self._start(name, Context(), trajectory.tags, trajectory, links)

    def start_op(self, name: str, context: Context, frame: Frame | None, attributes: dict[str, Any]) -> Span | None:
        """Start a span under the current one."""
        trajectory = frame.trajectory if frame is not None else None
        tags = trajectory.tags if trajectory is not None else {semconv.OUTSIDE_TRAJECTORY: True}
        return self._start(name, context, {**attributes, **tags}, trajectory)

    def set_input(self, span: Span, taken: Snapshot) -> None:
        """Set the input at once: the provider's span can't be changed after its end."""
        self._set_payload(span, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, taken)

    def set_output(self, span: Span, taken: Snapshot) -> None:
        """Set the output at once."""
        self._set_payload(span, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, taken)

    def set_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Do nothing: decoding takes too long on the caller's thread."""

    def set_annotations(self, root: Span, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set our own last: at its limit, the SDK drops the oldest attributes, which are the tags and the payload."""
        before = {key: value for key, value in (getattr(root, "attributes", None) or {}).items() if key not in others}
        root.set_attributes(others)
        _bare(root).set_attributes(before)
        root.set_attributes(own)

    def _set_payload(self, span: Span, key: str, mime_key: str, taken: Snapshot) -> None:
        _bare(span).set_attributes({key: self._finish(taken), mime_key: semconv.JSON_MIME_TYPE})

    def _start(
        self,
        name: str,
        context: Context,
        attributes: Mapping[str, Any],
        trajectory: TrajectoryState | None,
        links: Sequence[Link] = (),
    ) -> Span | None:
        redactor = self._redactor
        if redactor is not None:
            name, attributes = redactor.label(name), redactor.attributes(attributes)
        span = self._tracer.start_span(name, context=context, attributes=attributes, links=links)
        if not span.is_recording():
            return None
        if self._on_start is not None:
            self._on_start(span, trajectory)
        return span if redactor is None else RedactingSpan(span, redactor)


class RedactingSpan(Span):
    """Redacts whatever is set on a provider's span, on the caller's thread, since the provider exports it as it is.

    It is the current span while an op runs, so that other code's attributes are redacted too.

    Args:
        span: The provider's span.
        redactor: Replaces secrets.
    """

    def __init__(self, span: Span, redactor: Redactor) -> None:
        self.span = span
        self._redactor = redactor

    def get_span_context(self) -> SpanContext:
        """Return the span's ids."""
        return self.span.get_span_context()

    def is_recording(self) -> bool:
        """Return True until the span has ended."""
        return self.span.is_recording()

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set one attribute."""
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set several attributes."""
        self.span.set_attributes(self._clean(self._redactor.attributes, attributes, {}))

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event."""
        clean = self._clean(self._redactor.attributes, attributes, {}) if attributes else attributes
        self.span.add_event(self._clean(self._redactor.label, name, REDACTED), clean, timestamp)

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link to another span."""
        self.span.add_link(
            context, self._clean(self._redactor.attributes, attributes, {}) if attributes else attributes
        )

    def update_name(self, name: str) -> None:
        """Change the span's name."""
        self.span.update_name(self._clean(self._redactor.label, name, REDACTED))

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        if isinstance(status, Status):
            if status.description:
                status = Status(status.status_code, self._clean(self._redactor.text, status.description, REDACTED))
        elif description:
            description = self._clean(self._redactor.text, description, REDACTED)
        self.span.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception."""
        described = {
            **ExceptionRecord(exception).attributes(),
            semconv.EXCEPTION_ESCAPED: str(escaped),
            **(attributes or {}),
        }
        self.add_event(semconv.EXCEPTION_EVENT, described, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End the span."""
        self.span.end(end_time)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the provider's span that the API doesn't have, such as its name."""
        return getattr(self.span, name)

    def _clean(self, replace: Callable[[Any], Any], value: _Value, instead: Any) -> _Value:
        try:
            return replace(value)  # type: ignore[no-any-return]  # of the kind that it was given
        except Exception:
            # A value that can't be searched must not be exported.
            internal_error("replacing secrets")
            return instead  # type: ignore[no-any-return]


def _bare(span: Span) -> Span:
    """Return the provider's own span, for values that are redacted already."""
    return span.span if isinstance(span, RedactingSpan) else span
