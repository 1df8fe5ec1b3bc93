"""`python -m benchmarks.summary`: what the summaries of trajectories cost the delivery thread.

The same spans, of about 2 KB, are finished with and without records of their payloads, and written into trace folders
with and without summaries, in turns, in one process. The share is that of the thread's CPU time for a span: it finishes
it (limits, redaction and messages as `init` sets them by default, conversion to the SDK's form), encodes it as OTLP,
compresses it, and writes it into the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any
from unittest import mock

from opentelemetry.sdk.trace import ReadableSpan

from benchmarks.trace_files import load
from benchmarks.trace_files.load import Load, batches
from otel_rollout.facts import SummaryBuilder, columns_of
from otel_rollout.finish import PayloadFinisher, SpanReader, make_redactor
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.folder import folder_writer, index
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.settings import resolve_settings

LIMIT = 0.1
"""The share of the delivery thread's CPU time that summaries may take."""


class WithoutSummary(SummaryBuilder):
    """What the index needs to place a trajectory."""

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        for span in spans:
            self.spans += 1
            self.start_time = min(self.start_time, span.start_time or 0)
            if span.parent is None or self.main[0]:
                self._add_identity(span, span.attributes or {}, span.start_time or 0, 0)


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.summary", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured (default: 9)")
    arguments = parser.parse_args()
    result = run(arguments.rounds)
    print(json.dumps(result, indent=2))
    return 0 if result["share of the delivery thread"] <= LIMIT else 1


def run(rounds: int) -> dict[str, float]:
    """Return microseconds a span."""
    training = Load("new messages alone", 1, 18, 8, repeats_history=False)
    finishing: dict[bool, float] = {}
    for _ in range(max(1, rounds // 3)):
        for takes_records in (False, True):
            made, reader, seconds = _finished(training, takes_records=takes_records)
            finishing[takes_records] = min(seconds, finishing.get(takes_records, float("inf")))
    spans = [[reader.read(span, "benchmark") for span in batch.spans] for batch in made]
    costs: dict[type[SummaryBuilder], float] = {}
    for _ in range(rounds):
        for builder in (SummaryBuilder, WithoutSummary):
            costs[builder] = min(_written(spans, builder), costs.get(builder, float("inf")))
    count = training.spans / 1e6
    records, added = finishing[True] - finishing[False], costs[SummaryBuilder] - costs[WithoutSummary]
    return {
        "payload bytes a span": sum(batch.payload_bytes for batch in made) / training.spans,
        "finishing": finishing[False] / count,
        "records in finishing": records / count,
        "writing without summaries": costs[WithoutSummary] / count,
        "summaries": added / count,
        "share of writing": added / costs[WithoutSummary],
        "share of the delivery thread": (records + added) / (costs[WithoutSummary] + finishing[False]),
    }


def _finished(training: Load, *, takes_records: bool) -> tuple[list[load.Batch], SpanReader, float]:
    """Return finished batches, their reader, and the CPU seconds of finishing."""
    seconds, reader = 0.0, _default_reader(takes_records=takes_records)

    def timed(*given: Any) -> Any:
        nonlocal seconds
        start = time.thread_time()
        try:
            return reader.read(*given)
        finally:
            seconds += time.thread_time() - start

    with mock.patch.object(load, "_READER", mock.Mock(read=timed)):
        return list(batches(training)), reader, seconds


def _default_reader(*, takes_records: bool) -> SpanReader:
    settings = resolve_settings({}, {})
    redactor = make_redactor(settings.redact_keys, settings.redact_patterns)
    finisher = PayloadFinisher(settings.max_payload_bytes, redactor)
    chat = ChatWriter(finisher) if settings.chat_messages else None
    reader = SpanReader(load._RESOURCE, load._SCOPE, finisher, chat)
    if takes_records:
        reader.register("benchmark", takes_records=True)
    return reader


def _written(spans: list[list[ReadableSpan]], builder: type[SummaryBuilder]) -> float:
    """Return the CPU seconds of writing all batches."""
    with (
        tempfile.TemporaryDirectory(prefix="otel-rollout-bench-") as folder,
        mock.patch.object(folder_writer, "SummaryBuilder", builder),
        mock.patch.object(index, "columns_of", columns_of if builder is SummaryBuilder else lambda collected: {}),
    ):
        writer = FolderWriter(folder)
        start = time.thread_time()
        for batch in spans:
            writer.write(batch)
        writer.close()
        return time.thread_time() - start


if __name__ == "__main__":
    sys.exit(main())
