"""What is written: the spans of a synthetic training run, made from a seed step by step, so that few are in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from benchmarks.trace_files.text import Writer
from otel_rollout import semconv
from otel_rollout.finish import ChatWriter, PayloadFinisher, SpanReader
from otel_rollout.record import RolloutSpan, TrajectoryState
from otel_rollout.record.finished_span import FinishedSpan
from otel_rollout.record.snapshot import take_snapshot

BATCH_BYTES = 4 * 2**20
BATCH_SPANS = 512
"""What delivery's batches are bounded by where nothing is set."""
TURNS = 12
SPANS_PER_TRAJECTORY = 2 * TURNS + 2

_SECOND = 1_000_000_000
_START = 1_767_225_600 * _SECOND
_STEP_SECONDS = 120
_RESOURCE = Resource(
    {
        "service.name": "benchmark",
        "service.instance.id": "b2f1c9d4",
        semconv.PROJECT_NAME: "benchmark",
        semconv.RUN_ID: "run-1",
        semconv.OPENINFERENCE_PROJECT: "benchmark",
    }
)
_SCOPE = InstrumentationScope("otel_rollout", "0")
_MAX_PAYLOAD_BYTES = 2**20
_FINISHER = PayloadFinisher(_MAX_PAYLOAD_BYTES, None)
_READER = SpanReader(_RESOURCE, _SCOPE, _FINISHER, ChatWriter(_FINISHER))
_READER.register("benchmark", takes_records=True)


class Load(NamedTuple):
    """A training run.

    Args:
        title: What it is called in the tables.
        steps: Training steps, one after the other; the rollouts of a step run side by side.
        prompts: Prompts of a step.
        rollouts: Rollouts of a prompt.
        repeats_history: Whether each turn of the model takes all messages so far, as chat models do, or the new ones.
    """

    title: str
    steps: int
    prompts: int
    rollouts: int
    repeats_history: bool

    @property
    def trajectories(self) -> int:
        return self.steps * self.prompts * self.rollouts

    @property
    def spans(self) -> int:
        return self.trajectories * SPANS_PER_TRAJECTORY


class Batch(NamedTuple):
    """What an exporter is given at once.

    Args:
        step: The training step.
        spans: The spans, in the order in which they ended.
        payload_bytes: What their inputs and outputs take in UTF-8.
    """

    step: int
    spans: list[RolloutSpan]
    payload_bytes: int

    def readable(self) -> list[ReadableSpan]:
        """Return the spans as delivery gives them to one more exporter."""
        return [_READER.read(span, "benchmark") for span in self.spans]


def batches(load: Load, seed: int = 1) -> Iterator[Batch]:
    """Yield the whole load in batches as delivery makes them; the same for the same seed."""
    for step in range(load.steps):
        spans: list[RolloutSpan] = []
        size = payload_bytes = 0
        for span in _step(load, step, seed):
            finished: FinishedSpan = span.finished
            spans.append(span)
            size += finished.size
            payload_bytes += len(finished.input) + len(finished.output) + sum(map(len, finished.messages.values()))
            if size >= BATCH_BYTES or len(spans) >= BATCH_SPANS:
                yield Batch(step, spans, payload_bytes)
                spans, size, payload_bytes = [], 0, 0
        if spans:
            yield Batch(step, spans, payload_bytes)


def _step(load: Load, step: int, seed: int) -> list[RolloutSpan]:
    """Return the spans of a step in the order in which they end: a trajectory's root last, the others in between."""
    spans: list[RolloutSpan] = []
    for sample in range(load.prompts):
        index = step * load.prompts + sample
        writer = Writer(random.Random(f"{seed}/{index}"), has_symbols=sample % 6 == 5)
        prompt = [
            {"role": "system", "content": writer.text(960)},
            {"role": "user", "content": writer.text(800)},
        ]
        for rollout in range(load.rollouts):
            own = Writer(random.Random(f"{seed}/{index}/{rollout}"), has_symbols=writer.has_symbols)
            spans += Rollout(load, step, index, rollout, own).spans(list(prompt))
    spans.sort(key=lambda span: span.end_time or 0)
    return spans


class Rollout:
    """One trajectory: turns of a model that calls a tool each time, and a reward.

    Args:
        load: The training run.
        step: The training step.
        index: The prompt's index.
        number: Which rollout of the prompt.
        writer: What writes its messages.
    """

    def __init__(self, load: Load, step: int, index: int, number: int, writer: Writer) -> None:
        self.load = load
        self.index = index
        self.writer = writer
        self.random = writer.random
        self.trace_id = self.random.getrandbits(128) | 1
        self.root = SpanContext(self.trace_id, self.random.getrandbits(64) | 1, False, TraceFlags(1))
        self.time = self.start = _START + step * _STEP_SECONDS * _SECOND + self.random.randrange(2 * _SECOND)
        tags = {
            semconv.STEP: step,
            semconv.SAMPLE_INDEX: index,
            semconv.ROLLOUT_N: number,
            semconv.VALIDATE: False,
            semconv.EXPERIMENT_NAME: "benchmark",
        }
        self.state = TrajectoryState(tags)

    def spans(self, messages: list[dict[str, str]]) -> list[RolloutSpan]:
        """Return the spans of the trajectory that these messages begin."""
        spans, prompt, new = [], messages, messages
        for _ in range(TURNS):
            answer = {"role": "assistant", "content": self.writer.text(870), "tool_call": self.writer.text(320)}
            given = {"messages": messages if self.load.repeats_history else new, "temperature": 1.0, "top_p": 1.0}
            spans.append(self.span("AgentLoop.generate", "LLM", given, answer, 6.0))
            result = {"role": "tool", "content": self.writer.text(2560)}
            spans.append(self.span("AgentLoop.call_tool", "TOOL", {"code": answer["tool_call"]}, result, 2.0))
            new = [result]
            messages = [*messages, answer, result]
        reward = float(self.random.randrange(2))
        spans.append(self.span("compute_reward", "EVALUATOR", {"answer": answer}, reward, 0.1))
        root = {
            semconv.CONVERSATION_ID: f"{self.trace_id:032x}",
            semconv.SESSION_ID: f"benchmark/{self.state.tags[semconv.STEP]}/{self.index}",
            semconv.STATUS: "completed",
            semconv.REWARD: reward,
            semconv.TURNS: TURNS,
            semconv.INPUT_TOKENS: self.random.randrange(50_000),
            semconv.OUTPUT_TOKENS: self.random.randrange(5_000),
            semconv.METADATA: orjson.dumps({**self.state.tags, "status": "completed", "reward": reward}).decode(),
        }
        spans.append(self.span("trajectory", "AGENT", {"messages": prompt}, answer, 0.1, root))
        return spans

    def span(
        self, name: str, kind: str, given: Any, result: Any, seconds: float, root: dict[str, Any] | None = None
    ) -> RolloutSpan:
        """Return a span that took about so many seconds, finished as delivery does it."""
        start = self.time
        self.time += int(seconds * self.random.uniform(0.3, 1.7) * _SECOND)
        input_text, output_text = orjson.dumps(given), orjson.dumps(result)
        attributes: dict[str, Any] = {semconv.SPAN_KIND: kind}
        if kind in semconv.OPERATION_NAMES:
            attributes[semconv.OPERATION_NAME] = semconv.OPERATION_NAMES[kind]
        if kind == "LLM":
            attributes[semconv.USAGE_INPUT_TOKENS] = len(input_text) // 4
            attributes[semconv.USAGE_OUTPUT_TOKENS] = len(output_text) // 4
        own = SpanContext(self.trace_id, self.random.getrandbits(64) | 1, False, TraceFlags(1))
        span = RolloutSpan(
            name,
            own if root is None else self.root,
            self.root if root is None else None,
            {**attributes, **(root or {})},
            self.state,
            (),
            lambda _: None,
        )
        span.input, span.output = take_snapshot(given), take_snapshot(result)
        span.start_time, span.end_time = start if root is None else self.start, self.time
        _READER.read(span, "benchmark")
        return span
