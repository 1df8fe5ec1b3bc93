"""The current trajectory and span, in OpenTelemetry's own context.

They go wherever that context goes: into tasks, and into threads that are started with a copied context.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, set_span_in_context

from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.trajectory_state import TrajectoryState


class Agent:
    """A sub-agent that runs."""

    __slots__ = ("is_compacted", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.is_compacted = False
        """True if its next turn begins a compacted conversation."""


class Frame:
    """The position of the running code in a trajectory.

    Args:
        is_llm: True inside an LLM op: another one that it calls is part of the same turn.
        depth: The number of agents, tools and evaluators that it is inside.
        role: The side that LLM ops inside speak for, `policy` or `user`; None if it is not marked.
    """

    __slots__ = ("agent", "depth", "is_llm", "role", "span", "trajectory")

    def __init__(
        self,
        trajectory: TrajectoryState | None,
        span: Span | None,
        is_llm: bool = False,
        agent: Agent | None = None,
        depth: int = 0,
        role: str | None = None,
    ) -> None:
        self.trajectory = trajectory
        self.span = span
        self.is_llm = is_llm
        self.agent = agent
        self.depth = depth
        self.role = role


SILENCE: Final = Frame(None, None)
"""Inside `trace=False`, or in a trajectory that the sampler dropped."""

_FRAME_KEY: Final = context_api.create_key("otel-rollout-frame")
# The key of the current span is private: read it from a context with only that key.
_SPAN_KEY: Final = next(iter(set_span_in_context(NonRecordingSpan(SpanContext(1, 1, is_remote=False)), Context())))

# The first key is OpenTelemetry's, the others are of instrumentations with keys of their own.
_SUPPRESSING: Final[dict[str, Any]] = {
    getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"): True,
    "suppress_instrumentation": True,
    "suppress_language_model_instrumentation": True,
}
UNTRACED: Final = Context(_SUPPRESSING)
"""The context of a thread of ours: no instrumentation traces the requests of its exporter."""


def _find_variable() -> ContextVar[Context]:
    """Return OpenTelemetry's own variable, which is private: its functions take three calls for each use."""
    token = context_api.attach(context_api.get_current())
    context_api.detach(token)
    return token.var


_variable: Final = _find_variable()
get_current: Final = _variable.get
"""Return the current context."""
attach: Final = _variable.set
"""Make a context current and return the token for `leave`."""


def current_frame(context: Context) -> Frame | None:
    """Return the frame in `context`; None outside trajectories and ops."""
    return context.get(_FRAME_KEY)  # type: ignore[return-value]  # only `with_frame` writes this key


def with_frame(context: Context, frame: Frame) -> Context:
    """Return a context in which `frame` and its span are current."""
    return Context(context | {_SPAN_KEY: frame.span, _FRAME_KEY: frame})


def in_silence(context: Context) -> Context:
    """Return a context in which neither we nor other instrumentations trace.

    A current span that is not sampled stops every tracer with the standard, parent-based sampler; the suppression
    keys stop the instrumentations that read them.
    """
    ids = SystemIdGenerator()
    unsampled = SpanContext(
        ids.generate_trace_id(), ids.generate_span_id(), is_remote=False, trace_flags=TraceFlags(TraceFlags.DEFAULT)
    )
    values: dict[str, Any] = {
        **context,
        _SPAN_KEY: NonRecordingSpan(unsampled),
        _FRAME_KEY: SILENCE,
        **_SUPPRESSING,
    }
    return Context(values)


def is_inside(current: Context, inner: Context | None) -> bool:
    """Return True if `current` is a context of ours, or one that the program attached in it."""
    if inner is None or current is inner:
        return current is inner
    frame = current_frame(inner)
    return frame is not SILENCE and current_frame(current) is frame


def leave(token: Token[Context], inner: Context) -> None:
    """Leave a context of ours: what the program has attached in it and not detached stays, as it does untraced.

    `opentelemetry.context.detach` would log an error for each abandoned coroutine or generator: these are closed from
    another context than they ran in.
    """
    current = get_current()
    leave_variable(token)
    if current is inner or current.get(_FRAME_KEY) is not inner[_FRAME_KEY]:
        return
    outer = get_current()
    if outer is current:
        return
    ours = {key for key, value in inner.items() if outer.get(key) is not value and current.get(key) is value}
    kept = {key: value for key, value in current.items() if key not in ours}
    attach(Context({**outer, **kept}))


def leave_variable(token: Token[Any]) -> None:
    """Undo the `set` of a context variable, unless it was another context's, or is undone already."""
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        return
