"""Exporters that mask: what a wrapper sets on a span of ours is what the exporter behind it sends."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as encode_by_the_sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkMemory
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, get_current_span

import otel_rollout
from otel_rollout.finish import shrunk_copy
from otel_rollout.otlp import decode_spans, encode_spans, lazy_spans
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout_console import ConsoleSpanExporter
from otel_rollout_mlflow.translate import otlp_spans, stored_spans
from otel_rollout_weave.translate import call_of_span

ELSEWHERE = SpanContext(7, 8, is_remote=False)
PARTS = ("name", "input", "output", "own", "event", "link", "status", "resource")
SECRETS = {part: f"clear-{part}-text" for part in PARTS}
"""The text of each part of the span before it is masked."""


def fill(span: Any) -> None:
    """Have every part of a span say its secret, but for the payload and the resource."""
    span.update_name(SECRETS["name"])
    span.set_attribute("own", SECRETS["own"])
    span.add_event("seen", {"text": SECRETS["event"]})
    span.add_link(ELSEWHERE, {"text": SECRETS["link"]})
    span.set_status(Status(StatusCode.ERROR, SECRETS["status"]))


def spans_of_ours(monkeypatch: pytest.MonkeyPatch, count: int) -> list[ReadableSpan]:
    """Return spans as our delivery gives them to an exporter."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"text={SECRETS['resource']}")
    exporter = InMemorySpanExporter()
    otel_rollout.init("project", "experiment", exporter)

    @otel_rollout.rollout_trace_op
    def op(text: str) -> str:
        fill(get_current_span())
        return SECRETS["output"]

    for _ in range(count):
        op(SECRETS["input"])
    assert otel_rollout.flush(60)
    return list(exporter.spans)


def spans_of_lines(monkeypatch: pytest.MonkeyPatch, count: int) -> list[ReadableSpan]:
    """Return spans as a replay gives them to an exporter: parsed when something of them is asked for."""
    return [lazy for span in spans_of_ours(monkeypatch, count) for lazy in lazy_spans(encode_spans([span]))]


def spans_of_the_sdk(_: pytest.MonkeyPatch, count: int) -> list[ReadableSpan]:
    """Return spans of the SDK's that say the same."""
    memory = SdkMemory()
    provider = TracerProvider(resource=Resource({"text": SECRETS["resource"]}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    payload = {"input.value": SECRETS["input"], "output.value": SECRETS["output"]}
    for _ in range(count):
        with provider.get_tracer("test").start_as_current_span("op", attributes=payload) as span:
            fill(span)
    return list(memory.get_finished_spans())


def masked_attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the span's attributes with every text replaced."""
    return {key: "***" if isinstance(value, str) else value for key, value in (span.attributes or {}).items()}


def assigns_attributes(span: Any) -> Any:
    span._attributes = masked_attributes(span)
    return span


def assigns_all(span: Any) -> Any:
    span._name = "***"
    span._status = Status(span.status.status_code, "***")
    span._events = [Event(event.name, {"text": "***"}, event.timestamp) for event in span.events]
    span._links = [Link(link.context, {"text": "***"}) for link in span.links]
    span._resource = Resource({"text": "***"})
    return assigns_attributes(span)


def through_vars(span: Any) -> Any:
    vars(span).update(_name="***", _attributes=masked_attributes(span))
    return span


def in_place(span: Any) -> Any:
    for event in span.events:
        event._attributes = {"text": "***"}
    for link in span.links:
        link._attributes = {"text": "***"}
    return span


def empties(span: Any) -> Any:
    span._attributes, span._events, span._links = {}, (), ()
    return span


def rebuilds(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name="***",
        context=span.context,
        parent=span.parent,
        resource=Resource({"text": "***"}),
        attributes=masked_attributes(span),
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


class _MaskedSpan(ReadableSpan):
    name = property(lambda self: "***")
    attributes = property(lambda self: masked_attributes(self._span))  # type: ignore[assignment]

    def __init__(self, span: ReadableSpan) -> None:
        super().__init__(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            events=span.events,
            links=span.links,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
        )
        self._span = span


class _Wrapper:
    """Stands for a span without being one."""

    def __init__(self, span: ReadableSpan) -> None:
        self._span = span

    def __getattr__(self, name: str) -> Any:
        return masked_attributes(self._span) if name in ("attributes", "_attributes") else getattr(self._span, name)


ATTRIBUTES = ("input", "output", "own")
IDIOMS: dict[str, tuple[Callable[[Any], Any], Sequence[str]]] = {
    "attributes assigned": (assigns_attributes, ATTRIBUTES),
    "everything assigned": (assigns_all, PARTS),
    "assigned in the dict": (through_vars, ("name", *ATTRIBUTES)),
    "events and links in place": (in_place, ("event", "link")),
    "emptied": (empties, (*ATTRIBUTES, "event", "link")),
    "rebuilt": (rebuilds, PARTS),
    "a copy": (lambda span: assigns_all(copy.copy(span)), PARTS),
    "a deep copy": (lambda span: assigns_all(copy.deepcopy(span)), PARTS),
    "a subclass": (_MaskedSpan, ("name", *ATTRIBUTES)),
    "a wrapper": (_Wrapper, ATTRIBUTES),
}
"""Ways in which exporters mask spans, each with what it masks."""


def _drawn(spans: Sequence[ReadableSpan]) -> str:
    stream = io.StringIO()
    exporter = ConsoleSpanExporter(stream=stream)
    exporter.send(spans)
    exporter.shutdown()
    return stream.getvalue()


def _calls(spans: Iterable[ReadableSpan]) -> bytes:
    return orjson.dumps([call_of_span(span, project_id="a/b", op_name="op") for span in spans])


def _stored(spans: Sequence[ReadableSpan]) -> str:
    return "".join(span.to_json() for span in stored_spans(spans, unwraps_texts=True))


ENCODERS: dict[str, Callable[[Any], Any]] = {
    "the SDK's OTLP": encode_by_the_sdk,
    "the SDK's JSON": lambda spans: "".join(span.to_json() for span in spans),
    "otlp": encode_spans,
    "console": _drawn,
    "mlflow over OTLP": lambda spans: encode_spans(otlp_spans(spans)),
    "mlflow in a database": _stored,
    "mlflow in another process": lambda spans: _stored(decode_spans(encode_spans(spans))),
    "weave": _calls,
    "shrunk": lambda spans: encode_spans([shrunk_copy(span) for span in spans]),
}
"""All that turns spans into what is sent."""


def shown(encode: Callable[[Any], Any], span: Any) -> set[str]:
    """Return the parts of a span whose secrets are sent."""
    sent = encode([span])
    text = sent if isinstance(sent, str) else sent.decode("utf-8", "replace") if isinstance(sent, bytes) else str(sent)
    return {part for part, secret in SECRETS.items() if secret in text}


class TestIdioms:
    """Each way of masking, in front of each encoder."""

    @pytest.mark.parametrize("idiom", IDIOMS)
    @pytest.mark.parametrize("make_spans", [spans_of_the_sdk, spans_of_ours, spans_of_lines])
    def test_what_was_masked_is_not_sent(self, monkeypatch, make_spans, idiom):
        """No exporter sends what a wrapper masks, and each sends the rest: for the SDK's spans and ours."""
        mask, masked = IDIOMS[idiom]
        spans = iter(make_spans(monkeypatch, 2 * len(ENCODERS)))
        for encoder, encode in ENCODERS.items():
            # It looks behind the properties: such a mask does nothing there, on the SDK's spans either.
            if encoder == "the SDK's JSON" and idiom in ("a subclass", "a wrapper"):
                continue
            before = shown(encode, next(spans))
            after = shown(encode, mask(next(spans)))

            assert (encoder, after) == (encoder, before - set(masked))

    def test_every_encoder_shows_what_is_to_be_masked(self, monkeypatch):
        """Without a mask every encoder sends payload or name of the span, so that the tests above can fail."""
        (span,) = spans_of_ours(monkeypatch, 1)

        assert all(shown(encode, span) >= {"name", "input"} for encode in ENCODERS.values())

    def test_a_name_that_is_set_before_anything_is_read(self, monkeypatch):
        """A change of a span from a file, made before the span is parsed, stays."""
        (span,) = spans_of_lines(monkeypatch, 1)
        span._name = "masked"

        assert span.attributes["own"] == SECRETS["own"]
        assert span.name == "masked"

    def test_attributes_are_read_only(self, monkeypatch):
        """The public properties can't be assigned or changed, as on the SDK's spans."""
        for make_spans in (spans_of_ours, spans_of_the_sdk):
            span: Any = make_spans(monkeypatch, 1)[0]
            with pytest.raises(TypeError):
                span.attributes["own"] = "***"
            with pytest.raises(AttributeError):
                span.attributes = {}


class Masking(SpanExporter):
    """Masks in place, and hands on to another exporter."""

    def __init__(self, inner: SpanExporter) -> None:
        self.inner = inner

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Mask, then export."""
        return self.inner.export([assigns_all(in_place(span)) for span in spans])

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        self.inner.shutdown()


class TestOneOfTwo:
    """Masking in front of one exporter of several."""

    def test_the_other_exporter_gets_the_span_whole(self):
        """A span that is masked for one exporter is whole for another, whichever comes first."""
        masked, whole = InMemorySpanExporter(), InMemorySpanExporter()
        otel_rollout.init("project", "experiment", [Masking(masked), whole])

        @otel_rollout.rollout_trace_op
        def op(text: str) -> str:
            fill(get_current_span())
            return SECRETS["output"]

        for _ in range(20):
            op(SECRETS["input"])
        assert otel_rollout.flush(60)

        assert [shown(encode_spans, span) for span in masked.spans] == [set()] * 20
        assert [shown(encode_spans, span) for span in whole.spans] == [set(PARTS) - {"resource"}] * 20
