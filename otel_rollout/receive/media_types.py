"""The content types of OTLP over HTTP."""

from __future__ import annotations

from typing import Final

__all__ = ["JSON", "PROTOBUF"]

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
