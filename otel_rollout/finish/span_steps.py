"""The steps from a recording span to the finished one: JSON, messages, redaction, limits, texts, attributes.

Each step is a function of what it is given, and changes none of it; `finish_span` has their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from opentelemetry.trace import Status, StatusCode

from otel_rollout import semconv
from otel_rollout.finish.chat_writer import ChatWriter, WrittenSide
from otel_rollout.finish.conversations import Conversation
from otel_rollout.finish.finished_attributes import AttributeFinisher, plain_size
from otel_rollout.finish.payload_finisher import PayloadFinisher, plain_text
from otel_rollout.finish.redaction import Redactor
from otel_rollout.finish.token_text import add_token_text, numbers_last
from otel_rollout.guard.log_once import internal_error
from otel_rollout.messages import AnswerRead, ChatSide, read_of
from otel_rollout.record.fields import shape_of
from otel_rollout.record.finished_span import FinishedSpan, attributes_size, rest_size
from otel_rollout.record.recording_span import RecordedEvent, RecordedLink, RolloutSpan
from otel_rollout.text.plain_json import value_to_json

SIZE_OF_SPAN: Final = 400
SIZE_OF_ATTRIBUTE: Final = 72
"""Encoded bytes of a span and of one attribute without payload and long texts, rounded up."""
_OTHER_ATTRIBUTES: Final = 13
"""At most this many attributes besides the span's own: input, output, their MIME types, the messages, and the tags."""
_UNSET: Final = Status(StatusCode.UNSET)
_NOTHING: Final = WrittenSide(None, {}, None, 0)
_NO_TEXTS: Final[frozenset[str]] = frozenset()
_NO_MESSAGES: Final[Mapping[str, bytes]] = MappingProxyType({})


class Finished(NamedTuple):
    """The result of all steps.

    Args:
        span: The finished span.
        turn: The messages that an LLM op got and its answer, for the conversation of its trajectory.
        clean_tags: The tags of the trajectory without secrets; None if they were clean before.
        cut: Bytes, items and characters that were cut.
        redacted: Secrets that were replaced.
        read: The parts of an LLM op's result that were recognised; None without a result.
    """

    span: FinishedSpan
    turn: tuple[ChatSide | None, ChatSide | None] | None
    clean_tags: dict[str, Any] | None
    cut: int
    redacted: int
    read: AnswerRead | None = None


class Values(NamedTuple):
    """Arguments and result of an op, loaded from their snapshots.

    Args:
        arguments: The arguments.
        answer: The result.
        cut: Bytes that the snapshots left out.
    """

    arguments: Any
    answer: Any
    cut: int


class Payload(NamedTuple):
    """Input and output on their way.

    Args:
        input: JSON or text in UTF-8; None without an input.
        output: The same of the output.
        is_clean: True if both need no redaction and no cut.
        messages: The attributes of the messages, as JSON.
        texts: The attribute keys of the sides that are text, not JSON.
        turn: See `Finished`.
        cut: Bytes that were cut so far.
        redacted: Secrets that were replaced so far.
    """

    input: bytes | None
    output: bytes | None
    is_clean: bool
    cut: int
    redacted: int = 0
    messages: Mapping[str, bytes] = _NO_MESSAGES
    turn: tuple[ChatSide | None, ChatSide | None] | None = None
    texts: frozenset[str] = _NO_TEXTS

    def of(self, sides: tuple[bytes | None, bytes | None], texts: frozenset[str]) -> Payload:
        """Return the payload with other sides; `_replace` takes four times as long."""
        return Payload(*sides, self.is_clean, self.cut, self.redacted, self.messages, self.turn, texts)


class Attributes(NamedTuple):
    """The attributes of a span.

    Args:
        own: Its own.
        tags: The trajectory's.
        clean_tags: See `Finished`.
        text_bytes: The encoded bytes of all texts.
        cut: Characters that were cut.
        redacted: Secrets that were replaced.
    """

    own: dict[str, Any]
    tags: dict[str, Any]
    clean_tags: dict[str, Any] | None
    text_bytes: int
    cut: int
    redacted: int


class Rest(NamedTuple):
    """Name, status, events and links of a span, with what was cut from and replaced in them."""

    name: str
    status: Status
    events: Sequence[RecordedEvent]
    links: Sequence[RecordedLink]
    cut: int
    redacted: int


def finish_span(
    span: RolloutSpan,
    finisher: PayloadFinisher,
    chat: ChatWriter | None,
    conversation: Conversation | None,
    *,
    is_shared: bool,
) -> Finished:
    """Return the finished span, and what is to be kept and counted of it.

    Args:
        span: An ended span.
        finisher: Redacts and cuts.
        chat: Writes messages; None leaves them in the payload.
        conversation: The conversation of a root's trajectory.
        is_shared: True if several exporters hold the span.
    """
    redactor = finisher.redactor
    values = load(span)
    payload = encode(span, values, finisher)
    if chat is not None:
        payload = write_messages(span, values, payload, finisher, chat, conversation)
    payload = clean_payload(payload, finisher)
    payload = show_texts(payload)
    if is_shared:
        payload = shrink_texts(payload)
    attributes = finish_attributes(span, redactor)
    rest = finish_rest(span, redactor)
    cut, redacted = payload.cut + attributes.cut + rest.cut, payload.redacted + attributes.redacted + rest.redacted
    own = add_losses(span, attributes.own, cut, redacted)
    finished = limit(span, payload, attributes._replace(own=own) if own is not attributes.own else attributes, rest)
    read = None
    if payload.turn is not None and span.output is not None and not span.output.is_note:
        has_usage = semconv.USAGE_OUTPUT_TOKENS in span.attributes
        shape = span.returned or shape_of(values.answer)
        read = read_of(values.answer, payload.turn[1], has_usage=has_usage, shape=shape)
    return Finished(finished, payload.turn, attributes.clean_tags, cut, redacted, read)


def load(span: RolloutSpan) -> Values:
    """Load the snapshots; write the text of token ids before them, and long lists of numbers last."""
    arguments, answer, cut = None, None, 0
    if span.input is not None:
        arguments, cut = span.input.load(), span.input.left_out
    if span.output is not None:
        answer, cut = span.output.load(), cut + span.output.left_out
    if span.tokenizer is not None:
        arguments, answer = add_token_text(span.tokenizer, arguments, answer)
    return Values(numbers_last(arguments), numbers_last(answer), cut)


def encode(span: RolloutSpan, values: Values, finisher: PayloadFinisher) -> Payload:
    """Write both sides as JSON, and check both together: one check costs less than two."""
    given = None if span.input is None else value_to_json(values.arguments)
    output = None if span.output is None else value_to_json(values.answer)
    return Payload(given, output, finisher.is_clean(b"%b\n%b" % (given or b"", output or b"")), values.cut)


def write_messages(
    span: RolloutSpan,
    values: Values,
    payload: Payload,
    finisher: PayloadFinisher,
    chat: ChatWriter,
    conversation: Conversation | None,
) -> Payload:
    """Take the messages of an LLM op or a root out of its payload; they are redacted and within the limits."""
    if conversation is None and span.attributes.get(semconv.SPAN_KIND) != "LLM":
        return payload
    arguments, answer, redacted = values.arguments, values.answer, payload.redacted
    asked, answered, turn = _NOTHING, _NOTHING, None
    try:
        if not payload.is_clean:
            if payload.input is not None:
                arguments, count = finisher.clean(payload.input)
                redacted += count
            if payload.output is not None:
                answer, count = finisher.clean(payload.output)
                redacted += count
        if conversation is not None:
            asked, answered = chat.write_root(
                conversation,
                None if payload.input is None else (arguments,),
                None if payload.output is None else (answer,),
            )
        else:
            if payload.input is not None:
                asked = chat.write_arguments(arguments)
            if payload.output is not None:
                is_stream = span.output is not None and span.output.is_stream
                answered = chat.write_result(answer, arguments, is_stream=is_stream)
            turn = (asked.side, answered.side)
    except Exception:
        # The payload is sent as it is.
        internal_error("writing messages")
        return payload
    # Redacted already; a root's text may be new.
    is_clean = max(len(asked.payload or b""), len(answered.payload or b"")) <= finisher.limit
    cut, messages = payload.cut + asked.cut + answered.cut, {**asked.attributes, **answered.attributes}
    return Payload(asked.payload, answered.payload, is_clean, cut, redacted, messages, turn)


def clean_payload(payload: Payload, finisher: PayloadFinisher) -> Payload:
    """Redact and cut what is left of the payload."""
    if payload.is_clean:
        return payload
    cut, redacted = payload.cut, payload.redacted
    sides: list[bytes | None] = []
    for side in (payload.input, payload.output):
        if side is None:
            sides.append(None)
            continue
        finished = finisher.finish(side)
        sides.append(finished.json_bytes)
        cut += finished.cut
        redacted += finished.redacted
    return payload._replace(input=sides[0], output=sides[1], is_clean=True, cut=cut, redacted=redacted)


def show_texts(payload: Payload) -> Payload:
    """Write a side that is one text as backends show it, without its quotes."""
    given, output, texts = payload.input, payload.output, _NO_TEXTS
    plain_input = None if given is None else plain_text(given)
    plain_output = None if output is None else plain_text(output)
    if plain_input is None and plain_output is None:
        return payload
    if plain_input is not None:
        given, texts = plain_input, texts | {semconv.INPUT_VALUE}
    if plain_output is not None:
        output, texts = plain_output, texts | {semconv.OUTPUT_VALUE}
    return payload.of((given, output), texts)


def shrink_texts(payload: Payload) -> Payload:
    """Copy both sides, for which orjson allocates 4 KiB or more: another exporter's queue may hold them long."""
    given = None if payload.input is None else memoryview(payload.input).tobytes()
    output = None if payload.output is None else memoryview(payload.output).tobytes()
    return payload.of((given, output), payload.texts)


def finish_attributes(span: RolloutSpan, redactor: Redactor | None) -> Attributes:
    """Redact and cut the span's attributes, and the tags of its trajectory."""
    bounds, own, cut, redacted = span.bounds, span.attributes, 0, 0
    text_bytes = plain_size(own, bounds.characters)
    if text_bytes is None:
        others = AttributeFinisher(bounds, redactor)
        own = others.attributes(own)
        text_bytes, cut, redacted = attributes_size(own), others.cut_characters, others.redacted
    elif redactor is not None:
        own, redacted = redactor.attributes(own)
    trajectory = span.trajectory
    if trajectory is None:
        return Attributes(own, {}, None, text_bytes, cut, redacted)
    tags, clean_tags = trajectory.tags, None
    if redactor is not None and not trajectory.has_clean_tags:
        clean_tags, count = redactor.attributes(tags)
        tags, redacted = clean_tags, redacted + count
    if bounds.characters is not None:
        others = AttributeFinisher(bounds, redactor)
        tags, cut, redacted = others.attributes(tags), cut + others.cut_characters, redacted + others.redacted
    return Attributes(own, tags, clean_tags, text_bytes + trajectory.tag_bytes, cut, redacted)


def finish_rest(span: RolloutSpan, redactor: Redactor | None) -> Rest:
    """Redact and cut the name, the status, the events and the links."""
    others = AttributeFinisher(span.bounds, redactor)
    name, status = others.name(span.name), _UNSET
    if span.status_code is not StatusCode.UNSET:
        description = span.status_description
        status = Status(span.status_code, others.description(description) if description else None)
    events = [others.event(event) for event in span.events] if span.events else ()
    links = [others.link(link) for link in span.links] if span.links else ()
    return Rest(name, status, events, links, others.cut_characters, others.redacted)


def add_losses(span: RolloutSpan, attributes: dict[str, Any], cut: int, redacted: int) -> dict[str, Any]:
    """Return a root's attributes with the counts of what was cut and replaced in its trajectory, if anything was."""
    trajectory = span.trajectory
    if trajectory is None or span.parent is not None:
        return attributes
    cut, redacted = trajectory.truncated_bytes + cut, trajectory.redacted + redacted
    counts = {semconv.TRUNCATED_BYTES: cut, semconv.REDACTED: redacted} if cut or redacted else {}
    return {**{key: count for key, count in counts.items() if count}, **attributes}


def limit(span: RolloutSpan, payload: Payload, attributes: Attributes, rest: Rest) -> FinishedSpan:
    """Return the finished span within the limit of attributes, with its size."""
    tags, own, dropped, most = attributes.tags, attributes.own, span.dropped_attributes, span.bounds.attributes
    if len(own) + _OTHER_ATTRIBUTES > most:
        given = _number(tags, payload, own)
        tags, payload, own = _first(most, tags, payload, own)
        dropped += given - _number(tags, payload, own)
    name, status, events, links, _, _ = rest
    size = SIZE_OF_SPAN + 4 * len(name) + attributes.text_bytes + len(payload.input or b"") + len(payload.output or b"")
    size += sum(map(len, payload.messages.values())) + SIZE_OF_ATTRIBUTE * (len(own) + _OTHER_ATTRIBUTES)
    if events or links or status.description:
        size += rest_size(events, links, status.description)
    return FinishedSpan(
        name,
        own,
        tags,
        payload.input,
        payload.output,
        status,
        events,
        links,
        dropped,
        size,
        payload.texts,
        payload.messages,
    )


def _first(
    most: int, tags: dict[str, Any], payload: Payload, attributes: dict[str, Any]
) -> tuple[dict[str, Any], Payload, dict[str, Any]]:
    """Return the first `most` attributes: the tags, input and output (two each), the messages, the span's own."""
    tags = dict(islice(tags.items(), most))
    given = payload
    payload = given._replace(output=None, messages={})
    payload = payload if _number(tags, payload) <= most else payload._replace(input=None)
    with_output = payload._replace(output=given.output)
    payload = with_output if _number(tags, with_output) <= most else payload
    kept = dict(islice(given.messages.items(), most - _number(tags, payload)))
    payload = payload._replace(messages=kept)
    return tags, payload, dict(islice(attributes.items(), most - _number(tags, payload)))


def _number(tags: dict[str, Any], payload: Payload, attributes: dict[str, Any] | None = None) -> int:
    sides = (payload.input is not None) + (payload.output is not None)
    return len(tags) + 2 * sides + len(payload.messages) + len(attributes or ())
