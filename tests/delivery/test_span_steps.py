"""Each step from a recording span to a finished one, alone: no step changes what it is given."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

from otel_rollout import semconv
from otel_rollout.finish import ChatWriter, Conversation, PayloadFinisher, Redactor, span_steps
from otel_rollout.record import RolloutSpan, TrajectoryState, take_snapshot

ROOT = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))
ASKED = [{"role": "user", "content": "2+2?"}]
FINISHER = PayloadFinisher(1000, Redactor())
Payload = span_steps.Payload
CHAT = ChatWriter(FINISHER)


def recording(given: Any = None, result: Any = None, *, parent: SpanContext | None = ROOT, **more: Any) -> RolloutSpan:
    """Return an ended span."""
    trajectory = more.pop("trajectory", None)
    span = RolloutSpan(more.pop("name", "op"), 2 if parent else ROOT, parent, more, trajectory, (), lambda ended: None)
    span.input = None if given is None else take_snapshot(given)
    span.output = None if result is None else take_snapshot(result)
    span.end()
    return span


def encoded(given: Any, result: Any = None, **more: Any) -> tuple[RolloutSpan, span_steps.Values, span_steps.Payload]:
    """Return a span with the results of the first two steps."""
    span = recording(given, result, **more)
    values = span_steps.load(span)
    return span, values, span_steps.encode(span, values, FINISHER)


def test_load():
    """The values of both sides, long lists of numbers last, and what the snapshots left out."""
    span = recording({"ids": list(range(20)), "n": 1}, "x" * 20_000_000)

    values = span_steps.load(span)

    assert list(values.arguments) == ["n", "ids"]
    assert values.cut == span.output.left_out > 0


def test_encode():
    """JSON of both sides, and whether they need a change; a side that isn't there stays away."""
    _, _, payload = encoded({"a": 1})
    _, _, secret = encoded({"a": 1}, {"api_key": "c0ffee-77"})

    assert payload == Payload(b'{"a":1}', None, is_clean=True, cut=0)
    assert (secret.output, secret.is_clean) == (b'{"api_key":"c0ffee-77"}', False)


def test_write_messages():
    """The messages of an LLM op leave its payload, which keeps their texts, and are the turn of its conversation."""
    span, values, payload = encoded({"messages": ASKED, "api_key": "c0ffee-77"}, "4", **{semconv.SPAN_KIND: "LLM"})
    before = copy.deepcopy(values), payload._replace()

    written = span_steps.write_messages(span, values, payload, FINISHER, CHAT, None)

    assert orjson.loads(written.input) == {"prompt_text": "2+2?", "api_key": "[redacted]"}
    assert set(written.messages) == {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}
    assert [side.messages[0].gist for side in written.turn] == ["2+2?", "4"]
    assert written.redacted == 1
    assert (values, payload) == before


def test_write_messages_of_a_root():
    """A root gets the conversation of its trajectory, which stays as it is, with the annotated input before it."""
    turn = span_steps.write_messages(
        *encoded({"messages": ASKED}, "4", **{semconv.SPAN_KIND: "LLM"}), FINISHER, CHAT, None
    )
    conversation = Conversation(1000)
    conversation.add(*turn.turn)
    before = copy.deepcopy(vars(conversation))
    root, values, payload = encoded({"messages": ASKED}, parent=None, trajectory=TrajectoryState({}))

    written = span_steps.write_messages(root, values, payload, FINISHER, CHAT, conversation)

    assert orjson.loads(written.input) == orjson.loads(turn.input)
    assert written.output == b'"4"'
    assert {**written.messages} == {**turn.messages}
    assert written.turn is None
    assert {**vars(conversation)} == before


def test_write_messages_of_another_op():
    """Other ops keep their payload."""
    span, values, payload = encoded({"messages": ASKED}, **{semconv.SPAN_KIND: "TOOL"})

    assert span_steps.write_messages(span, values, payload, FINISHER, CHAT, None) is payload


def test_clean_payload():
    """Secrets are replaced and long texts cut, with the counts of both; a clean payload stays itself."""
    _, _, payload = encoded({"api_key": "c0ffee-77"}, "x" * 5000)

    clean = span_steps.clean_payload(payload, FINISHER)

    assert clean.input == b'{"api_key":"[redacted]"}'
    assert (len(clean.output), clean.cut, clean.redacted) == (1000, 4002, 1)
    assert span_steps.clean_payload(clean, FINISHER) is clean


def test_show_texts():
    """A side that is one text loses its quotes, and is named; another stays JSON."""
    shown = span_steps.show_texts(Payload(b'"a\\"b"', b"[1]", is_clean=True, cut=3))

    assert shown == Payload(b'a"b', b"[1]", is_clean=True, cut=3, texts=frozenset({semconv.INPUT_VALUE}))
    assert span_steps.shrink_texts(shown) == shown


@pytest.mark.parametrize("key", ["key", "🔑"])
def test_finish_attributes(key):
    """Secrets go from attributes and tags; the tags without them are returned, for the other spans."""
    trajectory = TrajectoryState({"tag": "password=hunter2x9"})
    span = recording(trajectory=trajectory, **{key: "password=hunter2x9 " + "x" * 70_000, "n": 1})

    done = span_steps.finish_attributes(span, Redactor())

    assert done.tags == done.clean_tags == {"tag": "password=[redacted]"}
    assert done.own[key].startswith("password=[redacted] xx")
    assert len(done.own[key]) < 65_000 + 600
    assert (done.own["n"], done.redacted, done.cut > 4000) == (1, 2, True)
    assert trajectory.tags == {"tag": "password=hunter2x9"}


def test_finish_rest():
    """Name, status, events and links, with what was replaced in them."""
    span = RolloutSpan("op password=hunter2x9", 2, ROOT, {}, None, (), lambda ended: None)
    span.add_event("seen", {"api_key": "c0ffee-77"}, 5)
    span.set_status(StatusCode.ERROR, "token=hunter2x9")

    rest = span_steps.finish_rest(span, Redactor())

    assert (rest.name, rest.status.description) == ("op password=[redacted]", "token=[redacted]")
    assert [(event.name, event.attributes) for event in rest.events] == [("seen", {"api_key": "[redacted]"})]
    assert (rest.links, rest.cut, rest.redacted) == ((), 0, 3)


def test_add_losses():
    """A root shows the counts of its trajectory and its own; other spans none."""
    trajectory = TrajectoryState({})
    trajectory.truncated_bytes = 5
    root, child = (recording(trajectory=trajectory, parent=parent) for parent in (None, ROOT))

    assert span_steps.add_losses(root, {"a": 1}, 2, 0) == {semconv.TRUNCATED_BYTES: 7, "a": 1}
    assert span_steps.add_losses(child, {"a": 1}, 2, 0) == {"a": 1}
    assert trajectory.truncated_bytes == 5


def test_all_steps_leave_the_trajectory():
    """All steps together return what is to be counted and kept, and count and keep nothing."""
    trajectory = TrajectoryState({"tag": "password=hunter2x9"})
    span = recording({"api_key": "c0ffee-77"}, "x" * 5000, parent=None, trajectory=trajectory)

    done = span_steps.finish_span(span, FINISHER, CHAT, Conversation(1000), is_shared=True)

    assert (done.cut, done.redacted, done.clean_tags) == (4002, 2, {"tag": "password=[redacted]"})
    assert done.span.attributes == {semconv.TRUNCATED_BYTES: 4002, semconv.REDACTED: 2}
    assert (trajectory.truncated_bytes, trajectory.redacted) == (0, 0)
    assert trajectory.tags == {"tag": "password=hunter2x9"}
    assert span.finished is None
