"""Keeps tracing out of the traced program: whose exception it is, locks, threads, signal handlers, logging."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.guard.background_log import BackgroundLogger, write_rest
    from otel_rollout.guard.background_thread import BackgroundThread
    from otel_rollout.guard.clock import monotonic
    from otel_rollout.guard.garbage_collection import is_collecting
    from otel_rollout.guard.log_once import forget_warnings, internal_error, internal_errors
    from otel_rollout.guard.signal_safe_lock import SignalSafeCondition, SignalSafeLock, wait_for
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "background_log": ("BackgroundLogger", "write_rest"),
            "background_thread": ("BackgroundThread",),
            "clock": ("monotonic",),
            "garbage_collection": ("is_collecting",),
            "log_once": ("forget_warnings", "internal_error", "internal_errors"),
            "signal_safe_lock": ("SignalSafeCondition", "SignalSafeLock", "wait_for"),
        },
    )
