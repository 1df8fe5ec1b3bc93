"""mlflow's own spans inside a trajectory: `mlflow.start_span`, `@mlflow.trace` and autologging.

mlflow has a provider and a context of its own: without this its spans don't see ours and become separate traces. mlflow
still writes its spans itself, to its own tracking URI and experiment, which should be the exporter's.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context

from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout.guard.signal_safe_lock import SignalSafeLock

SECONDS_UNTIL_SENT: Final = 60.0
"""mlflow drops a trace's spans when the trace is taken off the list of running ones: not before they are sent."""

_running: Final[deque[tuple[float, int]]] = deque()
_lock = SignalSafeLock()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = SignalSafeLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def nested_mlflow_spans() -> Iterator[None]:
    """Nest mlflow's spans inside the block under the current span, a trajectory or an op of otel-rollout.

    Does nothing if mlflow isn't imported or is older than 3.10, or no span is current. May be used again inside an op,
    whose span is then the parent. An error in here never reaches the block.
    """
    leave = _enter()
    try:
        yield
    finally:
        if leave is not None:
            try:
                leave()
            except Exception:
                internal_error("leaving mlflow's context")


def _enter() -> Callable[[], None] | None:
    """Make the current span the parent of mlflow's spans; return the undo function, None if nothing was done."""
    try:
        current = trace.get_current_span().get_span_context()
        provider: Any = sys.modules.get("mlflow.tracing.provider")
        if provider is None or not current.is_valid or not current.trace_flags.sampled:
            return None
        if not hasattr(provider, "get_context_api"):
            warn_once("mlflow nesting", "this version of mlflow is too old to nest its spans: 3.10 or later is needed")
            return None
        runtime = provider.get_context_api()
        if runtime is not provider.mlflow_runtime_context:
            # mlflow uses the global provider and context, and sees our span by itself.
            return None
        _register(current.trace_id)
        token = runtime.attach(trace.set_span_in_context(trace.NonRecordingSpan(current), Context()))
    except Exception:
        internal_error("nesting mlflow's spans")
        return None
    return lambda: runtime.detach(token)


def _register(trace_id: int) -> None:
    """Put our trace on mlflow's list of running traces: it drops spans of other traces."""
    from mlflow.entities import TraceInfo, TraceState
    from mlflow.tracing.trace_manager import InMemoryTraceManager

    manager = InMemoryTraceManager.get_instance()
    # Before 3.14 mlflow can't be asked for open spans; it drops each trace after an hour.
    has_open_spans = getattr(manager, "has_open_spans", None)
    with _lock:
        now = monotonic()
        while _running and now - _running[0][0] > SECONDS_UNTIL_SENT:
            _, first = _running.popleft()
            if has_open_spans is None:
                continue
            if has_open_spans(first):
                _running.append((now, first))
                break
            manager.pop_trace(first)
        if manager.get_mlflow_trace_id_from_otel_id(trace_id) is not None:
            return
        info = TraceInfo(
            trace_id=f"tr-{trace_id:032x}", trace_location=None, request_time=None, state=TraceState.IN_PROGRESS
        )
        manager.register_trace(trace_id, info, is_remote_trace=True)
        _running.append((now, trace_id))
