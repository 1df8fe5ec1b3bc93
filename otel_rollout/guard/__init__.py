"""Keeps tracing out of the traced program: whose exception it is, the lock, threads, the log."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.guard.clock import monotonic
    from otel_rollout.guard.log_once import forget_warnings, internal_errors
    from otel_rollout.guard.provenance import is_programs
    from otel_rollout.guard.signal_safe_lock import SignalSafeLock
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "clock": ("monotonic",),
            "log_once": ("forget_warnings", "internal_errors"),
            "provenance": ("is_programs",),
            "signal_safe_lock": ("SignalSafeLock",),
        },
    )
