"""The `otlp` exporters, over HTTP and gRPC."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout_otlp.grpc_exporter import OtlpGrpcSpanExporter
    from otel_rollout_otlp.http_exporter import OtlpHttpSpanExporter
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__, {"grpc_exporter": ("OtlpGrpcSpanExporter",), "http_exporter": ("OtlpHttpSpanExporter",)}
    )

__all__ = ["OtlpGrpcSpanExporter", "OtlpHttpSpanExporter"]
