"""Finished spans of made-up trajectories, with ids and times that follow from their tags, and lines of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import zstandard
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import semconv
from otel_rollout.folder import bundle_folder, index_path, seal_of
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import encode_spans, json_of_request

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
RUN_ID = "run"
SCOPE = InstrumentationScope("otel_rollout", "0")


def trace_id_of(step: Any, sample: Any, rollout: Any, *, validate: bool = False, of: str | None = RUN_ID) -> int:
    """Return a trace id that is the same for the same tags of the same run."""
    name = f"{step}/{sample}/{rollout}/{validate}" + ("" if of == RUN_ID else f"/{of}")
    return uuid.uuid5(uuid.NAMESPACE_URL, name).int


@cache
def resource_of(run_id: str | None = RUN_ID) -> Resource:
    """Return the resource of a run's process."""
    run = {} if run_id is None else {semconv.RUN_ID: run_id}
    return Resource({semconv.SERVICE_NAME: "p", semconv.PROJECT_NAME: "project", **run})


def make_span(
    name: str,
    number: int,
    trace_id: int,
    *,
    parent: int | SpanContext | None = 1,
    attributes: dict[str, Any] | None = None,
    error: str | None = None,
    seconds: tuple[float, float] = (0.0, 1.0),
    events: tuple[Event, ...] = (),
    run_id: str | None = RUN_ID,
) -> ReadableSpan:
    """Return one finished span."""

    def context(span_id: int) -> SpanContext:
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        name,
        context=context(number),
        parent=context(parent) if isinstance(parent, int) else parent,
        resource=resource_of(run_id),
        attributes=attributes,
        events=events,
        status=Status(StatusCode.ERROR, error) if error else Status(),
        start_time=START + int(seconds[0] * SECOND),
        end_time=START + int(seconds[1] * SECOND),
        instrumentation_scope=SCOPE,
    )


def make_trajectory(
    step: Any = 1,
    sample: Any = 0,
    rollout: Any = 0,
    *,
    reward: float | None = 1.0,
    status: str = "completed",
    validate: bool = False,
    experiment: str = "exp",
    payload: str = '"hello"',
    run_id: str | None = RUN_ID,
    of: str | None = None,
    start: float = 0.0,
    **annotations: Any,
) -> list[ReadableSpan]:
    """Return the spans of a trajectory with an LLM op and a tool, its root last.

    Those of another run, or `of` another process, have other ids.
    """
    trace_id = trace_id_of(step, sample, rollout, validate=validate, of=of or run_id)
    values = (step, sample, rollout, validate, experiment)
    tags = {key: value for key, value in zip(semconv.TAGS, values, strict=True) if value is not None}
    payloads = {semconv.INPUT_VALUE: payload, semconv.OUTPUT_VALUE: payload}
    root = {
        semconv.SPAN_KIND: "AGENT",
        **tags,
        **payloads,
        semconv.STATUS: status,
        semconv.TURNS: 1,
        semconv.INPUT_TOKENS: 90,
        semconv.OUTPUT_TOKENS: 2,
        **({} if reward is None else {semconv.REWARD: reward}),
        **annotations,
    }

    def span(name: str, number: int, end: float, attributes: dict[str, Any], begin: float = 0.0, **more: Any) -> Any:
        seconds = (start + begin, start + end)
        return make_span(name, number, trace_id, attributes=attributes, seconds=seconds, run_id=run_id, **more)

    error = "failed" if status in ("error", "cancelled") else None
    return [
        span("generate", 2, 0.6, {semconv.SPAN_KIND: "LLM", **tags, **payloads}),
        span("look_up", 3, 0.9, {semconv.SPAN_KIND: "TOOL", **tags, **payloads}, 0.6),
        span("rollout", 1, 1.0, root, parent=None, error=error),
    ]


def write_folder(folder: Path, *batches: Sequence[ReadableSpan]) -> Path:
    """Write batches as one process that ends does, and return the folder."""
    writer = FolderWriter(folder)
    for spans in batches:
        writer.write(spans)
    writer.close()
    return folder


def frame(spans: list[ReadableSpan]) -> bytes:
    """Return spans as one frame of a trace file."""
    return zstandard.ZstdCompressor().compress(encode_spans(spans))


def write_frames(path: Path, *trajectories: list[ReadableSpan]) -> None:
    """Append frames to a file that has no index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(map(frame, trajectories))


def open_indexes(folder: Path) -> list[Path]:
    """Replace the closed indexes in a folder by open ones, as a killed process leaves them, and return these."""
    opened = []
    for closed in sorted(folder.rglob("*.index.jsonl.zst")):
        reader = zstandard.ZstdDecompressor().stream_reader(closed.read_bytes(), read_across_frames=True)
        path = closed.with_suffix("")
        path.write_bytes(b"".join(line[:-1] + seal_of(line[:-1]) for line in reader.read().splitlines()))
        closed.unlink()
        opened.append(path)
    return opened


def json_line(spans: Sequence[ReadableSpan]) -> bytes:
    """Return spans as a line of OTLP JSON, without its end."""
    return json_of_request(encode_spans(spans))


def write_lines(path: Path, *lines: list[ReadableSpan]) -> None:
    """Append lines of OTLP JSON to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(json_line(spans) + b"\n" for spans in lines)


def data_file(folder: Path, step: int) -> Path:
    """Return the only file of trajectories of a step's bundle."""
    [path] = folder.glob(f"{bundle_folder(step, validate=False)}/*.otlp.zst")
    return path


def index_file(folder: Path, step: int) -> Path:
    """Return its index, opened."""
    open_indexes(folder)
    return index_path(data_file(folder, step))
