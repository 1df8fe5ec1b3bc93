"""Spans of the trajectories of random runs, and what must be read of them."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import semconv
from otel_rollout.facts import SpanError, TrajectorySummary, conversations_of
from otel_rollout.folder import bundle_folder
from otel_rollout.folder.folder_writer import FolderWriter
from tests.run.random_runs import made_run
from tests.trace_folder.recordings import write_frames, write_lines

MICROSECOND = 1000


def write_run(folder: Path, seed: int) -> list[TrajectorySummary]:
    """Write a random run into files of any kind, and return its trajectories as their spans say.

    Late rewards are in lines of their own. Frames may have no index, and lines be those of another program.
    """
    rng, of_file = random.Random(seed), random.Random(-seed)
    made = made_run(seed)
    told, late = [], []
    writers = [FolderWriter(folder) for _ in range(rng.choice((1, 2)))]
    for each in rng.sample(made, min(len(made), 40)):
        expected, spans, after = _spans_of(rng, each)
        # Which there are is tested with trees; here, how they are kept and summed.
        kinds = Counter(found.kind for found in conversations_of(spans).all)
        expected = replace(
            expected,
            conversations=kinds.total(),
            subagents=kinds["subagent"],
            forks=kinds["fork"],
            compactions=kinds["compacted"],
            two_sides=False,
            unread_answers=0,
        )
        writer, kind = rng.choice(writers), of_file.choice(("written", "written", "without an index", "lines"))
        if kind == "lines":
            write_lines(folder / "other.jsonl", spans)
        elif kind == "without an index" and each.has_root:
            write_frames(folder / bundle_folder(each.step, validate=each.validate) / "host-1-abcd.otlp.zst", spans)
        else:
            writer.write(spans)
        told.append(expected)
        late += after
    for span in late:
        rng.choice(writers).write([span])
    for writer in writers:
        writer.close()
    return told


def _spans_of(
    rng: random.Random, made: TrajectorySummary
) -> tuple[TrajectorySummary, list[ReadableSpan], list[ReadableSpan]]:
    """Return a trajectory as its spans say, its spans, and that of its late reward if it has one."""
    values = (made.step, made.sample_index, made.rollout_n, made.validate, made.experiment_name)
    tags = {key: value for key, value in zip(semconv.TAGS, values, strict=True) if value is not None}
    span = _Maker(made, tags)
    # Without words there is no equality; with words and tools, it depends on the tools' results.
    turns = made.turn_hashes if rng.random() < 0.5 else ()
    tools = {} if turns else dict(made.tools)
    is_failed = made.status == "error"
    if is_failed:
        tools = {name: counts._replace(errors=0) for name, counts in tools.items()}
    error = made.errors[0].type if made.errors else "ValueError"
    breaks = made.prefix_breaks if made.has_root else 0
    spans = [span("work", {semconv.SPAN_KIND: "CHAIN"}, (0, None))]
    for number, said in enumerate(turns or ("",) * 3):
        message = [{"role": "assistant", "parts": [{"type": "text", "content": said}]}]
        output = {semconv.OUTPUT_MESSAGES: orjson.dumps(message).decode()} if said else {}
        broken = {semconv.PREFIX_BROKEN: True} if number < breaks else {}
        spans.append(span("generate", {semconv.SPAN_KIND: "LLM", **output, **broken}, (2 * number, 2 * number + 1)))
    at = 100
    for name, counts in tools.items():
        for number in range(counts.calls):
            given = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: name, semconv.OUTPUT_VALUE: f'"{number}"'}
            failed = error if number < counts.errors else None
            spans.append(span(name, given, (at, at + 1), error=failed))
            at += 2
    has_failed_tool = any(counts.errors for counts in tools.values())
    expected = replace(
        made,
        tools=tools,
        turn_hashes=turns,
        errors=(SpanError("", "TOOL", error, False),) if has_failed_tool else (),
        error_type="OutOfMemory" if is_failed else None,
        spans=len(spans) + made.has_root,
        turns=made.turns or 1,
        output_tokens=made.output_tokens or 10,
        prefix_breaks=min(breaks, len(turns or (1, 2, 3))),
        prompt="",
    )
    late: list[ReadableSpan] = []
    if not made.has_root:
        unknown: dict[str, Any] = dict.fromkeys(
            ("status", "reward", "fate", "staleness", "finish_reason", "output_tokens")
        )
        none = dict.fromkeys(("dropped_spans", "truncated_bytes", "redacted"), 0)
        return replace(expected, **unknown, **none, reward_parts={}, turns=len(turns or (1, 2, 3))), spans, late
    parts = {name: {"value": value} for name, value in made.reward_parts.items()}
    root = {
        semconv.SPAN_KIND: "AGENT",
        semconv.STATUS: made.status,
        semconv.TURNS: expected.turns,
        semconv.OUTPUT_TOKENS: expected.output_tokens,
        semconv.REWARD: made.reward,
        semconv.FATE: made.fate,
        semconv.STALENESS: made.staleness,
        semconv.FINISH_REASON: made.finish_reason,
        semconv.DROPPED_SPANS: made.dropped_spans or None,
        semconv.TRUNCATED_BYTES: made.truncated_bytes or None,
        semconv.REDACTED: made.redacted or None,
        semconv.REWARD_PARTS: orjson.dumps(parts).decode() if parts else None,
    }
    if made.reward is None and made.invalid_rewards:
        root[semconv.REWARD] = math.nan
    given = {key: value for key, value in root.items() if value is not None}
    spans.append(span("run", given, (0, None), parent=False, error=expected.error_type))
    if rng.random() < 0.2:
        fact = {semconv.LATE: True, semconv.REWARD: 0.75}
        late.append(span("score", fact, (10**9, 10**9)))
        expected = replace(expected, reward=0.75, spans=expected.spans + 1)
    return expected, spans, late


class _Maker:
    """Makes the spans of one trajectory."""

    def __init__(self, made: TrajectorySummary, tags: dict[str, Any]) -> None:
        self._made = made
        self._tags = tags
        run = {} if made.run_id is None else {semconv.RUN_ID: made.run_id}
        self._resource = Resource({semconv.SERVICE_NAME: "p", **run})
        self._number = 1

    def __call__(
        self,
        name: str,
        attributes: dict[str, Any],
        micros: tuple[int, int | None],
        *,
        parent: bool = True,
        error: str | None = None,
    ) -> ReadableSpan:
        start, end = micros
        self._number += 1
        failed = {} if error is None else {semconv.ERROR_TYPE: error}
        return ReadableSpan(
            name,
            context=self._context(self._number if parent else 1),
            parent=self._context(1) if parent else None,
            resource=self._resource,
            attributes={**self._tags, **attributes, **failed},
            status=Status() if error is None else Status(StatusCode.ERROR, "failed"),
            start_time=self._made.start_time + start * MICROSECOND,
            end_time=self._made.end_time if end is None else self._made.start_time + end * MICROSECOND,
        )

    def _context(self, span_id: int) -> SpanContext:
        trace_id = int(self._made.trace_id, 16)
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
