"""The counts, and the line that is made of them."""

from __future__ import annotations

import gc
import logging
import os
import threading
import types

import pytest
from opentelemetry.sdk.trace import TracerProvider

import otel_rollout
from otel_rollout import ExporterStats, FollowUpStats, Stats
from otel_rollout.record import OpenSpans
from otel_rollout.testing import InMemorySpanExporter


class TestText:
    """One line for a log."""

    def test_without_exporters(self):
        """If tracing is off, the line says so."""
        assert str(Stats()) == "tracing is off"

    def test_all_is_well(self):
        """If every span arrived, there are two numbers for each exporter."""
        stats = Stats({"mlflow": ExporterStats(1000, 1000), "otlp": ExporterStats(1000, 1000)})
        assert str(stats) == "mlflow: 1,000 of 1,000 spans delivered; otlp: 1,000 of 1,000 spans delivered"

    def test_everything_that_can_be_said(self):
        """Losses by reason, what is queued, payloads given up or cut, and faults of ours all have their place."""
        otlp = ExporterStats(
            recorded=2000,
            delivered=1000,
            queued=400,
            lost={"queue_full": 500, "refused": 100},
            payloads_dropped=50,
            payloads_shrunk=2,
        )
        stats = Stats({"otlp": otlp}, truncated_bytes=12_345, internal_errors={"reading": 2, "capturing": 1})
        assert str(stats) == (
            "otlp: 1,000 of 2,000 spans delivered, 600 lost (queue_full 500, refused 100), 400 queued, "
            "50 without payload, 2 with payload cut by the backend's limits; 12,345 payload bytes cut; "
            "3 internal errors"
        )

    def test_follow_up_requests(self):
        """Follow-up requests that wait or were lost are named, and not counted among the spans."""
        work = {
            "links": FollowUpStats(done=7),
            "rewards": FollowUpStats(done=1, waiting=1200, lost={"refused": 2, "queue_full": 1}),
        }
        stats = Stats({"mlflow": ExporterStats(1000, 1000, follow_up_requests=work)})
        assert str(stats) == (
            "mlflow: 1,000 of 1,000 spans delivered, 1,200 rewards waiting, 3 rewards lost (refused 2, queue_full 1)"
        )
        assert stats.lost == 0

    def test_a_provider_that_exports_by_itself(self):
        """If the application's provider exports, the line says that its exporters are not counted."""
        otel_rollout.init("project", "experiment", tracer_provider=TracerProvider(shutdown_on_exit=False))
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            pass
        said = "traced by the application's tracer provider, whose exporters are not counted here"
        assert str(otel_rollout.stats()) == said

    def test_the_sum_of_the_losses(self):
        """`lost` adds up over exporters and reasons."""
        exporters = {"a": ExporterStats(lost={"refused": 1, "shutdown": 2}), "b": ExporterStats(lost={"refused": 4})}
        assert Stats(exporters).lost == 7


class TestAtShutdown:
    """The line at the end."""

    @pytest.mark.parametrize(("is_whole", "level"), [(True, logging.INFO), (False, logging.WARNING)])
    def test_one_line(self, caplog, is_whole, level):
        """A shutdown says in one line what was delivered and lost: a warning where something was."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        if not is_whole:
            exporter.export = None
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            pass
        with caplog.at_level(logging.INFO, "otel_rollout"):
            assert otel_rollout.shutdown(10 if is_whole else 0) is is_whole
        [record] = [record for record in caplog.records if "delivered" in record.getMessage()]
        assert record.levelno == level
        assert record.getMessage() == str(otel_rollout.stats())

    def test_the_final_counts_stay(self):
        """After a shutdown `stats` returns the final counts."""
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            pass
        otel_rollout.shutdown(10)
        assert otel_rollout.stats().exporters == {"InMemorySpanExporter": ExporterStats(recorded=1, delivered=1)}


class TestOpenSpans:
    """Spans that have started and not ended."""

    @pytest.fixture(params=["recording", "application's provider"])
    def traced(self, request):
        """Trace, with our own spans and with the SDK's."""
        provider = None if request.param == "recording" else TracerProvider(shutdown_on_exit=False)
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter(), tracer_provider=provider)

    def test_what_runs_is_open(self, traced):
        """A span is open from its start to its end."""
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            inside = otel_rollout.stats().open_spans

        assert (inside, otel_rollout.stats().open_spans) == (1, 0)

    @pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
    def test_a_coroutine_that_nobody_awaits(self, traced):
        """Its span never ends, and is counted for good."""

        async def inner():
            return 1

        @otel_rollout.rollout_trace_op
        def op():
            return inner()

        # The coroutine of `op` has begun nothing: that of `inner` is in it.
        coroutine = op()
        del coroutine
        gc.collect()

        assert otel_rollout.stats().open_spans == 1
        assert otel_rollout.stats().exporters["InMemorySpanExporter"].recorded == 0

    def test_what_the_sampler_leaves_out_is_not_open(self, monkeypatch):
        """A trajectory that is not sampled starts no span."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())

        with otel_rollout.rollout_trace_attr(0, 1, 0):
            assert otel_rollout.stats().open_spans == 0

    def test_the_line_at_the_end_names_them(self, traced, caplog):
        """A shutdown while spans are open is a warning that says how many."""
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            assert otel_rollout.shutdown(60)

        [record] = [record for record in caplog.records if "delivered" in record.getMessage()]
        assert record.levelno == logging.WARNING
        assert record.getMessage() == "InMemorySpanExporter: 0 of 0 spans delivered; open spans: 1"

    def test_many_threads(self):
        """No start and no end is missed, whichever threads they are in."""
        spans = OpenSpans(max_bytes=10**9)

        def run(first):
            for number in range(first, first + 10_000):
                span = types.SimpleNamespace(context=types.SimpleNamespace(span_id=number))
                spans.started(span)
                assert spans.hold(span, 10)
                if number % 2:
                    spans.ended(span)

        threads = [threading.Thread(target=run, args=(10_000 * number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert spans.count == 20_000

    def test_inputs_of_running_ops_are_bounded(self):
        """Beyond the bound, the input of an op that starts is a note with its size, counted as cut; ends make room."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter, max_queue_bytes=100_000)

        @otel_rollout.rollout_trace_op
        def nested(text, depth):
            return nested(text, depth - 1) if depth else None

        nested("x" * 30_000, 4)
        assert otel_rollout.flush(60)
        nested("y" * 30_000, 1)
        assert otel_rollout.flush(60)
        inputs = [span.attributes["input.value"] for span in exporter.spans]
        assert sum("too many inputs of running ops" in text for text in inputs) == 2
        assert sum("y" * 30_000 in text for text in inputs) == 2
        assert otel_rollout.stats().truncated_bytes > 60_000

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_has_none(self, traced):
        """The parent's open spans are not the child's."""
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            child = os.fork()
            if child == 0:
                code = 255
                try:
                    code = otel_rollout.stats().open_spans
                finally:
                    os._exit(code)
            status = os.waitpid(child, 0)[1]

        assert status == 0
