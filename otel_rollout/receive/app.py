"""The HTTP side of a receiver: `POST /v1/traces` and `GET /health`.

Answers are in protobuf or JSON, as the request was: https://opentelemetry.io/docs/specs/otlp/#otlphttp-response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import orjson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from otel_rollout.folder.compression import ENCODINGS, BodyTooLargeError
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout.otlp import TooManySpansError
from otel_rollout.receive.access import is_authorized
from otel_rollout.receive.receiver import Receiver, Totals
from otel_rollout.receive.span_batch import SpanBatch

PATH: Final = "/v1/traces"
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MAX_SHOWN: Final = 100
"""The characters of a header in a message."""
SMALLER_BATCHES: Final = (
    "send smaller batches; the Collector does by `send_batch_max_size` of the processor `batch`, "
    "or a lower `min_size` in the exporter's `sending_queue`"
)
# google.rpc.Code
_CODES: Final = {400: 3, 401: 16, 413: 3, 415: 3, 429: 8, 500: 13, 503: 14}


class _PressureError(Exception):
    """More bytes wait to be stored than the limit allows."""


def make_app(receiver: Receiver, token: str = "") -> Starlette:
    """Return the application of a receiver.

    Args:
        receiver: The receiver.
        token: The bearer token that requests must have; empty if they need none.
    """

    async def traces(request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        refuse = partial(_refuse, receiver.totals, media_type)
        if not is_authorized(token, request.headers.get("authorization")):
            return refuse(401, "the request has no valid token: Authorization: Bearer …")
        if media_type not in (PROTOBUF, JSON):
            return refuse(415, f"the content type {media_type[:MAX_SHOWN]!r} is neither {PROTOBUF} nor {JSON}")
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            return refuse(415, f"the content encoding {encoding[:MAX_SHOWN]!r} is none of {', '.join(ENCODINGS)}")
        return await _take(receiver, request, encoding, media_type)

    async def health(request: Request) -> Response:
        trouble = receiver.totals.trouble
        status: dict[str, object] = {"status": "the disk fails" if trouble else "ok"}
        # The cause has paths, which are not for everybody.
        if is_authorized(token, request.headers.get("authorization")):
            status["open_traces"] = len(receiver.folder.traces)
            if trouble:
                status["cause"] = trouble
        return JSONResponse(status)

    return Starlette(routes=[Route(PATH, traces, methods=["POST"]), Route("/health", health, methods=["GET"])])


async def _take(receiver: Receiver, request: Request, encoding: str, media_type: str) -> Response:
    """Read a request's body, store its spans, and answer."""
    limits, totals = receiver.limits, receiver.totals
    refuse = partial(_refuse, totals, media_type)
    parts: list[bytes] = []
    try:
        try:
            await asyncio.wait_for(_read(request, receiver, parts), limits.body_seconds)
        except (asyncio.TimeoutError, ClientDisconnect):
            # 408 fits, but the Collector drops what is answered so.
            totals.turned_away += 1
            return _failure(media_type, 503, f"the body did not come within {limits.body_seconds:g} seconds")
        # Once in memory, however long it waits.
        parts[:] = [b"".join(parts)]
        batch = await receiver.store(parts[0], encoding, is_json=media_type == JSON)
    except _PressureError:
        totals.turned_away += 1
        return _failure(media_type, 429, f"{limits.waiting_bytes:,} bytes wait to be stored, which is the limit")
    except BodyTooLargeError as error:
        return refuse(413, str(error))
    except TooManySpansError as error:
        return refuse(413, f"the request has {error}, which is the limit: {SMALLER_BATCHES}")
    except ValueError as error:
        return refuse(400, str(error))
    except OSError as error:
        totals.turned_away += 1
        return _failure(media_type, 503, f"the spans can't be stored now: {error.strerror or error}")
    except Exception:
        internal_error("receiving spans")
        totals.refused_requests += 1
        return _failure(media_type, 500, "an internal error; the receiver's log has it")
    finally:
        receiver.waiting_bytes -= sum(map(len, parts))
    return _success(media_type, batch)


def _refuse(totals: Totals, media_type: str, status: int, message: str) -> Response:
    """Count a request that no repetition helps, and answer it; the log has the first of each status."""
    totals.refused_requests += 1
    warn_once(f"refused {status}", "a request is refused with status %d: %s; later ones are counted", status, message)
    return _failure(media_type, status, message)


async def _read(request: Request, receiver: Receiver, parts: list[bytes]) -> None:
    """Read a request's body into `parts`, or raise if it is too large; the bytes count as waiting with each part."""
    max_bytes = receiver.limits.body_bytes
    too_large = BodyTooLargeError(f"the body has more than {max_bytes:,} bytes, which is the limit")
    if (length := request.headers.get("content-length", "")).isdecimal() and int(length) > max_bytes:
        raise too_large
    left = max_bytes
    async for part in request.stream():
        left -= len(part)
        if left < 0:
            raise too_large
        if receiver.waiting_bytes + len(part) > receiver.limits.waiting_bytes:
            raise _PressureError
        receiver.waiting_bytes += len(part)
        parts.append(part)


def _success(media_type: str, batch: SpanBatch) -> Response:
    """Return the answer to a request whose spans are stored, with those that are refused."""
    message = ExportTraceServiceResponse()
    if batch.refused:
        message.partial_success.rejected_spans = batch.refused
        message.partial_success.error_message = batch.reason
    return _answer(media_type, message)


def _failure(media_type: str, status: int, reason: str) -> Response:
    """Return the answer to a request of which nothing is stored; with 429 and 503 the sender tries again."""
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _answer(media_type, Status(code=_CODES[status], message=reason), status, headers)


def _answer(media_type: str, message: Message, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in the form of the request."""
    is_json = media_type == JSON
    body = orjson.dumps(MessageToDict(message)) if is_json else message.SerializeToString()
    return Response(body, status, headers, media_type=JSON if is_json else PROTOBUF)
