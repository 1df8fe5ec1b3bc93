"""Receives OTLP over HTTP into a trace folder."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.receive.access import is_authorized, read_token
    from otel_rollout.receive.adoption import adopt, open_folder
    from otel_rollout.receive.app import make_app
    from otel_rollout.receive.importing import import_files
    from otel_rollout.receive.receiver import Limits, Receiver
    from otel_rollout.receive.span_batch import SpanBatch
    from otel_rollout.receive.status_line import StatusLine
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "access": ("read_token", "is_authorized"),
            "app": ("make_app",),
            "importing": ("import_files",),
            "receiver": ("Receiver", "Limits"),
            "status_line": ("StatusLine",),
            "adoption": ("adopt", "open_folder"),
            "span_batch": ("SpanBatch",),
        },
    )
