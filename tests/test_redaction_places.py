"""Secrets in each part of a span, for each kind of provider and exporter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import annotate, flush, init, rollout_trace_attr, rollout_trace_op, shutdown, stats
from otel_rollout.testing import InMemorySpanExporter
from tests.secret_shapes import FORMS, ORDINARY_TEXTS, SECRET, TEXTS

SHAPES = {**TEXTS, **FORMS}


class RefusedError(Exception):
    """Raised by the traced code."""


@rollout_trace_op
def called(value: Any) -> Any:
    return value


@rollout_trace_op
def failing(text: str) -> None:
    raise RefusedError(text)


@rollout_trace_op
def failing_with_a_cause(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        raise RefusedError("no") from error


@rollout_trace_op
def run_inside(action: Callable[[trace.Span], None]) -> None:
    action(trace.get_current_span())


def _attempt(function: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(RefusedError):
        function(value)


PLACES: dict[str, Callable[[str], Any]] = {
    "input and output": called,
    "nested input": lambda text: called({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
    "annotated input": lambda text: annotate(input=text),
    "annotated output": lambda text: annotate(output={"answer": text}),
    "annotation": lambda text: annotate(note=text),
    "annotated list": lambda text: annotate(notes=["a", text]),
    "exception's message": lambda text: _attempt(failing, text),
    "exception's cause": lambda text: _attempt(failing_with_a_cause, text),
    "attribute": lambda text: trace.get_current_span().set_attribute("note", text),
    "attributes of an op": lambda text: _inside(lambda span: span.set_attributes({"note": text, "notes": ("a", text)})),
    "event's attribute": lambda text: _inside(lambda span: span.add_event("event", {"note": text})),
    "event's name": lambda text: _inside(lambda span: span.add_event(text)),
    "recorded exception": lambda text: _inside(lambda span: span.record_exception(RefusedError(text))),
    "exception's attribute": lambda text: _inside(lambda span: span.record_exception(RefusedError(), {"note": text})),
    "status": lambda text: _inside(lambda span: span.set_status(StatusCode.ERROR, text)),
    "status in one": lambda text: _inside(lambda span: span.set_status(Status(StatusCode.ERROR, text))),
    "span's name": lambda text: _inside(lambda span: span.update_name(text)),
    "link's attribute": lambda text: _inside(lambda span: span.add_link(_ids(), {"note": text})),
    "op's name": lambda text: rollout_trace_op(name=text)(lambda: None)(),
    "trajectory's name": lambda text: _trajectory(name=text),
    "trajectory's tag": lambda text: _trajectory(sample_index=text),
}
"""Each writes a text to a span."""

KEYED: dict[str, Callable[[], Any]] = {
    "argument": lambda: rollout_trace_op(lambda api_key: None)(SECRET),
    "annotation": lambda: annotate(api_key=SECRET),
    "annotated list": lambda: annotate(cookies=[SECRET]),
    "attribute": lambda: _inside(lambda span: span.set_attribute("user.password", SECRET)),
    "header": lambda: _inside(lambda span: span.set_attribute("http.request.header.authorization", [SECRET])),
    "object": lambda: _inside(lambda span: span.set_attributes({"config": json.dumps({"github_token": SECRET})})),
    "event": lambda: _inside(lambda span: span.add_event("event", {"api_key": SECRET})),
}
"""Each writes a secret to a span, under a key that names it."""


def _inside(action: Callable[[trace.Span], None]) -> None:
    run_inside(action)


def _trajectory(**arguments: Any) -> None:
    with rollout_trace_attr(**arguments):
        called(1)


def _ids() -> SpanContext:
    return SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _said(span: ReadableSpan) -> str:
    """Return all of a span that an exporter gets as one text."""
    return repr(
        (
            span.name,
            dict(span.attributes or {}),
            span.status.description,
            [(event.name, dict(event.attributes or {})) for event in span.events],
            [dict(link.attributes or {}) for link in span.links],
            span.to_json(),
        )
    )


def _is_shown(text: str, said: str) -> bool:
    """Return True if a secret of `text` is in the exported text, escaped or not."""
    parts = [SECRET] if SECRET in text else [part for part in text.split("\n") if "KEY" not in part]
    return any(part in said for part in parts)


class Ours:
    """Spans of our provider."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        init("p", "e", backend=self.exporter)

    def spans(self) -> list[ReadableSpan]:
        """Return the exported span as one text."""
        assert flush()
        return self.exporter.spans


class Applications(Ours):
    """Spans of an application's provider, as its own exporter gets them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        init("p", "e", tracer_provider=_provider(self.exporter))


def _provider(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture(params=[Ours, Applications], ids=lambda side: side.__name__)
def side(request: pytest.FixtureRequest) -> Iterator[Ours]:
    """Whose spans, and whose exporter."""
    yield request.param()
    shutdown()


class TestPlaces:
    """The exported spans."""

    @pytest.mark.parametrize("place", PLACES)
    def test_shapes(self, side, place):
        """A secret of any shape is replaced in every part of a span."""
        for text in SHAPES.values():
            with rollout_trace_attr(sample_index=1):
                PLACES[place](text)

        said = "\n".join(map(_said, side.spans()))

        assert [name for name, text in SHAPES.items() if _is_shown(text, said)] == []
        assert "[redacted]" in said
        assert stats().redacted >= len(SHAPES)

    @pytest.mark.parametrize("place", KEYED)
    def test_keys(self, side, place):
        """A secret under a key that names it is replaced in every part of a span."""
        with rollout_trace_attr(sample_index=1):
            KEYED[place]()

        said = "\n".join(map(_said, side.spans()))

        assert SECRET not in said
        assert "[redacted]" in said

    @pytest.mark.parametrize("place", [place for place in PLACES if "name" not in place and "tag" not in place])
    def test_what_stays(self, side, place):
        """Values that only resemble secrets stay, in every part of a span."""
        for text in ORDINARY_TEXTS:
            with rollout_trace_attr(sample_index=1):
                PLACES[place](text)

        assert not any("[redacted]" in _said(span) for span in side.spans())

    def test_source_line(self, side):
        """A stack trace shows lines of the program: a secret in one is replaced."""

        @rollout_trace_op
        def connect() -> None:
            raise RefusedError(len(dict(password="hunter2x9Kq")))  # noqa: C408 - as a program writes it

        with pytest.raises(RefusedError):
            connect()

        assert [SECRET in _said(span) for span in side.spans()] == [False]

    def test_secret_at_a_cut(self, side):
        """A secret at the cut of a long text leaves no half of itself."""
        form = FORMS["Anthropic"]
        for filling in range(49_100, 49_200, 4):
            _inside(
                lambda span, filling=filling: span.set_attribute("note", "x " * (filling // 2) + form + " y" * 40_000)
            )

        said = "\n".join(map(_said, side.spans()))

        assert form[:20] not in said
        assert form[-12:] not in said


class TestProviders:
    """Redaction by the owner of the spans."""

    def test_spans_of_other_instrumentations(self):
        """Spans of other instrumentations are redacted for our exporters; their own exporters get them as they are."""
        theirs, ours = InMemorySpanExporter(), InMemorySpanExporter()
        provider = _provider(theirs)
        init("p", "e", backend=ours, tracer_provider=provider)
        link = Link(_ids(), {"note": f"password={SECRET}"})

        with provider.get_tracer("httpx").start_as_current_span("GET", links=[link]) as span:
            span.set_attribute("url.full", f"https://x.com?api_key={SECRET}")
            span.add_event("sent", {"authorization": SECRET})
            span.set_status(StatusCode.ERROR, f"password: {SECRET}")

        assert flush()
        assert _said(theirs.spans[0]).count(SECRET) >= 4
        assert SECRET not in _said(ours.spans[0])
        assert ours.spans[0].attributes == {"url.full": "https://x.com?api_key=[redacted]"}
        assert ours.spans[0].context == theirs.spans[0].context
        assert ours.spans[0].start_time == theirs.spans[0].start_time

    def test_switched_off(self, side_without_redaction):
        """With `redact_keys="none"` and `redact_patterns="none"` all leaves as it is."""
        with rollout_trace_attr(sample_index=1):
            for text in SHAPES.values():
                called(text)
            annotate(api_key=SECRET)

        assert not any("[redacted]" in _said(span) for span in side_without_redaction.spans())
        assert stats().redacted == 0

    def test_own_pattern(self, monkeypatch):
        """A user's pattern is replaced in payloads, attributes and messages."""
        monkeypatch.setenv("OTEL_ROLLOUT_REDACT_PATTERNS", "CUST-[0-9]+")
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)

        with rollout_trace_attr(sample_index=1):
            called("CUST-12345")
            annotate(note="CUST-12345")
            _attempt(failing, "CUST-12345")

        assert flush()
        assert not any("CUST-12345" in _said(span) for span in exporter.spans)


@pytest.fixture(params=[False, True], ids=["ours", "application's"])
def side_without_redaction(request: pytest.FixtureRequest) -> Ours:
    """Spans of either provider, without redaction."""
    side = object.__new__(Ours)
    side.exporter = InMemorySpanExporter()
    if request.param:
        provider = _provider(side.exporter)
        init("p", "e", tracer_provider=provider, redact_keys="none", redact_patterns="none")
    else:
        init("p", "e", backend=side.exporter, redact_keys="none", redact_patterns="none")
    return side


class TestCounts:
    """The number of replaced secrets."""

    def test_on_the_root(self, side):
        """A root has the count of its own trajectory, whoever owns the spans; `stats()` has that of all."""
        for times in (0, 2):
            with rollout_trace_attr(sample_index=times):
                for _ in range(times):
                    called(1)
                    rollout_trace_op(lambda api_key: None)(SECRET)

        roots = [span for span in side.spans() if span.parent is None]

        assert [(root.attributes or {}).get("rollout.redacted") for root in roots] == [None, 2]
        assert stats().redacted == 2
