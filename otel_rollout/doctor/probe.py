"""Try one backend: make its exporter, send a trajectory, ask for it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar, runtime_checkable

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import backends, semconv
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.batch_sender import send_batch
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack, destination_of, one_attempt_of
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.clock import monotonic
from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.provider import SCOPE, make_resource

Result = Literal["ok", "failed", "misconfigured", "untried"]

SECONDS_BETWEEN_QUESTIONS: Final = 0.25

_IN_WORDS: Final = {
    Verdict.RETRY: "not delivered",
    Verdict.TOO_LARGE: "says that two small spans are too large",
    Verdict.REFUSED: "refused the spans",
    Verdict.CONFIGURATION_ERROR: "auth or configuration error",
    Verdict.UNEXPLAINED: "failed",
}

_Answer = TypeVar("_Answer")
EXPERIMENT: Final = "doctor"
_SECOND: Final = 1_000_000_000
_ON_BOTH: Final[dict[str, Any]] = {
    semconv.SAMPLE_INDEX: 0,
    semconv.ROLLOUT_N: 0,
    semconv.VALIDATE: False,
    semconv.EXPERIMENT_NAME: EXPERIMENT,
    semconv.INPUT_VALUE: '"Does this arrive?"',
    semconv.INPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
    semconv.OUTPUT_VALUE: '"It does."',
    semconv.OUTPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
}


@runtime_checkable
class ReadableBackend(Protocol):
    """An exporter that can ask its backend."""

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Ask the backend once which of `spans`, all of one trace, it has; may raise any error."""


@runtime_checkable
class TrialBackend(Protocol):
    """An exporter of which a trial would stay where it is in the way."""

    def for_trial(self) -> SpanExporter:
        """Return an exporter to the same place, which removes what it has written when it is shut down."""


@dataclass(frozen=True)
class BackendReport:
    """The result of trying a backend.

    Args:
        name: Its name.
        result: `misconfigured` if a setting is at fault, `failed` if the backend is; `untried` if it was left alone.
        destination: The exporter's destination, if it has one.
        sent: The outcome of sending the trajectory, in words.
        read_back: The backend's answer to the question for it, in words; empty if it wasn't asked.
        trace_id: The trajectory's trace id; empty if none was delivered.
        seconds: The time of all of it.
    """

    name: str
    result: Result
    destination: str | None
    sent: str
    read_back: str = ""
    trace_id: str = ""
    seconds: float = 0.0


def probe_backend(name: str, *, project: str, timeout: float = 60.0, is_offline: bool = False) -> BackendReport:
    """Send a small trajectory to a backend and read it back where the backend allows.

    Args:
        name: The exporter's name.
        project: The project that the trajectory is filed under.
        timeout: Seconds for sending, and as many for reading back.
        is_offline: Only make the exporter; send nothing.
    """
    started = monotonic()
    try:
        ((_, exporter),) = backends.make_exporters([name])
    except ConfigurationError as error:
        return BackendReport(name, "misconfigured", None, str(error))
    if isinstance(exporter, OutcomeSpanExporter) and isinstance(exporter, TrialBackend):
        exporter = exporter.for_trial()
    spans = make_trajectory(project)
    context = spans[0].get_span_context()

    def report(result: Result, sent: str, read_back: str = "") -> BackendReport:
        trace_id = f"{context.trace_id:032x}" if read_back and context is not None else ""
        seconds = monotonic() - started
        return BackendReport(name, result, destination_of(exporter), sent, read_back, trace_id, seconds)

    try:
        if is_offline:
            return report("untried", "not tried")
        try:
            fault = _within(timeout, lambda: _send(exporter, spans, timeout))
        except futures.TimeoutError:
            return report("failed", f"no answer within {timeout:g} s")
        if fault:
            return report("failed", fault)
        sent = f"took a trajectory of {len(spans)} spans"
        try:
            is_there, answer = _within(timeout, lambda: _ask(exporter, spans, timeout))
        except futures.TimeoutError:
            return report("failed", sent, f"no answer within {timeout:g} s")
        return report("ok" if is_there else "failed", sent, answer)
    finally:
        with suppress(Exception):
            _within(timeout, exporter.shutdown)


def _send(exporter: SpanExporter, spans: Sequence[ReadableSpan], timeout: float) -> str:
    """Send the spans; return the fault in words, empty if all went well."""
    deadline = monotonic() + timeout * 0.75
    troubles: list[Outcome] = []

    def wait(seconds: float, outcome: Outcome) -> bool:
        # Wrong settings stay wrong; a database that is being made is there in a moment.
        if outcome.verdict is Verdict.CONFIGURATION_ERROR or monotonic() + seconds > deadline or len(troubles) > 3:
            return False
        time.sleep(seconds)
        return True

    report = send_batch(one_attempt_of(exporter), spans, wait=wait, on_trouble=troubles.append)
    if report.delivered == len(spans) and not report.shrunk:
        follow_up_requests = exporter.follow_up_requests if isinstance(exporter, OutcomeSpanExporter) else None
        if follow_up_requests is None or follow_up_requests.flush(max(0.0, deadline - monotonic())):
            return ""
        return f"took the trajectory, but not what goes with it: {follow_up_requests.last_error or 'no answer in time'}"
    last = troubles[-1]
    if last.verdict is Verdict.DELIVERED:
        return f"took the trajectory, but {last.reason}"
    return f"{_IN_WORDS[last.verdict]}: {last.reason}"


def _ask(exporter: SpanExporter, spans: Sequence[ReadableSpan], timeout: float) -> tuple[bool, str]:
    """Ask for the spans until they are there; return if that is well, and the answer in words."""
    if not (isinstance(exporter, OutcomeSpanExporter) and isinstance(exporter, ReadableBackend)):
        return True, "not read back: this exporter has no way to ask its backend"
    deadline = monotonic() + timeout * 0.75
    while True:
        try:
            answer = exporter.read_back(spans)
        except Exception as error:
            return False, f"could not be read back: {error or type(error).__name__}"
        if answer.found is None:
            return True, f"not read back: {answer.place}"
        if answer.found >= len(spans):
            return True, f"read back whole from {answer.place}"
        if monotonic() + SECONDS_BETWEEN_QUESTIONS >= deadline:
            return False, f"{answer.found} of {len(spans)} spans are in {answer.place}"
        time.sleep(SECONDS_BETWEEN_QUESTIONS)


def _within(timeout: float, call: Callable[[], _Answer]) -> _Answer:
    """Return the value of `call`, or raise TimeoutError and leave its thread running."""
    answer: futures.Future[_Answer] = futures.Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="otel-rollout-doctor", daemon=True).start()
    return answer.result(timeout)


def make_trajectory(project: str, run_id: str | None = None) -> list[ReadableSpan]:
    """Return an op and its root, as the tracer would hand them over; without a step, so that no step counts them.

    Args:
        project: Its project, whatever the environment names.
        run_id: Its run; a fresh id if None.
    """
    ids = SystemIdGenerator()
    trace_id, root_id = ids.generate_trace_id(), ids.generate_span_id()
    named = {semconv.PROJECT_NAME: project, semconv.SERVICE_NAME: project, semconv.OPENINFERENCE_PROJECT: project}
    resource = make_resource(project, run_id).merge(Resource(named))
    now = time.time_ns()

    def span(name: str, span_id: int, parent: int | None, start: int, attributes: dict[str, Any]) -> ReadableSpan:
        return ReadableSpan(
            name,
            SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
            parent=None if parent is None else SpanContext(trace_id, parent, is_remote=False),
            resource=resource,
            attributes={**_ON_BOTH, **attributes},
            start_time=start,
            end_time=now,
            instrumentation_scope=SCOPE,
        )

    op = {semconv.SPAN_KIND: "LLM", semconv.OPERATION_NAME: "chat"}
    root = {
        semconv.SPAN_KIND: "AGENT",
        semconv.OPERATION_NAME: "invoke_agent",
        semconv.STATUS: "completed",
        semconv.TURNS: 1,
        semconv.SESSION_ID: f"{EXPERIMENT}/0",
        semconv.CONVERSATION_ID: f"{trace_id:032x}",
        semconv.METADATA: '{"experiment_name":"doctor"}',
    }
    return [
        span("generate", ids.generate_span_id(), root_id, now - _SECOND // 2, op),
        span("otel-rollout doctor", root_id, None, now - _SECOND, root),
    ]
