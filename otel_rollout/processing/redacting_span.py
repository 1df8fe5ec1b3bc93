"""A span of a provider that is not ours, which gets no secret: that provider's exporters see it as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from opentelemetry.trace import Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue

from otel_rollout import semconv
from otel_rollout.processing.redaction import Redactor
from otel_rollout.processing.secret_patterns import REDACTED
from otel_rollout.safety.log_once import internal_error
from otel_rollout.values.exception_record import ExceptionRecord

__all__ = ["RedactingSpan", "bare_span"]

_Value = TypeVar("_Value")


class RedactingSpan(Span):
    """Replaces secrets in what is set on a span, on the caller's thread, and passes it on.

    It is the current span while an op runs, so that what other code sets there is searched too.

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
        """Return whether the span takes what is set on it."""
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
        described = {**ExceptionRecord(exception).attributes(), "exception.escaped": str(escaped), **(attributes or {})}
        self.add_event(semconv.EXCEPTION_EVENT, described, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End the span."""
        self.span.end(end_time)

    def __getattr__(self, name: str) -> Any:
        """Return what the provider's span has beside the API's methods: its name, its attributes."""
        return getattr(self.span, name)

    def _clean(self, replace: Callable[[Any], Any], value: _Value, instead: Any) -> _Value:
        try:
            return replace(value)  # type: ignore[no-any-return]  # of the kind that it was given
        except Exception:
            # What can't be searched must not leave.
            internal_error("replacing secrets")
            return instead  # type: ignore[no-any-return]


def bare_span(span: Span) -> Span:
    """Return the provider's own span, for what was searched before."""
    return span.span if isinstance(span, RedactingSpan) else span
