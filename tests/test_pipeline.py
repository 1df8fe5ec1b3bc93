"""Several exporters behind one process: each with its own queue, all within one deadline."""

from __future__ import annotations

import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

import otel_rollout
from otel_rollout import semconv
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.pipeline import QueueProcessor
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter


class _Hanging(SpanExporter):
    """Waits for `release` in each export."""

    def __init__(self):
        self.release = threading.Event()
        self.entered = threading.Event()

    def export(self, spans):
        self.entered.set()
        self.release.wait(120)
        return SpanExportResult.SUCCESS


@pytest.fixture
def hanging():
    """An exporter that hangs until the end of the test."""
    exporter = _Hanging()
    yield exporter
    exporter.release.set()


@otel_rollout.rollout_trace_op
def op(value):
    return value


def trajectory(*values):
    with otel_rollout.rollout_trace_attr(0, 1, 0):
        for value in values:
            op(value)


class TestFlush:
    """`flush` over all exporters."""

    def test_a_hanging_exporter_neither_delays_nor_hides_another(self, hanging):
        """One hangs, the other gets everything at once; the flush returns False at its timeout."""
        healthy = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=[hanging, healthy], schedule_delay_ms=60_000)
        trajectory(1, 2)
        assert otel_rollout.flush(0.5) is False
        assert [span.name for span in healthy.spans] == ["op", "op", "rollout_trace"]
        stats = otel_rollout.stats().exporters
        assert (stats["InMemorySpanExporter"].delivered, stats["_Hanging"].queued) == (3, 3)

    def test_the_provider_of_the_application_does_not_exceed_the_timeout(self, monkeypatch):
        """If the application's provider exports, its flush is waited for within the timeout, and no longer."""
        provider = TracerProvider(shutdown_on_exit=False)
        release = threading.Event()

        def force_flush(timeout_millis=30_000):
            release.wait(120)
            return True

        monkeypatch.setattr(provider, "force_flush", force_flush)
        otel_rollout.init("project", "experiment", tracer_provider=provider)
        assert otel_rollout.flush(0.1) is False
        release.set()
        assert otel_rollout.flush(60) is True


class TestShutdown:
    """`shutdown` over all exporters."""

    def test_it_returns_in_time_and_says_what_was_lost(self, hanging):
        """A hanging exporter may have its spans or not at the deadline; the other's are delivered."""
        healthy = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=[hanging, healthy], schedule_delay_ms=60_000)
        trajectory(1)
        assert otel_rollout.shutdown(0.5) is False
        stats = otel_rollout.stats().exporters
        assert stats["_Hanging"].lost == {"unknown": 2}
        assert stats["InMemorySpanExporter"].delivered == 2
        hanging.release.set()


class _Slow(OutcomeSpanExporter):
    """Isn't ready for a span until `ready`."""

    def __init__(self):
        self.ready, self.taken = threading.Event(), threading.Event()
        self.sent = self.prepared = 0

    def prepare(self):
        self.prepared += 1

    @property
    def preparing(self):
        return "" if self.ready.is_set() else "tables are being made"

    def send(self, spans):
        self.taken.set()
        self.ready.wait(120)
        self.sent += len(spans)
        return DELIVERED

    def shutdown(self):
        pass


class TestPreparing:
    """The end of a process whose backend is being made ready for the first span."""

    @pytest.fixture
    def slow(self, monkeypatch):
        """An exporter that is ready after a second line on the wait."""
        exporter, lines = _Slow(), []

        def note(message, *arguments):
            lines.append(message % arguments)
            if len(lines) == 2:
                exporter.ready.set()

        monkeypatch.setattr("otel_rollout.pipeline._logger.warning", note)
        monkeypatch.setattr("otel_rollout.pipeline.SECONDS_UNTIL_A_LINE", 0.0)
        monkeypatch.setattr("otel_rollout.pipeline.SECONDS_BETWEEN_LINES", 0.0)
        monkeypatch.setattr("otel_rollout.pipeline.SECONDS_AT_END", 10.0)
        exporter.lines = lines
        yield exporter
        exporter.ready.set()

    def test_the_end_waits_and_says_so(self, slow):
        """Without a timeout, the wait begins when the backend is ready: everything arrives."""
        otel_rollout.init("project", "experiment", backend=slow)
        trajectory(1)
        assert otel_rollout.shutdown() is True
        assert slow.sent == 2
        assert slow.lines[1].startswith("_Slow: tables are being made; the end of the process waits for that, 290 s")
        assert slow.lines[1].endswith("and then for 2 spans; Ctrl-C ends the wait")

    @pytest.mark.parametrize(("setting", "timeout"), [({"shutdown_timeout_ms": 50}, None), ({}, 0.05)])
    def test_a_given_timeout_is_kept(self, slow, setting, timeout):
        """With a setting or an argument, nothing is waited for, and what was in a request is unknown."""
        otel_rollout.init("project", "experiment", backend=slow, **setting)
        trajectory(1)
        otel_rollout.flush(0)
        assert slow.taken.wait(60)
        assert otel_rollout.shutdown(timeout) is False
        assert slow.lines == []
        assert otel_rollout.stats().exporters["_Slow"].lost == {"unknown": 2}
        assert otel_rollout.stats().lost == 0

    def test_nothing_waits_without_spans(self, slow):
        """The work begins with `init`, before there are spans; a process that has recorded nothing ends at once."""
        otel_rollout.init("project", "experiment", backend=slow)
        assert slow.prepared == 1
        assert otel_rollout.shutdown() is True
        assert slow.lines == []


class TestDroppedSpans:
    """Loss on the root."""

    @pytest.mark.parametrize("provider", [None, TracerProvider(shutdown_on_exit=False)], ids=["ours", "theirs"])
    def test_the_root_says_how_many_spans_were_lost_on_the_way_to_this_exporter(self, hanging, provider):
        """The root that reaches an exporter whose queue was full counts what is missing; another's root does not."""
        healthy = InMemorySpanExporter()
        received = []

        def keep(spans):
            hanging.entered.set()
            hanging.release.wait(120)
            received.extend(spans)
            return SpanExportResult.SUCCESS

        hanging.export = keep
        backends, bounds = [hanging, healthy], {"max_queue_spans": 50, "max_batch_spans": 1}
        otel_rollout.init("project", "experiment", backend=backends, tracer_provider=provider, **bounds)
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            op("first")
            assert hanging.entered.wait(120)
            for number in range(100):
                op(number)
                assert runtime.pipeline.queues[1].flush(10)
        hanging.release.set()
        assert otel_rollout.flush(60) is False
        lost = otel_rollout.stats().exporters["_Hanging"].lost["queue_full"]
        roots = [span for span in received if span.parent is None]
        assert [root.attributes[semconv.DROPPED_SPANS] for root in roots] == [lost]
        assert len(received) == 102 - lost
        assert len(healthy.spans) == 102
        assert semconv.DROPPED_SPANS not in healthy.spans[-1].attributes


class TestQueueProcessor:
    """Under a provider of the application's."""

    def test_the_applications_spans_arrive_with_ours(self):
        """Spans of the provider reach our exporters through our queues, its flush and shutdown included."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("project", "experiment", backend=exporter, tracer_provider=provider)
        with provider.get_tracer("app").start_as_current_span("theirs"):
            pass
        trajectory(1)
        assert provider.force_flush(10_000)
        assert [span.name for span in exporter.spans] == ["theirs", "op", "rollout_trace"]
        with provider.get_tracer("app").start_as_current_span("last"):
            pass
        provider.shutdown()
        assert exporter.spans[-1].name == "last"

    def test_a_span_without_a_name(self):
        """The SDK takes any name, and so do we: it arrives as a text, and nothing is raised in the traced program."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("project", "experiment", backend=exporter, tracer_provider=provider)
        provider.get_tracer("app").start_span(None).end()
        assert provider.force_flush(10_000)
        assert [span.name for span in exporter.spans] == ["None"]

    def test_spans_after_the_providers_shutdown(self):
        """Spans that end after the application has shut its provider down are counted, and `flush` returns False."""
        provider = TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter(), tracer_provider=provider)
        trajectory(1)
        provider.shutdown()
        trajectory(1)
        assert otel_rollout.flush(60) is False
        counts = otel_rollout.stats().exporters["InMemorySpanExporter"]
        assert (counts.recorded, counts.delivered, counts.lost) == (4, 2, {"after_shutdown": 2})

    def test_spans_after_our_shutdown(self):
        """Our spans that end after `shutdown` are counted; the application's are not."""
        provider = TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter(), tracer_provider=provider)
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            assert otel_rollout.shutdown(60)
        with provider.get_tracer("app").start_as_current_span("theirs"):
            pass
        counts = otel_rollout.stats().exporters["InMemorySpanExporter"]
        assert (counts.recorded, counts.lost) == (1, {"after_shutdown": 1})

    def test_a_span_that_is_not_sampled_is_left_out(self):
        """A span that is recorded but not sampled is not exported."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        processor = QueueProcessor()
        processor.queues = runtime.pipeline.queues
        span = trace.NonRecordingSpan(SpanContext(1, 2, False, TraceFlags(0)))
        span.context, span.instrumentation_scope = span.get_span_context(), None
        processor.on_end(span)
        assert processor.force_flush(10_000)
        assert otel_rollout.stats().exporters["InMemorySpanExporter"].recorded == 0


class TestTokenizers:
    """Tokenizers that other threads use."""

    def test_each_has_a_copy_of_its_own(self):
        """A tokenizer that takes the place in memory of one that is gone is not taken for it."""
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())

        class Tokenizer:
            def __init__(self, number):
                self.number = number

        copies = [runtime.pipeline.copy_tokenizer(Tokenizer(number)) for number in range(100)]

        assert [own.number for own in copies] == list(range(100))

    def test_one_has_one_copy(self):
        """It is copied once, however many workers ask."""
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
        tokenizer = {"a": [1]}

        first, second = (runtime.pipeline.copy_tokenizer(tokenizer) for _ in range(2))

        assert first is second is not tokenizer
        assert first == tokenizer
