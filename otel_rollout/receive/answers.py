"""The answers of OTLP over HTTP, in protobuf or JSON as the request was.

Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp-response.
"""

from __future__ import annotations

from typing import Final

import orjson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from otel_rollout.receive.media_types import JSON, PROTOBUF

__all__ = ["failure", "success"]

RETRY_AFTER_SECONDS: Final = 1
_RETRYABLE: Final = (429, 503)
# google.rpc.Code
_CODES: Final = {400: 3, 401: 16, 413: 3, 415: 3, 429: 8, 503: 14}
_INTERNAL: Final = 13


def success(media_type: str, refused: int = 0, reason: str = "") -> Response:
    """Return the answer to a request whose spans are stored.

    Args:
        media_type: The request's media type.
        refused: The number of spans that are not stored, and would not be if they came again.
        reason: The reason.
    """
    if media_type == JSON:
        message = {"partialSuccess": {"rejectedSpans": str(refused), "errorMessage": reason}} if refused else {}
        return Response(orjson.dumps(message), media_type=JSON)
    response = ExportTraceServiceResponse()
    if refused:
        response.partial_success.rejected_spans = refused
        response.partial_success.error_message = reason
    return Response(response.SerializeToString(), media_type=PROTOBUF)


def failure(media_type: str, status: int, reason: str) -> Response:
    """Return the answer to a request of which nothing is stored.

    Args:
        media_type: The request's media type.
        status: The HTTP status; with 429 and 503 the sender tries again.
        reason: A sentence.
    """
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status in _RETRYABLE else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    code = _CODES.get(status, _INTERNAL)
    if media_type == JSON:
        body = orjson.dumps({"code": code, "message": reason})
        return Response(body, status, headers, media_type=JSON)
    message = Status(code=code, message=reason)
    return Response(message.SerializeToString(), status, headers, media_type=PROTOBUF)
