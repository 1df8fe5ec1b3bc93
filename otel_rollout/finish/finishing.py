"""The functions that every draft of a span passes, in this order: the user's, redaction, messages, limits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final

from opentelemetry.trace import Status

from otel_rollout import semconv
from otel_rollout.counts import unread_answers, unread_usage
from otel_rollout.finish.attribute_limits import AttributeLimits, plain_size
from otel_rollout.finish.chat_writer import NOTHING, ChatWriter, is_note
from otel_rollout.finish.payload_finisher import UNREADABLE, PayloadFinisher
from otel_rollout.finish.redaction import Redactor, restored
from otel_rollout.finish.span_draft import SpanDraft, Transform, shown
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout.messages import AnswerRead, read_of
from otel_rollout.record.attribute_values import MAX_PAIRS, read_attributes, read_name
from otel_rollout.record.fields import shape_of
from otel_rollout.record.finished_span import FinishedSpan, attributes_size, rest_size
from otel_rollout.record.recording_span import RecordedEvent, RolloutSpan
from otel_rollout.text.plain_json import loads, value_to_json

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""Encoded bytes of a span and of one attribute without payload and long texts, rounded up."""
_OTHER_ATTRIBUTES: Final = 13
"""At most this many attributes besides the span's own: input, output, their MIME types, the messages, and the tags."""
_MAX_OPS: Final = 256
_MOST_JOINED: Final = 32 * 1024
"""Joining longer texts costs more than a search of each."""


def transform(draft: SpanDraft, transforms: Sequence[Transform]) -> None:
    """Run the user's functions; if one fails, the payload stays away: it may have what the function was to hide."""
    for function in transforms:
        name, attributes = draft.name, draft.attributes
        draft.attributes = {**attributes}
        try:
            result = function(draft)
            if (result is not None and result is not draft) or type(draft.attributes) is not dict:
                raise TypeError("a transform returns the span that it was given, or None; its attributes are a dict")
            draft.attributes = shown(draft, read_attributes(draft.attributes, MAX_PAIRS)[0])
        except BaseException:
            called = getattr(function, "__qualname__", type(function).__qualname__)
            draft.name, draft.attributes = name, attributes
            draft.hide(f"…[left out: the transform {called} failed]")
            internal_error(f"running the transform {called}")
            return
        draft.name = read_name(draft.name)
        draft.has_input = draft.has_input or draft.input is not None
        draft.has_output = draft.has_output or draft.output is not None


def redact(draft: SpanDraft, finisher: PayloadFinisher) -> None:
    """Write input and output as JSON, and replace the secrets there and in all other texts; an error hides them all."""
    try:
        _redact_tags(draft, finisher)
        _redact(draft, finisher)
    except BaseException:  # noqa: BLE001, RUF100 - of an object that a function of the user's left in the payload
        # The span is still sent.
        draft.hide(UNREADABLE)
        draft.input_json, draft.output_json = (
            value_to_json(UNREADABLE) if has else None for has in (draft.has_input, draft.has_output)
        )
        if finisher.redactor is not None:
            _redact_name(draft, finisher.redactor)
        internal_error("redacting a span")


def _redact_name(draft: SpanDraft, redactor: Redactor) -> None:
    """Replace the secrets in the name of a hidden span; if that fails too, name and tags have no text."""
    try:
        draft.name, count = redactor.value(draft.name)
        draft.redacted += count
    except Exception:
        draft.name = "…"
    if draft.trajectory is not None and not draft.trajectory.has_clean_tags:
        draft.tags = {key: value for key, value in draft.tags.items() if type(value) is not str}


def _redact_tags(draft: SpanDraft, finisher: PayloadFinisher) -> None:
    """Replace the secrets in the tags of the trajectory, once for all of its spans."""
    trajectory = draft.trajectory
    if finisher.redactor is not None and trajectory is not None and not trajectory.has_clean_tags:
        trajectory.tags, count = finisher.redactor.value(trajectory.tags)
        draft.tags, trajectory.has_clean_tags = trajectory.tags, True
        draft.redacted += count


def _redact(draft: SpanDraft, finisher: PayloadFinisher) -> None:
    rest = (
        [draft.name],
        [draft.status.description or ""],
        draft.attributes,
        [([event.name], event.attributes) for event in draft.events],
        [link.attributes for link in draft.links],
    )
    given = value_to_json(draft.input) if draft.has_input else b""
    output = value_to_json(draft.output) if draft.has_output else b""
    others = b"" if finisher.redactor is None else value_to_json(rest)
    # Media are cut from the payload alone: attributes have limits of their own.
    texts = finisher.without_media(given), finisher.without_media(output), others
    (clean_given, clean_output, clean_others), count = _clean(texts, finisher)
    draft.redacted += count
    if clean_given != given:
        given, draft.input = clean_given, loads(clean_given)
    if clean_output != output:
        output, draft.output = clean_output, loads(clean_output)
    if clean_others != others:
        (draft.name,), (description,), draft.attributes, events, links = restored(rest, clean_others)
        draft.status = Status(draft.status.status_code, description or None)
        draft.events = [
            event._replace(name=name, attributes=attributes)
            for event, ((name,), attributes) in zip(draft.events, events, strict=True)
        ]
        draft.links = [link._replace(attributes=each) for link, each in zip(draft.links, links, strict=True)]
    draft.input_json, draft.output_json = given or None, output or None


def _clean(texts: Sequence[bytes], finisher: PayloadFinisher) -> tuple[Sequence[bytes], int]:
    """Return JSON texts without secrets, and the number of secrets; unchanged ones are the same objects."""
    if finisher.redactor is None:
        return texts, 0
    if sum(map(len, texts)) > _MOST_JOINED:
        cleaned = [finisher.redactor(text) for text in texts]
        return [text for text, _ in cleaned], sum([count for _, count in cleaned])
    # One search costs less than three. No JSON of ours has a line feed.
    lines = b"\n".join(texts)
    clean, count = finisher.redactor(lines)
    return (texts, 0) if clean is lines else (clean.split(b"\n"), count)


def write_messages(draft: SpanDraft, chat: ChatWriter) -> None:
    """Take the messages of an LLM op or a root out of its payload; on an error the payload stays as it is."""
    span = draft.recorded
    if span is None or draft.is_copy:
        return
    is_root = span.parent is None and span.trajectory is not None
    if not is_root and draft.kind != "LLM":
        return
    trace_id = span.context.trace_id
    conversation = chat.conversations.take(trace_id) if is_root else None
    asked = answered = NOTHING
    try:
        if conversation is not None:
            asked, answered = chat.write_root(
                conversation,
                (draft.input,) if draft.has_input else None,
                (draft.output,) if draft.has_output else None,
            )
        else:
            if draft.has_input:
                asked = chat.write_arguments(draft.input, draft.input_json)
            if draft.has_output:
                is_stream = span.output is not None and span.output.is_stream
                answered = chat.write_result(draft.output, draft.output_json, draft.input, is_stream=is_stream)
            draft.turn = asked.side, answered.side
    except Exception:
        internal_error("writing messages")
        return
    draft.input_json, draft.output_json = asked.payload, answered.payload
    draft.messages = {**asked.attributes, **answered.attributes}
    draft.cut += asked.cut + answered.cut
    if draft.turn is None:
        return
    if semconv.TURN in span.attributes:
        chat.conversations.add(trace_id, *draft.turn, span.depth)
    if draft.has_output and not is_note(draft.output):
        has_usage = semconv.USAGE_OUTPUT_TOKENS in span.attributes
        shape = span.returned or shape_of(draft.output)
        note_unread(span.name, read_of(draft.output, draft.turn[1], has_usage=has_usage, shape=shape))


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


def limit(draft: SpanDraft, finisher: PayloadFinisher) -> None:
    """Cut all texts to their limits; a side that is one text loses its quotes, as backends show it."""
    span = draft.recorded
    if span is None:
        # Its own provider has limits.
        return
    draft.input_json = _limit_side(draft, semconv.INPUT_VALUE, draft.input_json, finisher)
    draft.output_json = _limit_side(draft, semconv.OUTPUT_VALUE, draft.output_json, finisher)
    bounds = span.bounds
    limits, others = AttributeLimits(bounds.characters), AttributeLimits(bounds.other_characters)
    draft.name = limits.name(draft.name)
    size = plain_size(draft.attributes, bounds.characters)
    if size is None:
        draft.attributes = limits.attributes(draft.attributes)
        size = attributes_size(draft.attributes)
    draft.text_bytes = size
    if bounds.characters is not None:
        draft.tags = limits.attributes(draft.tags)
    if draft.events:
        draft.events = [_limit_event(event, others, bounds.event_attributes) for event in draft.events]
    if draft.links:
        draft.links = [link._replace(attributes=others.attributes(link.attributes)) for link in draft.links]
    if draft.status.description:
        draft.status = Status(draft.status.status_code, AttributeLimits(None).text(draft.status.description))
    draft.cut += limits.cut + others.cut


def _limit_side(draft: SpanDraft, key: str, json_bytes: bytes | None, finisher: PayloadFinisher) -> bytes | None:
    if json_bytes is None:
        return None
    json_bytes, cut = finisher.cut(json_bytes)
    draft.cut += cut
    if json_bytes[:1] != b'"':
        return json_bytes
    draft.texts |= {key}
    text: str = loads(json_bytes)
    return text.encode()


def _limit_event(event: RecordedEvent, limits: AttributeLimits, most: int) -> RecordedEvent:
    attributes = limits.attributes(event.attributes)
    kept = dict(islice(attributes.items(), most))
    return RecordedEvent(
        limits.name(event.name), event.timestamp, kept, event.dropped_attributes + len(attributes) - len(kept)
    )


def finished_span(draft: SpanDraft, span: RolloutSpan, *, is_shared: bool) -> FinishedSpan:
    """Return a draft as a finished span, within the limit of attributes, with its size.

    Args:
        draft: The draft, after all functions.
        span: Its span.
        is_shared: True if several exporters hold the span, one of them perhaps for long.
    """
    tags, own, messages = draft.tags, draft.attributes, draft.messages
    given, output = draft.input_json, draft.output_json
    if is_shared:
        # orjson allocates 4 KiB or more for each.
        given = None if given is None else memoryview(given).tobytes()
        output = None if output is None else memoryview(output).tobytes()
    trajectory = draft.trajectory
    if trajectory is not None and span.parent is None and (trajectory.truncated_bytes or trajectory.redacted):
        losses = {semconv.TRUNCATED_BYTES: trajectory.truncated_bytes, semconv.REDACTED: trajectory.redacted}
        own = {**{key: count for key, count in losses.items() if count}, **own}
    dropped, left = span.dropped_attributes, span.bounds.attributes
    number = len(tags) + 2 * ((given is not None) + (output is not None)) + len(messages) + len(own)
    if number > left:
        # First the tags, then input and output with their MIME types, the messages, and the span's own.
        dropped += number - left
        tags = dict(islice(tags.items(), left))
        left -= len(tags)
        if given is not None:
            given, left = (given, left - 2) if left >= 2 else (None, left)
        if output is not None:
            output, left = (output, left - 2) if left >= 2 else (None, left)
        messages = dict(islice(messages.items(), left))
        own = dict(islice(own.items(), left - len(messages)))
        dropped += left - len(messages) - len(own)
    text_bytes = draft.text_bytes + (0 if trajectory is None else trajectory.tag_bytes)
    size = SIZE_OF_SPAN + 4 * len(draft.name) + text_bytes + len(given or b"") + len(output or b"")
    size += sum(map(len, messages.values())) + SIZE_OF_ATTRIBUTE * (len(own) + _OTHER_ATTRIBUTES)
    if draft.events or draft.links or draft.status.description:
        size += rest_size(draft.events, draft.links, draft.status.description)
    return FinishedSpan(
        draft.name,
        own,
        tags,
        given,
        output,
        draft.status,
        draft.events,
        draft.links,
        dropped,
        size,
        draft.texts,
        messages,
        draft.record,
    )
