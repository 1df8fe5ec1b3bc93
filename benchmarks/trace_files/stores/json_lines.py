"""Plain OTLP JSON lines: one file, one line per trajectory, held in memory until its root has come; also as .zst."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import zstandard
from opentelemetry.sdk.trace import ReadableSpan

from benchmarks.trace_files.stores.store import Group, Root, Store, Trajectories
from otel_rollout import semconv


class JsonLines(Store):
    title = "OTLP JSON lines"
    file_name = "traces.jsonl"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / self.file_name
        self._file = self._create()
        self._trajectories = Trajectories()

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        for trajectory in self._trajectories.add(spans):
            self._file.write(orjson.dumps(request_of(trajectory), option=orjson.OPT_APPEND_NEWLINE))

    def finish(self) -> None:
        self._file.close()

    def roots(self, step: int) -> Sequence[Root]:
        return [root_of(spans[-1]) for spans in self._lines((_tag(semconv.STEP, step),))]

    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        tags = {semconv.STEP: step, semconv.SAMPLE_INDEX: sample_index, semconv.ROLLOUT_N: rollout_n}
        return next(self._lines([_tag(key, value) for key, value in tags.items()]))

    def spans(self, step: int) -> Sequence[Any]:
        return [span for spans in self._lines((_tag(semconv.STEP, step),)) for span in spans]

    def groups(self) -> Sequence[Group]:
        rewards: dict[tuple[int, int], list[float]] = {}
        for spans in self._lines(()):
            root = attributes_of(spans[-1])
            rewards.setdefault((int(root[semconv.STEP]), int(root[semconv.SAMPLE_INDEX])), []).append(
                root[semconv.REWARD]
            )
        return [Group(*key, len(values), statistics.fmean(values)) for key, values in rewards.items()]

    def attributes_of(self, span: Any) -> dict[str, Any]:
        return attributes_of(span)

    def _create(self) -> BinaryIO:
        return self._path.open("wb")

    def _open(self) -> BinaryIO:
        return self._path.open("rb")

    def _lines(self, tags: Iterable[bytes]) -> Iterator[Any]:
        """Yield the spans of each line that holds all these tags; what does not is not parsed."""
        with self._open() as file:
            for line in file:
                if all(tag in line for tag in tags):
                    yield spans_of(orjson.loads(line))


class ZstdJsonLines(JsonLines):
    title = "OTLP JSON lines, .zst"
    file_name = "traces.jsonl.zst"

    def _create(self) -> BinaryIO:
        return zstandard.ZstdCompressor(level=3).stream_writer(self._path.open("wb"))

    def _open(self) -> BinaryIO:
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(self._path.open("rb")))  # type: ignore[type-var]


def request_of(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Return a trajectory as an OTLP request."""
    first = spans[0]
    scope = first.instrumentation_scope
    scope_spans = {
        "scope": {"name": scope.name, "version": scope.version} if scope else {},
        "spans": [_span(span) for span in spans],
    }
    resource = {"attributes": [_pair(key, value) for key, value in first.resource.attributes.items()]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}


def spans_of(request: dict[str, Any]) -> Any:
    """Return the spans of such a request."""
    return request["resourceSpans"][0]["scopeSpans"][0]["spans"]


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.context
    assert context is not None
    record = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": [_pair(key, value) for key, value in (span.attributes or {}).items()],
        "status": {"code": span.status.status_code.value},
        "flags": 0x100 | context.trace_flags,
    }
    if span.parent is not None:
        record["parentSpanId"] = f"{span.parent.span_id:016x}"
    return record


def _pair(key: str, value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"key": key, "value": {"stringValue": value}}
    if kind is bool:
        return {"key": key, "value": {"boolValue": value}}
    if kind is int:
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"doubleValue": value}}


def _tag(key: str, value: Any) -> bytes:
    return orjson.dumps(_pair(key, value))


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of such a span."""
    attributes = {}
    for pair in span["attributes"]:
        ((kind, value),) = pair["value"].items()
        attributes[pair["key"]] = int(value) if kind == "intValue" else value
    return attributes


def root_of(span: dict[str, Any]) -> Root:
    """Return the facts of a trajectory from its root."""
    attributes = attributes_of(span)
    return Root(
        span["traceId"],
        attributes[semconv.SAMPLE_INDEX],
        attributes[semconv.ROLLOUT_N],
        attributes[semconv.STATUS],
        attributes[semconv.REWARD],
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
    )
