"""Files in the forms of the Collector's `file` exporter."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import zstandard
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.otlp import encode_spans

from .recordings import json_line

__all__ = ["FORMS", "write_collector_file"]

FORMS = ("json", "proto", "json zstd", "proto zstd", "json native zstd", "proto native zstd")


def write_collector_file(path: Path, form: str, requests: Iterable[Sequence[ReadableSpan]]) -> None:
    """Write a file.

    Args:
        path: The file.
        form: One of `FORMS`: its format and its compression, by request or of the file as a whole.
        requests: The spans of each request.
    """
    encoded = [json_line(spans) if form.startswith("json") else encode_spans(spans) for spans in requests]
    if form.endswith(("json", "native zstd")) and form.startswith("json"):
        data = b"".join(request + b"\n" for request in encoded)
    else:
        compress = zstandard.ZstdCompressor(write_checksum=True).compress
        framed = map(compress, encoded) if form.endswith("o zstd") or form == "json zstd" else encoded
        data = b"".join(struct.pack(">I", len(request)) + request for request in framed)
    if "native" in form:
        compressor = zstandard.ZstdCompressor().compressobj()
        data = compressor.compress(data) + compressor.flush()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
