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
from contextvars import Token
from typing import Final

import orjson
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_rollout.record import runtime
from otel_rollout.record.context import SILENCE, Frame, current_frame, enter, enter_silence, leave, restore
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
    def __init__(self, carrier: Mapping[str, str]) -> None:
        self._carrier = carrier
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        context = context_api.get_current()
        try:
            self._token = self._enter(context)
        except BaseException:
            restore(context)
            raise

    def _enter(self, current: Context) -> Token[Context] | None:
        if _SILENCED in self._carrier:
            return enter_silence(current)
        span = get_current_span(_propagator.extract(self._carrier, Context()))
        if not span.get_span_context().is_valid:
            return None
        trajectory = None
        if TAGS_KEY in self._carrier:
            trajectory = TrajectoryState(orjson.loads(self._carrier[TAGS_KEY]))
            # The root span is in the other process; annotations here can't reach it.
            trajectory.root = span
        return enter(current, Frame(trajectory, span))

    def __exit__(self, *exception: object) -> None:
        try:
            self._leave()
        except BaseException:
            # Interrupted, by a signal handler for example: it may be repeated.
            self._leave()
            raise

    def _leave(self) -> None:
        if self._token is not None:
            leave(self._token)
            self._token = None
