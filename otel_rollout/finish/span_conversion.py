"""Ended spans to the standard `ReadableSpan`, on the delivery thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout import semconv
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.finish.finishing import finished_span, limit, redact, transform, write_messages
from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.finish.payload_record import record
from otel_rollout.finish.span_copies import (
    changed_copy,
    copy_span,
    copy_with_losses,
    is_without_payload,
)
from otel_rollout.finish.span_draft import SpanDraft, Transform, draft_of, draft_of_readable
from otel_rollout.record.finished_span import FinishedSpan, readable_span
from otel_rollout.record.recording_span import RolloutSpan


class SpanReader:
    """Converts ended spans to `ReadableSpan`s; one of ours is finished once, for the first exporter that asks.

    Args:
        resource: The resource of the spans.
        scope: The instrumentation scope.
        finisher: Finishes payloads.
        chat: Writes messages; None if a setting turns them off.
        joined: The resource of the application's provider that is joined, if one is.
        transforms: The user's functions, which come before ours.
    """

    def __init__(
        self,
        resource: Resource,
        scope: InstrumentationScope,
        finisher: PayloadFinisher,
        chat: ChatWriter | None = None,
        joined: Resource | None = None,
        transforms: Sequence[Transform] = (),
    ) -> None:
        self._readers = 0
        self._takers: set[str] = set()
        self.resource = resource
        self._joined = joined
        self._run = RunResource(resource)
        self._scope = scope
        self.finisher = finisher
        self.chat = chat
        self.transforms = transforms
        self.functions: list[Callable[[SpanDraft], None]] = [
            *([partial(transform, transforms=transforms)] if transforms else []),
            partial(redact, finisher=finisher),
            *([] if chat is None else [partial(write_messages, chat=chat)]),
            partial(limit, finisher=finisher),
        ]
        """The functions that a span passes, in this order."""
        self.truncated_bytes = self.redacted = 0
        """Bytes that were cut from the spans of the process, and secrets that were replaced in them."""
        self._lock = threading.Lock()
        self._is_over = False

    def after_fork(self) -> None:
        """Replace a lock that a thread of the parent may have held, and count from zero."""
        self.truncated_bytes = self.redacted = 0
        self._lock = threading.Lock()
        self._is_over = False
        if self.finisher.redactor is not None:
            self.finisher.redactor.after_fork()
        if self.chat is not None:
            self.chat.conversations.after_fork()

    def register(self, exporter: str, *, takes_records: bool = False) -> None:
        """Count one more exporter; called before the first span.

        Args:
            exporter: Its name.
            takes_records: Its spans have records of their payloads.
        """
        self._readers += 1
        if takes_records:
            if not self._takers:
                self.functions.append(record)
            self._takers.add(exporter)

    def release(self, span: RolloutSpan | ReadableSpan) -> None:
        """Free a span's payload once every exporter has called this for it."""
        if isinstance(span, RolloutSpan):
            span.release(self._readers)

    def end(self, seconds: float) -> None:
        """Have no thread finish a span any more, as the interpreter is about to end.

        Python 3.13 and older end a thread where it takes the GIL; in C++ or Rust (google-re2, a tokenizer) that aborts
        the process.

        Args:
            seconds: The longest wait for a span that is being finished.
        """
        if not self._is_over:
            self._is_over = True
            # Nobody lets go of it again.
            self._lock.acquire(timeout=seconds)

    def read(self, span: RolloutSpan | ReadableSpan, exporter: str) -> ReadableSpan:
        """Return the standard form of an ended span, in which the exporter may change what it likes.

        Args:
            span: An ended span, ours or the SDK's.
            exporter: The exporter's name; a root counts the spans of its trajectory that this exporter's queue dropped.
        """
        if not isinstance(span, RolloutSpan):
            theirs = span.resource
            # With our project in it: exporters file it by that.
            resource = theirs if theirs is self.resource else self._run_resource().merged(theirs)
            with self._finishing():
                draft = self._pass(draft_of_readable(span))
            return changed_copy(span, draft, resource)
        finished = span.finished
        if finished is None:
            with self._finishing():
                finished = span.finished or span.finish(self._finish(span))
        resource = self.resource if self._joined is None else self._run_resource().merged(self._joined)
        readable = readable_span(span, finished, resource, self._scope)
        if exporter in self._takers:
            readable.record = finished.record
        return copy_with_losses(readable, span, exporter)

    def _finishing(self) -> threading.Lock:
        if self._is_over:
            threading.Event().wait()
        return self._lock

    def _finish(self, span: RolloutSpan) -> FinishedSpan:
        is_shared, draft = self._readers > 1, draft_of(span)
        draft.is_copy = is_shared and is_without_payload(span)
        return finished_span(self._pass(draft), span, is_shared=is_shared)

    def _pass(self, draft: SpanDraft) -> SpanDraft:
        for function in self.functions:
            function(draft)
        if draft.cut or draft.redacted:
            self.truncated_bytes += draft.cut
            self.redacted += draft.redacted
            if draft.trajectory is not None:
                draft.trajectory.truncated_bytes += draft.cut
                draft.trajectory.redacted += draft.redacted
        return draft

    def _run_resource(self) -> RunResource:
        run = self._run
        if run.resource is not self.resource:
            self._run = run = RunResource(self.resource)
        return run


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
