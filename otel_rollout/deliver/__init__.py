"""The way from an ended span to an exporter: an outbox for each, and its part on disk."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.deliver.span_outbox import QueueLimits, SpanOutbox
    from otel_rollout.deliver.spool import Spool, open_spool
    from otel_rollout.deliver.spooled_outbox import SpooledOutbox
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "span_outbox": ("QueueLimits", "SpanOutbox"),
            "spool": ("Spool", "open_spool"),
            "spooled_outbox": ("SpooledOutbox",),
        },
    )
