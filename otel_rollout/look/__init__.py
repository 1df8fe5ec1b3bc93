"""Pages, findings, trees and tables for people to look at."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.look.perfetto import trace_events
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(__name__, {"perfetto": ("trace_events",)})
