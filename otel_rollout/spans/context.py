"""What the standard OpenTelemetry context says: which trajectory we are in, and under which span.

Everything lives in OpenTelemetry's own context, so it goes wherever that goes: into tasks, and into threads that are
started with a copied context.
"""

from __future__ import annotations

from contextvars import Token
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, set_span_in_context

from otel_rollout.safety.garbage_collection import is_collecting
from otel_rollout.spans.ids import SystemIdGenerator
from otel_rollout.spans.trajectory_state import TrajectoryState

__all__ = ["Frame", "attach", "current_frame", "enter", "enter_silence", "leave", "restore"]


class Frame:
    """Where in a trajectory the current code runs.

    Args:
        trajectory: The trajectory, if there is one.
        span: The innermost span of ours; None where nothing is traced.
        is_llm: Whether an LLM op is running: one that it calls is part of the same turn.
    """

    __slots__ = ("is_llm", "span", "trajectory")

    def __init__(self, trajectory: TrajectoryState | None, span: Span | None, is_llm: bool = False) -> None:
        self.trajectory = trajectory
        self.span = span
        self.is_llm = is_llm


SILENCE: Final = Frame(None, None)
"""Inside `trace=False`, or in a trajectory that the sampler left out."""

_FRAME_KEY: Final = context_api.create_key("otel-rollout-frame")
# The key of the current span is private; a context with only that in it shows it.
_SPAN_KEY: Final = next(iter(set_span_in_context(NonRecordingSpan(SpanContext(1, 1, is_remote=False)), Context())))


def current_frame(context: Context) -> Frame | None:
    """Return the frame in `context`; None outside any trajectory and op."""
    return context.get(_FRAME_KEY)  # type: ignore[return-value]  # only `enter` writes this key


def attach(context: Context) -> Token[Context] | None:
    """Make `context` current; the token undoes it in `leave`. None where the collector closes a generator."""
    return None if is_collecting() else context_api.attach(context)


def enter(context: Context, frame: Frame) -> Token[Context] | None:
    """Make `frame` and its span current, as `attach` does."""
    return attach(Context(context | {_SPAN_KEY: frame.span, _FRAME_KEY: frame}))


def enter_silence(context: Context) -> Token[Context] | None:
    """Make a stretch current in which nobody traces: not we, not any other instrumentation.

    A current span that is not sampled stops every tracer with the standard, parent-based sampler; the suppression
    keys stop instrumentations that look at those.
    """
    ids = SystemIdGenerator()
    unsampled = SpanContext(
        ids.generate_trace_id(),
        ids.generate_span_id(),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.DEFAULT),
    )
    values: dict[str, Any] = {
        **context,
        _SPAN_KEY: NonRecordingSpan(unsampled),
        _FRAME_KEY: SILENCE,
        # The first key is for instrumentations of OpenTelemetry, the others for those that keep their own.
        context_api._SUPPRESS_INSTRUMENTATION_KEY: True,  # noqa: SLF001 - opentelemetry-instrumentation imports it too
        "suppress_instrumentation": True,
        "suppress_language_model_instrumentation": True,
    }
    return attach(Context(values))


def leave(token: Token[Context]) -> None:
    """Undo `attach`; nothing where the collector closes a generator.

    Not by `opentelemetry.context.detach`, which logs an error for each coroutine or generator that is closed from
    another context than it ran in: that is how abandoned ones end.
    """
    if is_collecting():
        return
    try:  # noqa: SIM105 - contextlib.suppress costs twice what the rest of this does
        token.var.reset(token)
    except (ValueError, RuntimeError):
        # Of another context, or undone already before a signal handler interrupted the caller.
        pass


def restore(context: Context | None) -> None:
    """Make `context` current again, if an exception of a signal handler came after another was made current.

    Args:
        context: What was current; None where that was not known yet.
    """
    if context is not None and context_api.get_current() is not context:
        attach(context)
