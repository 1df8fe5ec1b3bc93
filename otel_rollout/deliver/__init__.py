"""The way from an ended span to an exporter: queue, batches, spool, accounting."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.deliver.batch import QueueLimits
    from otel_rollout.deliver.exporter_queue import ExporterQueue
    from otel_rollout.deliver.spool import open_spool
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "exporter_queue": ("ExporterQueue",),
            "batch": ("QueueLimits",),
            "spool": ("open_spool",),
        },
    )
