"""Carry a trajectory's context into another process, as an explicit argument: a Ray actor call carries none.

carrier = inject()                         # in the trajectory
worker.score.remote(sample, carrier)

def score(self, sample, carrier):          # in the actor
    with extract(carrier):
        ...                                # ops are children of the span that was current at `inject`

A carrier is a dict of strings: any transport takes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import orjson
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_rollout.guard.log_once import pass_on, warn_once
from otel_rollout.record import runtime
from otel_rollout.record.context import (
    SILENCE,
    Frame,
    attach,
    current_frame,
    get_current,
    in_silence,
    leave,
    with_frame,
)
from otel_rollout.record.trajectory_state import TrajectoryState

__all__ = ["extract", "inject"]

TAGS_KEY: Final = "otel-rollout-tags"
_SILENCED: Final = "otel-rollout-silenced"
_propagator: Final = TraceContextTextMapPropagator()


def inject() -> dict[str, str]:
    """Return a carrier of the current context; empty while tracing is off or outside any span.

    Returns:
        W3C `traceparent` (https://www.w3.org/TR/trace-context/), `tracestate` if there is one, and the trajectory's
        tags as JSON.
    """
    return {} if runtime.pipeline is None else _carrier() or {}


def _carrier() -> dict[str, str]:
    carrier: dict[str, str] = {}
    context = context_api.get_current()
    frame = current_frame(context)
    if frame is SILENCE:
        return {_SILENCED: "true"}
    current = get_current_span(context)
    if not current.get_span_context().is_valid and frame is not None and frame.span is not None:
        context = set_span_in_context(frame.span, context)
    _propagator.inject(carrier, context)
    if frame is not None and frame.trajectory is not None:
        carrier[TAGS_KEY] = orjson.dumps(frame.trajectory.tags).decode()
    return carrier


def extract(carrier: Mapping[str, str] | None) -> AbstractContextManager[None]:
    """Continue the carrier's trajectory: ops inside become children of the span that was current at `inject`.

    Args:
        carrier: A result of `inject`; no-op if it is empty or None, or while tracing is off here.
    """
    if runtime.pipeline is None or not carrier:
        return contextlib.nullcontext()
    return _Extracted(carrier)


class _Extracted(AbstractContextManager[None]):
    def __init__(self, carrier: Mapping[Any, Any]) -> None:
        self._carrier = carrier
        self._inner: Context | None = None

    def __enter__(self) -> None:
        try:
            self._inner = _inside(get_current(), {_text(key): _text(value) for key, value in self._carrier.items()})
            if self._inner is not None:
                self._token = attach(self._inner)
        except BaseException:
            pass_on("reading a carrier")

    def __exit__(self, *exception: object) -> None:
        if self._inner is not None:
            leave(self._token, self._inner)
            self._inner = None


def _text(value: Any) -> str:
    """Return a key or a value of a carrier; transports such as redis return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _inside(current: Context, carrier: dict[str, str]) -> Context | None:
    """Return the context of a carrier's trajectory; None if it names none."""
    if _SILENCED in carrier:
        return in_silence(current)
    span = get_current_span(_propagator.extract(carrier, Context()))
    if not span.get_span_context().is_valid:
        if carrier:
            warn_once("carrier", "extract(): this carrier names no trajectory; what runs inside is traced on its own")
        return None
    trajectory = None
    if TAGS_KEY in carrier:
        try:
            tags = orjson.loads(carrier[TAGS_KEY])
        except ValueError:
            tags = None
        if not isinstance(tags, dict):
            warn_once("carrier's tags", "extract(): the tags in this carrier are no JSON object; spans lack them")
            tags = {}
        trajectory = TrajectoryState(tags)
        # The root span is in the other process; annotations here can't reach it.
        trajectory.root = span
    return with_frame(current, Frame(trajectory, span))
