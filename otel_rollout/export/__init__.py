"""The parts of an exporter: base class, outcome, retries, HTTP client, OTLP."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.export.batch_sender import BatchReport, send_batch, wait_until
    from otel_rollout.export.connection_errors import describe_grpc_error
    from otel_rollout.export.genai_additions import additions_of
    from otel_rollout.export.lane import RetryPolicy
    from otel_rollout.export.plain_values import plain_value
    from otel_rollout.export.recent import RecentDict
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "lane": ("RetryPolicy",),
            "batch_sender": ("BatchReport", "send_batch", "wait_until"),
            "connection_errors": ("describe_grpc_error",),
            "plain_values": ("plain_value",),
            "recent": ("RecentDict",),
            "genai_additions": ("additions_of",),
        },
    )
