"""What a span passes between its end and its export: the user's functions, redaction, messages, limits."""

from __future__ import annotations

import sys
import threading
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

import otel_rollout
from otel_rollout import (
    ConfigurationError,
    SpanDraft,
    flush,
    init,
    rollout_trace_attr,
    rollout_trace_op,
    semconv,
    stats,
)
from otel_rollout.finish import PayloadFinisher, Redactor, draft_of, limit, redact
from otel_rollout.record import RolloutSpan, TrajectoryState, take_snapshot

ROOT = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))
ASKED = [{"role": "user", "content": "2+2?"}]
FINISHER = PayloadFinisher(1000, Redactor())


def recording(given: Any = None, result: Any = None, *, parent: SpanContext | None = ROOT, **more: Any) -> RolloutSpan:
    """Return an ended span."""
    trajectory = more.pop("trajectory", None)
    span = RolloutSpan(more.pop("name", "op"), 2 if parent else ROOT, parent, more, trajectory, (), lambda ended: None)
    span.input = None if given is None else take_snapshot(given)
    span.output = None if result is None else take_snapshot(result)
    span.end()
    return span


def redacted(span: RolloutSpan) -> SpanDraft:
    """Return a span's draft without its secrets."""
    draft = draft_of(span)
    redact(draft, FINISHER)
    return draft


class TestDraft:
    """A span as it was loaded."""

    def test_values(self):
        """Long lists of numbers come last, and what the snapshots left out counts as cut."""
        span = recording({"ids": list(range(20)), "n": 1}, "x" * 20_000_000)

        draft = draft_of(span)

        assert list(draft.input) == ["n", "ids"]
        assert draft.cut == span.output.left_out > 0


class Leaving:
    """Has no text."""

    def __str__(self) -> str:
        raise SystemExit


class TestRedact:
    """Secrets and media go before anything else is made of a span."""

    def test_payload(self):
        """Both sides are JSON; what had a secret is parsed again, for its messages; an absent side stays away."""
        draft = redacted(recording({"a": 1}, {"api_key": "c0ffee-77"}))

        assert (draft.input_json, draft.output_json) == (b'{"a":1}', b'{"api_key":"[redacted]"}')
        assert (draft.output, draft.redacted) == ({"api_key": "[redacted]"}, 1)
        assert redacted(recording({"a": 1})).output_json is None

    def test_one_side_ends_with_a_name(self):
        """A name at the end of the input has no value in the output."""
        draft = redacted(recording("the password", "hunter2x9 is a word"))

        assert (draft.input_json, draft.output_json) == (b'"the password"', b'"hunter2x9 is a word"')

    def test_media(self):
        """Media go from the payload; attributes keep theirs."""
        image = f"data:image/png;base64,{'iVBORw0KGgo' * 100}"
        draft = redacted(recording({"image": image}, key=image))

        assert draft.input == {"image": "data:image/png;base64,[1122 bytes cut]"}
        assert draft.attributes == {"key": image}

    def test_a_payload_that_cannot_be_read(self, monkeypatch):
        """Name and tags are redacted all the same."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        trajectory = TrajectoryState({"tag": "password=hunter2x9"})
        draft = draft_of(recording(1, name="op password=hunter2x9", trajectory=trajectory))
        draft.input = [Leaving()]

        redact(draft, FINISHER)

        assert (draft.name, draft.tags) == ("op password=[redacted]", {"tag": "password=[redacted]"})
        assert (draft.input_json, draft.redacted) == ('"…[the payload could not be read]"'.encode(), 2)


class TestLimit:
    """Texts are cut last."""

    @pytest.mark.parametrize("key", ["key", "🔑"])
    def test_texts(self, key):
        """Payload and attributes are cut, with the count of both; a text loses its quotes, and is named."""
        draft = redacted(recording(["a" * 5000], 'a"b', **{key: "x" * 70_000, "n": 1}))

        limit(draft, FINISHER)

        assert (draft.output_json, draft.texts) == (b'a"b', {semconv.OUTPUT_VALUE})
        assert 900 < len(draft.input_json) <= 1000
        assert len(draft.attributes[key]) < 65_000 + 600
        assert draft.cut > 8000


def anonymous(span: SpanDraft) -> None:
    """Replace a customer's name wherever it is."""
    if span.kind == "TOOL":
        span.name = "look up"
        span.attributes["customer"] = {"id": 7}
        span.input["name"] = span.output = "customer 7, password=hunter2x9"


@rollout_trace_op(kind="TOOL")
def find(name: str) -> str:
    """Return an answer with the name."""
    otel_rollout.annotate(turns=1)
    return f"{name} is here"


def spans_of(*transforms: Any) -> dict[str, Any]:
    """Return the exported spans of a trajectory by their names, with the functions."""
    exporter = InMemorySpanExporter()
    init("p", "e", backend=exporter, transforms=transforms)
    with rollout_trace_attr(sample_index=1, step=3):
        find("Ada")
    assert flush()
    return {span.name: span for span in exporter.get_finished_spans()}


class TestTransforms:
    """The user's functions."""

    def test_what_they_change_is_redacted_and_sent(self):
        """A function may change name, attributes, input and output; what it writes is redacted like all else."""
        attributes = spans_of(anonymous)["look up"].attributes

        assert orjson.loads(attributes[semconv.INPUT_VALUE]) == {"name": "customer 7, password=[redacted]"}
        assert attributes[semconv.OUTPUT_VALUE] == "customer 7, password=[redacted]"
        assert (attributes["customer"], attributes[semconv.STEP]) == ('{"id":7}', 3)

    def test_order_and_thread(self):
        """They run in their order, on the delivery thread; one may return the span."""
        seen: list[Any] = []

        def first(span: SpanDraft) -> SpanDraft:
            seen.append((span.name, threading.current_thread()))
            span.name = f"{span.name}!"
            return span

        spans = spans_of(first, lambda span: seen.append((span.name, threading.current_thread())))

        assert {name for name, _ in seen} == {"find", "find!", "rollout_trace", "rollout_trace!"}
        assert threading.current_thread() not in {thread for _, thread in seen}
        assert set(spans) == {"find!", "rollout_trace!"}

    def test_spans_of_other_instrumentations(self):
        """They pass too, for our exporters, with all that they have in their attributes."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider()

        def upper(span: SpanDraft) -> None:
            span.attributes = {key: str(value).upper() for key, value in span.attributes.items()}

        init("p", "e", backend=exporter, tracer_provider=provider, transforms=[upper])
        with provider.get_tracer("theirs").start_as_current_span("call", attributes={"text": "password=hunter2x9"}):
            pass

        assert flush()
        (span,) = exporter.get_finished_spans()
        assert dict(span.attributes) == {"text": "PASSWORD=[redacted]"}

    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(lambda span: 1 / 0, id="raises"),
            pytest.param(lambda span: sys.exit(), id="leaves"),
            pytest.param(lambda span: "Ada", id="returns another"),
            pytest.param(lambda span: setattr(span, "attributes", None), id="no attributes"),
        ],
    )
    def test_one_that_fails(self, broken, monkeypatch, caplog):
        """The span arrives with a note in the place of payload and texts; it is logged once and counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        reached: list[str] = []

        spans = spans_of(broken, lambda span: reached.append(span.name))

        assert "Ada" not in str([span.to_json() for span in spans.values()])
        attributes = spans["find"].attributes
        name = broken.__qualname__
        assert attributes[semconv.INPUT_VALUE] == f"…[left out: the transform {name} failed]"
        assert (attributes[semconv.SPAN_KIND], attributes[semconv.STEP]) == ("TOOL", 3)
        assert stats().internal_errors == {f"running the transform {name}": 2}
        assert len([record for record in caplog.records if "running the transform" in record.message]) == 1
        assert reached == []

    def test_an_object_that_raises(self, monkeypatch):
        """An object in the payload whose text can't be made, whatever it raises, hides its span alone."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")

        def broken(span: SpanDraft) -> None:
            span.output = [Leaving()] if span.kind == "TOOL" else None

        assert spans_of(broken)["find"].attributes[semconv.OUTPUT_VALUE] == "…[the payload could not be read]"

    @pytest.mark.parametrize("wrong", [anonymous, [1], "anonymous"])
    def test_checked(self, wrong):
        """What isn't a list of functions is an error of `init` that says so."""
        with pytest.raises(ConfigurationError, match=r"transforms=.*: this should be a list of functions"):
            init("p", "e", backend=InMemorySpanExporter(), transforms=wrong)
