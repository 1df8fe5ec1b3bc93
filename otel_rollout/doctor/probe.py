"""One backend tried: its exporter made, a trajectory sent, and asked for again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.backends import make_exporters
from otel_rollout.doctor.trajectory import make_trajectory
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.batch_sender import BatchReport, send_batch
from otel_rollout.export.exporter import OutcomeSpanExporter, one_attempt_of
from otel_rollout.export.outcome import Outcome, Verdict

__all__ = ["BackendReport", "probe_backend"]

Result = Literal["ok", "failed", "misconfigured", "untried"]

SECONDS_BETWEEN_QUESTIONS: Final = 0.25

_IN_WORDS: Final = {
    Verdict.RETRY: "could not be reached, or is busy",
    Verdict.TOO_LARGE: "says that two small spans are too large",
    Verdict.REFUSED: "refused the spans",
    Verdict.DENIED: "turned us away",
    Verdict.UNEXPLAINED: "failed",
}

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class BackendReport:
    """What came of trying a backend.

    Args:
        name: Its name.
        result: Whether all is well; if not, whether the settings are at fault or the backend; `untried` where it was
            left alone.
        destination: Where it sends, if the exporter can tell.
        sent: What became of the trajectory, in words.
        read_back: What the backend answered when it was asked for it, in words; empty where it wasn't.
        trace_id: The trajectory's trace id; empty where none was taken.
        seconds: How long all of it took.
    """

    name: str
    result: Result
    destination: str | None
    sent: str
    read_back: str = ""
    trace_id: str = ""
    seconds: float = 0.0


class _TimedOutError(Exception):
    """Something took longer than it may."""


def probe_backend(name: str, *, project: str, timeout: float = 60.0, is_offline: bool = False) -> BackendReport:
    """Send a small trajectory to a backend and read it back where the backend allows.

    Args:
        name: The exporter's name.
        project: The project that the trajectory is filed under.
        timeout: Seconds for sending, and as many for reading back.
        is_offline: Only look whether the exporter can be made.
    """
    started = time.monotonic()
    try:
        ((_, exporter),) = make_exporters([name])
    except ConfigurationError as error:
        return BackendReport(name, "misconfigured", None, str(error))
    destination = exporter.destination if isinstance(exporter, OutcomeSpanExporter) else None
    spans = make_trajectory(project)
    context = spans[0].get_span_context()

    def report(result: Result, sent: str, read_back: str = "") -> BackendReport:
        trace_id = f"{context.trace_id:032x}" if read_back and context is not None else ""
        return BackendReport(name, result, destination, sent, read_back, trace_id, time.monotonic() - started)

    try:
        if is_offline:
            return report("untried", "not tried")
        try:
            fault = _within(timeout, lambda: _send(exporter, spans, timeout))
        except _TimedOutError:
            return report("failed", f"no answer within {timeout:g} s")
        if fault:
            return report("failed", fault)
        sent = f"took a trajectory of {len(spans)} spans"
        try:
            is_there, answer = _within(timeout, lambda: _ask(exporter, spans, timeout))
        except _TimedOutError:
            return report("failed", sent, f"no answer within {timeout:g} s")
        except Exception as error:  # noqa: BLE001, RUF100 - whatever went wrong is what is to be shown
            return report("failed", sent, f"could not be read back: {error or type(error).__name__}")
        return report("ok" if is_there else "failed", sent, answer)
    finally:
        with suppress(Exception):
            _within(timeout, exporter.shutdown)


def _send(exporter: SpanExporter, spans: Sequence[ReadableSpan], timeout: float) -> str:
    """Send the spans; return what went wrong, in words, and nothing where all went well."""
    deadline = time.monotonic() + timeout * 0.75
    troubles: list[Outcome] = []

    def wait(seconds: float, outcome: Outcome) -> bool:
        # Settings that are wrong don't mend themselves; a database that is being made is there in a moment.
        if outcome.verdict is Verdict.DENIED or time.monotonic() + seconds > deadline or len(troubles) > 3:
            return False
        time.sleep(seconds)
        return True

    report: BatchReport = send_batch(one_attempt_of(exporter), spans, wait=wait, on_trouble=troubles.append)
    if not report.lost and not report.shrunk:
        side_work = exporter.side_work if isinstance(exporter, OutcomeSpanExporter) else None
        if side_work is None or side_work.flush(max(0.0, deadline - time.monotonic())):
            return ""
        return f"took the trajectory, but not what goes with it: {side_work.last_trouble or 'no answer in time'}"
    last = troubles[-1]
    if last.verdict is Verdict.DELIVERED:
        return f"took the trajectory, but {last.reason}"
    return f"{_IN_WORDS[last.verdict]}: {last.reason}"


def _ask(exporter: SpanExporter, spans: Sequence[ReadableSpan], timeout: float) -> tuple[bool, str]:
    """Ask for the spans until they are there; whether that is well, and the answer in words."""
    if not isinstance(exporter, OutcomeSpanExporter):
        return True, "not read back: this exporter has no way to ask its backend"
    deadline = time.monotonic() + timeout * 0.75
    while True:
        answer = exporter.read_back(spans)
        if answer.found is None:
            return True, f"not read back: {answer.place}"
        if answer.found >= len(spans):
            return True, f"read back whole from {answer.place}"
        if time.monotonic() + SECONDS_BETWEEN_QUESTIONS >= deadline:
            return False, f"{answer.found} of {len(spans)} spans are in {answer.place}"
        time.sleep(SECONDS_BETWEEN_QUESTIONS)


def _within(timeout: float, call: Callable[[], _Answer]) -> _Answer:
    """Return what `call` returns; its thread is left behind where it takes longer."""
    results: list[_Answer] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001, RUF100 - raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="otel-rollout-doctor", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not results:
        raise _TimedOutError
    return results[0]
