"""Recording spans to the standard `ReadableSpan`, on the delivery thread."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout import semconv
from otel_rollout.counts import unread_answers, unread_usage
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.finish.payload_finisher import FinishCounts, PayloadFinisher
from otel_rollout.finish.span_copies import (
    copy_span,
    copy_with_losses,
    encodable_copy,
    is_without_payload,
    redacted_copy,
)
from otel_rollout.finish.span_steps import finish_span
from otel_rollout.guard.log_once import warn_once
from otel_rollout.messages import AnswerRead
from otel_rollout.record.finished_span import FinishedSpan, readable_span
from otel_rollout.record.recording_span import RolloutSpan


class SpanReader:
    """Converts recording spans to `ReadableSpan`s; each is finished once, for the first exporter that asks.

    Args:
        resource: The resource of the spans.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
        chat: Writes messages; None if a setting turns them off.
        joined: The resource of the application's provider that is joined, if one is.
    """

    def __init__(
        self,
        resource: Resource,
        scope: InstrumentationScope,
        finisher: PayloadFinisher,
        chat: ChatWriter | None = None,
        joined: Resource | None = None,
    ) -> None:
        self._readers = 0
        self.resource = resource
        self._joined = joined
        self._run = RunResource(resource)
        self._scope = scope
        self.finisher = finisher
        self.chat = chat
        self.counts = FinishCounts()
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Replace a lock that a thread of the parent may have held, and count from zero."""
        self.counts.clear()
        self._lock = threading.Lock()
        if self.finisher.redactor is not None:
            self.finisher.redactor.after_fork()
        if self.chat is not None:
            self.chat.conversations.after_fork()

    def register(self) -> None:
        """Count one more exporter; called before the first span."""
        self._readers += 1

    def release(self, span: RolloutSpan | ReadableSpan) -> None:
        """Free a span's payload once every exporter has called this for it."""
        if isinstance(span, RolloutSpan):
            span.release(self._readers)

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the standard form of an ended span, in which the exporter may change what it likes.

        Args:
            span: An ended span, ours or the SDK's.
            exporter: The exporter's name; a root counts the spans of its trajectory that this exporter's queue dropped.
        """
        if not isinstance(span, RolloutSpan):
            span = self._named(encodable_copy(span))
            if self.finisher.redactor is not None:
                span, redacted = redacted_copy(span, self.finisher.redactor)
                self.counts.add(None, 0, redacted)
            return span
        finished = span.finished
        if finished is None:
            with self._lock:
                finished = span.finished or span.finish(self._finish(span))
        resource = self.resource if self._joined is None else self._run_resource().merged(self._joined)
        readable = readable_span(span, finished, resource, self._scope)
        return copy_with_losses(readable, span, exporter)

    def _named(self, span: ReadableSpan) -> ReadableSpan:
        """Return a provider's span with our project in its resource: exporters file it by that."""
        return self._run_resource().named(span)

    def _run_resource(self) -> RunResource:
        run = self._run
        if run.resource is not self.resource:
            self._run = run = RunResource(self.resource)
        return run

    def _finish(self, span: RolloutSpan) -> FinishedSpan:
        """Finish a span; the state of its trajectory is taken before the steps, and changed after them."""
        is_shared, trajectory, trace_id = self._readers > 1, span.trajectory, span.context.trace_id
        # Another exporter has the same span whole, and its conversation is not to change with this copy.
        chat = None if is_shared and is_without_payload(span) else self.chat
        is_root = span.parent is None and trajectory is not None
        conversation = chat.conversations.take(trace_id) if chat is not None and is_root else None
        finished = finish_span(span, self.finisher, chat, conversation, is_shared=is_shared)
        if finished.turn is not None and chat is not None and semconv.TURN in span.attributes:
            chat.conversations.add(trace_id, *finished.turn, span.depth)
        if finished.read is not None:
            note_unread(span.name, finished.read)
        if finished.clean_tags is not None and trajectory is not None:
            trajectory.tags, trajectory.has_clean_tags = finished.clean_tags, True
        if finished.cut or finished.redacted:
            self.counts.add(trajectory, finished.cut, finished.redacted)
        return finished.span


_MAX_OPS: Final = 256


def note_unread(op: str, read: AnswerRead) -> None:
    """Count a result of an LLM op that was not recognised, and log the first of each op."""
    for is_read, counts, what, remedy, level in (
        (read.answer_read, unread_answers, "answer", "return a message", logging.WARNING),
        (read.usage_read, unread_usage, "number of tokens", "return it as `usage`", logging.INFO),
    ):
        name = op if op in counts or len(counts) < _MAX_OPS else "…"
        if not is_read:
            counts[name] += 1
            words = "%s returned %s: no %s was recognised; %s, or pass capture_output="
            warn_once(f"unread {what} of {name}", words, name, read.shape, what, remedy, level=level)


_UNNAMED: Final = "unknown_service"
"""The start of the SDK's default for `service.name`."""
_OF_THE_RUN: Final = (semconv.PROJECT_NAME, semconv.RUN_ID, semconv.OPENINFERENCE_PROJECT)


class RunResource:
    """Names the run in resources that don't, and keeps everything else of them.

    Args:
        resource: The resource of the run's own spans.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        # A process has one resource in general, and equal resources in a batch should be one object.
        self._last: tuple[Resource, Resource] | None = None

    def named(self, span: ReadableSpan) -> ReadableSpan:
        """Return a copy of a span with the run in its resource; `span` itself if the run is there."""
        theirs = span.resource
        if theirs is self.resource:
            return span
        return copy_span(span, dict(span.attributes or {}), resource=self.merged(theirs))

    def merged(self, theirs: Resource) -> Resource:
        """Return a resource with the run in it."""
        last = self._last
        if last is None or last[0] is not theirs:
            self._last = last = theirs, self._merge(theirs)
        return last[1]

    def _merge(self, theirs: Resource) -> Resource:
        ours = self.resource.attributes
        replaced = {*_OF_THE_RUN, *([semconv.SERVICE_NAME] if is_unnamed(theirs) else [])}
        attributes: dict[str, Any] = {
            key: value for key, value in ours.items() if key in replaced or key not in theirs.attributes
        }
        return theirs.merge(Resource(attributes))


def is_unnamed(resource: Resource) -> bool:
    """Return True if nobody has named the resource's service."""
    return str(resource.attributes.get(semconv.SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED)
