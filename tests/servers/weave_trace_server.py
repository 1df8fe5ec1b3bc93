"""W&B's own trace server behind HTTP, run by the interpreter of the `weave` environment (see tests/servers/weave.txt).

    python weave_trace_server.py --port 8765 [--store memory|clickhouse]

Request models, validation, references, SQL, migrations and the OTLP translation are W&B's. W&B's router, accounts and
projects are not public, so those are made here: a key is 40 characters, a project exists once GraphQL made it, a body
may have 32 MiB. `/_faults` takes answers to give instead, `/_requests` tells what was asked.
"""

# ruff: noqa: D102, E402 - the methods are W&B's own; a module must be put in place before weave is imported
from __future__ import annotations

import argparse
import atexit
import base64
import gzip
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import zlib
from collections import Counter
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

# The wheel lacks this package, which only the playground's code uses.
_package = "weave.trace_server.model_providers"
_missing = types.ModuleType(f"{_package}.model_providers")
_missing.VERTEX_PROVIDER_NAMES, _missing.LLMModelProviderInfo = set(), dict
_missing.read_model_to_provider_info_map = dict
sys.modules[_package], sys.modules[_missing.__name__] = types.ModuleType(_package), _missing

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from weave.shared import errors
from weave.shared import trace_server_interface as interface
from weave.trace_server.external_to_internal_trace_server_adapter import ExternalTraceServer, IdConverter

MAX_BODY = 32 * 1024 * 1024
USER = "tester"

ROUTES = {
    "/call/read": (interface.CallReadReq, "call_read"),
    "/call/start": (interface.CallStartReq, "call_start"),
    "/call/end": (interface.CallEndReq, "call_end"),
    "/call/update": (interface.CallUpdateReq, "call_update"),
    "/call/upsert_batch": (interface.CallCreateBatchReq, "call_start_batch"),
    "/v2/{entity}/{project}/call/start": (interface.CallStartV2Req, "call_start_v2"),
    "/v2/{entity}/{project}/call/end": (interface.CallEndV2Req, "call_end_v2"),
    "/v2/{entity}/{project}/calls/complete": (interface.CallsUpsertCompleteReq, "calls_complete"),
    "/calls/query_stats": (interface.CallsQueryStatsReq, "calls_query_stats"),
    "/obj/create": (interface.ObjCreateReq, "obj_create"),
    "/obj/read": (interface.ObjReadReq, "obj_read"),
    "/objs/query": (interface.ObjQueryReq, "objs_query"),
    "/table/create": (interface.TableCreateReq, "table_create"),
    "/refs/read_batch": (interface.RefsReadBatchReq, "refs_read_batch"),
    "/feedback/create": (interface.FeedbackCreateReq, "feedback_create"),
    "/feedback/batch/create": (interface.FeedbackCreateBatchReq, "feedback_create_batch"),
    "/feedback/query": (interface.FeedbackQueryReq, "feedback_query"),
    "/feedback/purge": (interface.FeedbackPurgeReq, "feedback_purge"),
    "/project/stats": (interface.ProjectStatsReq, "project_stats"),
}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


class Ids(IdConverter):
    """Public ids to inner ones and back, in the form that the stored rows are validated for."""

    def ext_to_int_project_id(self, project_id: str) -> str:
        if project_id.count("/") != 1:
            raise errors.InvalidIdFormat(f"{project_id!r} is not entity/project")
        return encoded(project_id)

    def int_to_ext_project_id(self, project_id: str) -> str:
        return decoded(project_id)

    def ext_to_int_run_id(self, run_id: str) -> str:
        project_id, _, run = run_id.rpartition("/")
        return f"{self.ext_to_int_project_id(project_id)}:{run}"

    def int_to_ext_run_id(self, run_id: str) -> str:
        project_id, _, run = run_id.partition(":")
        return f"{decoded(project_id)}/{run}"

    def ext_to_int_user_id(self, user_id: str) -> str:
        return encoded(user_id)

    def int_to_ext_user_id(self, user_id: str) -> str:
        return decoded(user_id)


def memory_store() -> Any:
    from weave.trace_server.clickhouse.schema_converters import complete_call_to_ch_insertable
    from weave.trace_server.in_memory_trace_server import InMemoryTraceServer

    class Validating(InMemoryTraceServer):
        """Checks rows as production does: the in-memory server itself takes any id, name and step."""

        def calls_complete(self, request: Any) -> Any:
            for call in request.batch:
                complete_call_to_ch_insertable(call, 0)
            return super().calls_complete(request)

    return Validating()


def clickhouse_store() -> Any:
    import clickhouse_connect
    import sqlparse.engine.grouping
    from weave.trace_server.clickhouse_trace_server_batched import ClickHouseTraceServer

    # A newer sqlparse refuses the migration that seeds the prices of models.
    sqlparse.engine.grouping.MAX_GROUPING_TOKENS = None
    folder = tempfile.mkdtemp(prefix="weave-clickhouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    class Embedded(ClickHouseTraceServer):
        """The production server on ClickHouse's engine inside this process."""

        def _mint_client(self, send_receive_timeout: int | None = None) -> Any:
            client = clickhouse_connect.get_client(interface="chdb", path=folder)
            self._ensure_database(client)
            client.database = self._database
            return client

    store = Embedded(host="unused", database="weave")
    store._run_migrations()
    return store


class Control:
    """What tests set and read: faults to answer with, requests that came, projects, how often each call was stored."""

    def __init__(self) -> None:
        self.faults: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.projects: set[str] = set()
        self.inserts: Counter[str] = Counter()

    def next_fault(self, path: str) -> dict[str, Any] | None:
        for index, fault in enumerate(self.faults):
            if fault["path"] in path:
                return self.faults.pop(index)
        return None


def is_known(request: Request) -> bool:
    key = request.headers.get("wandb-api-key")
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        user, _, key = decoded(credentials).partition(":")
        if user != "api":
            return False
    return len(key or "") == 40


def error_answer(error: Exception) -> Response:
    if isinstance(error, ValidationError):
        return JSONResponse({"detail": json.loads(error.json(include_url=False, include_input=False))}, 422)
    known = errors.ErrorRegistry().handle_exception(error)
    if known.status_code == 500:
        traceback.print_exception(error)
    return JSONResponse(known.message, known.status_code)


async def body_of(request: Request) -> bytes:
    body = await request.body()
    encoding = request.headers.get("content-encoding")
    return gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body) if encoding == "deflate" else body


def set_user(request: Any) -> None:
    """Set the user on a request's records, as W&B's router does from the key."""
    found = [request, *getattr(request, "batch", []), getattr(request, "start", None), getattr(request, "obj", None)]
    for item in found:
        inner = getattr(getattr(item, "req", item), "start", getattr(item, "req", item))
        if "wb_user_id" in getattr(type(inner), "model_fields", {}):
            inner.wb_user_id = USER


def make_app(store: Any) -> FastAPI:
    server, app, lock, control = ExternalTraceServer(store, Ids()), FastAPI(), threading.RLock(), Control()

    @app.middleware("http")
    async def gate(request: Request, call_next: Any) -> Response:
        path = request.url.path
        if path.startswith("/_"):
            return await call_next(request)
        size = int(request.headers.get("content-length") or 0)
        entry = {"path": path, "bytes": size, "time": time.time(), "agent": request.headers.get("user-agent")}
        control.requests.append(entry)
        fault = control.next_fault(path)
        if fault and not fault.get("after_commit"):
            body = fault.get("body", '{"reason": "a fault of the test"}')
            answer = Response(body, fault["status"], fault.get("headers"))
        elif path != "/server_info" and not is_known(request):
            answer = JSONResponse({"reason": "invalid API key"}, 401)
        elif size > MAX_BODY:
            answer = JSONResponse({"reason": "Request too large"}, 413)
        else:
            answer = await call_next(request)
            if fault:
                answer = JSONResponse({"reason": "a fault of the test, after commit"}, fault["status"])
        entry["status"] = answer.status_code
        return answer

    def project_is_missing(request: Any) -> bool:
        records = [request, *getattr(request, "batch", []), getattr(request, "obj", None)]
        named = {project for item in records if (project := getattr(item, "project_id", None))}
        return not named <= control.projects

    def add_route(path: str, model: Any, method: str) -> None:
        def work(body: bytes) -> Response:
            request = model.model_validate_json(body)
            if project_is_missing(request):
                return JSONResponse({"reason": "project not found"}, 404)
            set_user(request)
            with lock:
                answer = getattr(server, method)(request).model_dump_json()
                if method == "calls_complete":
                    control.inserts.update(call.id for call in request.batch)
            return Response(answer, media_type="application/json")

        async def handle(request: Request) -> Response:
            try:
                return await run_in_threadpool(work, await body_of(request))
            except Exception as error:
                return error_answer(error)

        app.post(path)(handle)

    for path, (model, method) in ROUTES.items():
        add_route(path, model, method)

    @app.get("/server_info")
    def server_info() -> dict[str, str]:
        return {"min_required_weave_python_version": "0.0.1", "trace_server_version": "0.0.99"}

    @app.post("/calls/stream_query")
    async def stream_query(request: Request) -> Response:
        try:
            query = interface.CallsQueryReq.model_validate_json(await body_of(request))
            if project_is_missing(query):
                return JSONResponse({"reason": "project not found"}, 404)
            with lock:
                calls = list(server.calls_query_stream(query))
        except Exception as error:
            return error_answer(error)
        return StreamingResponse((call.model_dump_json() + "\n" for call in calls), media_type="application/jsonl")

    @app.post("/file/create")
    async def file_create(request: Request) -> Response:
        try:
            form = await request.form()
            upload = form["file"]
            wanted = interface.FileCreateReq(
                project_id=form["project_id"], name=upload.filename, content=await upload.read()
            )
            with lock:
                return Response(server.file_create(wanted).model_dump_json(), media_type="application/json")
        except Exception as error:
            return error_answer(error)

    @app.post("/file/content")
    async def file_content(request: Request) -> Response:
        try:
            wanted = interface.FileContentReadReq.model_validate_json(await body_of(request))
            with lock:
                return Response(server.file_content_read(wanted).content)
        except Exception as error:
            return error_answer(error)

    @app.post("/otel/v1/traces")
    async def otlp(request: Request) -> Response:
        try:
            message = ExportTraceServiceRequest.FromString(await body_of(request))
            processed, project_id = [], ""
            for spans in message.resource_spans:
                resource = {pair.key: pair.value.string_value for pair in spans.resource.attributes}
                project_id = request.headers.get("project_id") or "/".join(
                    (resource.get("wandb.entity", ""), resource.get("wandb.project", ""))
                )
                if project_id not in control.projects:
                    return JSONResponse({"reason": f"project {project_id!r} not found"}, 404)
                entity, project = project_id.split("/")
                processed.append(
                    interface.ProcessedResourceSpans(
                        entity=entity, project=project, run_id=resource.get("wandb.run_id"), resource_spans=spans
                    )
                )
            wanted = interface.OTelExportReq(processed_spans=processed, project_id=project_id, wb_user_id=USER)
            with lock:
                result = server.otel_export(wanted)
            answer = ExportTraceServiceResponse()
            if result.partial_success:
                answer.partial_success.rejected_spans = result.partial_success.rejected_spans
                answer.partial_success.error_message = result.partial_success.error_message
            return Response(answer.SerializeToString(), media_type="application/x-protobuf")
        except Exception as error:
            return error_answer(error)

    @app.post("/graphql")
    async def graphql(request: Request) -> dict[str, Any]:
        asked = await request.json()
        query, variables = asked["query"], asked.get("variables") or {}
        name, entity = variables.get("name"), variables.get("entity") or variables.get("entityName")
        if "upsertModel" in query:
            control.projects.add(f"{entity}/{name}")
            return {"data": {"upsertModel": {"model": {"name": name, "description": None}}}}
        if "viewer" in query:
            return {"data": {"viewer": {"username": USER, "defaultEntity": {"name": "default-team"}}}}
        return {"data": {"project": {"name": name} if f"{entity}/{name}" in control.projects else None}}

    @app.post("/_faults")
    async def faults(request: Request) -> dict[str, int]:
        control.faults = await request.json()
        return {"faults": len(control.faults)}

    @app.post("/_remove_project")
    async def remove_project(request: Request) -> dict[str, int]:
        control.projects.discard(await request.json())
        return {"projects": len(control.projects)}

    @app.post("/_requests")
    async def requests() -> list[dict[str, Any]]:
        taken, control.requests = control.requests, []
        return taken

    @app.post("/_inserts")
    async def inserts() -> dict[str, int]:
        return control.inserts

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", choices=("memory", "clickhouse"), default="memory")
    arguments = parser.parse_args()
    # uvicorn raises the signal again when it has ended; an exit removes the store, death by signal would not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    store = memory_store() if arguments.store == "memory" else clickhouse_store()
    uvicorn.run(make_app(store), host="127.0.0.1", port=arguments.port, log_level="warning")
