"""What the tests of the queue share: exporters that are told how to answer, and waiting."""

from __future__ import annotations

import contextlib
import threading
import time

from opentelemetry import context as context_api
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.export import RetryPolicy
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict

QUICK = RetryPolicy(initial_delay=0.001, max_delay=0.002, configuration_delay=0.01)
RETRY = Outcome(Verdict.RETRY, "down")


class Recorder(OutcomeSpanExporter):
    """Takes every span, unless `outcome` says otherwise; each attempt waits for `gate`."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.outcome = lambda spans: DELIVERED
        self.batches = []
        self.attempts = 0
        self.shutdowns = 0
        self.suppressed = []

    def send(self, spans):
        """Answer as `outcome` says."""
        self.attempts += 1
        self.entered.set()
        self.suppressed.append(context_api.get_value(context_api._SUPPRESS_INSTRUMENTATION_KEY))
        self.gate.wait(600)
        outcome = self.outcome(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self.batches.append(list(spans))
        return outcome

    def export(self, spans):
        """Fail: this is not to be called."""
        raise AssertionError("an exporter with send is not asked to export")

    def shutdown(self):
        """Count."""
        self.shutdowns += 1

    @property
    def spans(self):
        """What was taken."""
        return [span for batch in self.batches for span in batch]

    @property
    def names(self):
        """The names of what was taken."""
        return [span.name for span in self.spans]


class Plain(SpanExporter):
    """An exporter of somebody else's, that answers by a rule."""

    def __init__(self, rule):
        self.rule = rule
        self.received = []

    def export(self, spans):
        """Answer by the rule."""
        result = self.rule(spans)
        if result is SpanExportResult.SUCCESS:
            self.received += [span.name for span in spans]
        return result


def until(condition, seconds=60.0):
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.002)


@contextlib.contextmanager
def running(queue):
    """Shut the queue down at the end."""
    try:
        yield queue
    finally:
        queue.shutdown(time.monotonic() + 1.0)
        queue.join()


def is_balanced(stats):
    """Say whether every span is accounted for."""
    return stats.recorded == stats.delivered + stats.queued + stats.spooled + sum(stats.lost.values())


def block(queue, exporter, span):
    """Have the exporter hang on one span, so that everything after it stays queued."""
    exporter.gate.clear()
    exporter.entered.clear()
    queue.put(span)
    queue.retry_now()
    assert exporter.entered.wait(60)


def refuse_to_start(thread: threading.Thread) -> None:
    """Fail as `Thread.start` does while the interpreter exits."""
    raise RuntimeError("can't start new thread")
