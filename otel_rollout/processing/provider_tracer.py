"""The tracer on an application's provider: payload is finished and redacted before the SDK's span has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Tracer

from otel_rollout import semconv
from otel_rollout.processing.redacting_span import RedactingSpan, bare_span
from otel_rollout.processing.redaction import Redactor
from otel_rollout.spans.context import Frame
from otel_rollout.spans.tracer import RolloutTracer
from otel_rollout.spans.trajectory_state import TrajectoryState
from otel_rollout.values.snapshot import Snapshot

__all__ = ["ProviderTracer"]


class ProviderTracer(RolloutTracer):
    """Makes the spans of a provider that is not ours, which samples, limits and exports them in its own way.

    Args:
        tracer: The provider's tracer.
        finish: What our delivery thread does to a payload; here it must be done before the span ends.
        on_start: Told of each span and its trajectory, where our queues get them.
        redactor: Replaces secrets, before the span has them: the provider's exporters see it as it is.
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
        """Start the root of a new trace; None where the provider's sampler leaves the trajectory out."""
        return self._start(name, Context(), trajectory.tags, trajectory, links)

    def start_op(self, name: str, context: Context, frame: Frame | None, attributes: dict[str, Any]) -> Span | None:
        """Start a span under the current one."""
        trajectory = frame.trajectory if frame is not None else None
        tags = trajectory.tags if trajectory is not None else {semconv.OUTSIDE_TRAJECTORY: True}
        return self._start(name, context, {**attributes, **tags}, trajectory)

    def set_input(self, span: Span, taken: Snapshot) -> None:
        """Set the input at once: the provider's span can't be changed after its end."""
        bare_span(span).set_attributes(
            {semconv.INPUT_VALUE: self._finish(taken), semconv.INPUT_MIME_TYPE: semconv.JSON_MIME_TYPE}
        )

    def set_output(self, span: Span, taken: Snapshot) -> None:
        """Set the output at once: the provider's span can't be changed after its end."""
        bare_span(span).set_attributes(
            {semconv.OUTPUT_VALUE: self._finish(taken), semconv.OUTPUT_MIME_TYPE: semconv.JSON_MIME_TYPE}
        )

    def set_tokenizer(self, span: Span, tokenizer: Any) -> None:
        """Do nothing: decoding takes too long for the caller's thread, and later the span can't be changed."""

    def set_annotations(self, root: Span, own: dict[str, Any], others: dict[str, Any]) -> None:
        """Set ours last: beyond its limit, the SDK drops what came first, tags and payload before all."""
        before = {key: value for key, value in (getattr(root, "attributes", None) or {}).items() if key not in others}
        root.set_attributes(others)
        bare_span(root).set_attributes(before)
        root.set_attributes(own)

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
