"""Trajectories of a made-up agentic run: prompts of any difficulty, tools that fail, answers that are cut off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from benchmarks.trace_files.text import Writer
from otel_rollout import semconv

TURNS = 9
SPANS_PER_TRAJECTORY = 2 * TURNS + 1
ROLLOUTS = 8
TOOLS = ("sandbox.run", "search", "read_file", "calculator")
NEEDLE = "the answer lies in drawer forty-two"
"""Stands in one of a thousand trajectories, so that a search for it has something to find."""

_SECOND = 1_000_000_000
_START = 1_767_225_600 * _SECOND
_STEP_SECONDS = 600
_TEMPLATES = 32
_SCOPE = InstrumentationScope("otel_rollout", "0")
_RESOURCE = Resource(
    {
        semconv.SERVICE_NAME: "benchmark",
        semconv.SERVICE_INSTANCE_ID: "b2f1c9d4",
        semconv.PROJECT_NAME: "benchmark",
        semconv.RUN_ID: "run-1",
    }
)


class Load(NamedTuple):
    """What is written.

    Args:
        steps: The number of steps.
        prompts: The prompts of a step, with `ROLLOUTS` rollouts each.
        has_long_text: Each turn has all messages so far, 80 KB a trajectory; else a line, from a small stock.
        seed: Decides everything.
    """

    steps: int
    prompts: int
    has_long_text: bool
    seed: int = 1

    @property
    def trajectories(self) -> int:
        """The number of trajectories."""
        return self.steps * self.prompts * ROLLOUTS


def trajectories(load: Load, step: int, prompts: range) -> Iterator[list[ReadableSpan]]:
    """Yield the trajectories of some prompts of a step, the root of each last."""
    conversations = [] if load.has_long_text else [_short_conversation(number) for number in range(_TEMPLATES)]
    for prompt in prompts:
        chance = random.Random(f"{load.seed}/{prompt}")
        difficulty = chance.choice((0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0))
        writer = Writer(chance, has_symbols=prompt % 6 == 5) if load.has_long_text else None
        begin = _prompt(writer) if writer else []
        for rollout in range(ROLLOUTS):
            own = random.Random(f"{load.seed}/{step}/{prompt}/{rollout}")
            if writer is not None:
                writer.random = own
                conversation = _conversation(writer, begin)
            else:
                conversation = own.choice(conversations)
            yield _Trajectory(own, step, prompt, rollout, difficulty, conversation).spans()


class _Turn(NamedTuple):
    """The payload of a generation and of the tool call that follows it, as JSON."""

    given: str
    said: str
    tool: str
    arguments: str
    result: str


def _prompt(writer: Writer) -> list[dict[str, Any]]:
    return [_message("system", writer.text(600)), _message("user", writer.text(500))]


def _conversation(writer: Writer, messages: list[dict[str, Any]]) -> list[_Turn]:
    turns = []
    for number in range(TURNS):
        tool, code, text = writer.random.choice(TOOLS), writer.text(110), writer.text(140)
        if number == TURNS - 1 and writer.random.random() < 0.001:
            text = f"{text} \N{EM DASH} {NEEDLE}."
        call = {"type": "tool_call", "id": f"call_{number}", "name": tool, "arguments": {"code": code}}
        answer = _message("assistant", text, call)
        result = writer.text(635)
        response = {"type": "tool_call_response", "id": f"call_{number}", "response": result}
        turns.append(_Turn(_json(messages), _json([answer]), tool, _json({"code": code}), _json(result)))
        messages = [*messages, answer, {"role": "tool", "parts": [response]}]
    return turns


def _short_conversation(number: int) -> list[_Turn]:
    return [
        _Turn(
            _json([_message("user", f"What is {number} times {turn}?")]),
            _json([_message("assistant", f"It is {number * turn}.")]),
            TOOLS[(number + turn) % len(TOOLS)],
            _json({"code": f"{number}*{turn}"}),
            _json(str(number * turn)),
        )
        for turn in range(TURNS)
    ]


class _Trajectory:
    """One rollout of a prompt."""

    def __init__(
        self, chance: random.Random, step: int, prompt: int, rollout: int, difficulty: float, turns: list[_Turn]
    ) -> None:
        self.random = chance
        self.turns = turns
        self.trace_id = chance.getrandbits(128) | 1
        self.start = self.time = _START + step * _STEP_SECONDS * _SECOND + chance.randrange(2 * _SECOND)
        self.tags: dict[str, Any] = {
            semconv.STEP: step,
            semconv.SAMPLE_INDEX: prompt,
            semconv.ROLLOUT_N: rollout,
            semconv.VALIDATE: False,
            semconv.EXPERIMENT_NAME: "benchmark",
        }
        self.is_truncated = chance.random() < 0.04
        self.has_failed = not self.is_truncated and chance.random() < 0.01
        solved = chance.random() < min(1.0, difficulty + step / 400)
        self.reward = 0.0 if self.is_truncated or not solved else 1.0

    def spans(self) -> list[ReadableSpan]:
        """Return the spans in the order of their ends."""
        root = self._context()
        spans = []
        tokens = [0, 0]
        for number, turn in enumerate(self.turns, 1):
            used = self.random.randrange(300, 3000), self.random.randrange(40, 700)
            tokens = [tokens[0] + used[0], tokens[1] + used[1]]
            is_cut = self.is_truncated and number == TURNS
            generation = {
                semconv.SPAN_KIND: "LLM",
                semconv.OPERATION_NAME: "chat",
                semconv.TURN: number,
                semconv.REQUEST_MODEL: "policy",
                semconv.USAGE_INPUT_TOKENS: used[0],
                semconv.USAGE_OUTPUT_TOKENS: used[1],
                semconv.FINISH_REASONS: ("length" if is_cut else "tool_calls",),
                semconv.INPUT_MESSAGES: turn.given,
                semconv.OUTPUT_MESSAGES: turn.said,
            }
            spans.append(self._span("AgentLoop.generate", generation, self._context(), root, self._seconds(4.0)))
            tool = {
                semconv.SPAN_KIND: "TOOL",
                semconv.OPERATION_NAME: "execute_tool",
                semconv.TOOL_NAME: turn.tool,
                semconv.INPUT_VALUE: turn.arguments,
            }
            if self.random.random() < 0.03:
                error = {
                    semconv.EXCEPTION_TYPE: "TimeoutError",
                    semconv.EXCEPTION_MESSAGE: f"{turn.tool} took longer than 30 s",
                    semconv.EXCEPTION_STACKTRACE: 'Traceback (most recent call last):\n  File "tool.py", line 7\n',
                }
                spans.append(self._span("AgentLoop.call_tool", tool, self._context(), root, self._seconds(9.0), error))
            else:
                tool[semconv.OUTPUT_VALUE] = turn.result
                spans.append(self._span("AgentLoop.call_tool", tool, self._context(), root, self._seconds(1.0)))
        spans.append(self._root(root, tokens))
        return spans

    def _root(self, context: SpanContext, tokens: list[int]) -> ReadableSpan:
        status = "error" if self.has_failed else "truncated" if self.is_truncated else "completed"
        attributes = {
            semconv.SPAN_KIND: "AGENT",
            semconv.OPERATION_NAME: "invoke_agent",
            semconv.SESSION_ID: f"benchmark/{self.tags[semconv.STEP]}/{self.tags[semconv.SAMPLE_INDEX]}",
            semconv.STATUS: status,
            semconv.REWARD: self.reward,
            semconv.REWARD_PARTS: _json({"format": 1.0, "correct": self.reward}),
            semconv.TURNS: TURNS,
            semconv.INPUT_TOKENS: tokens[0],
            semconv.OUTPUT_TOKENS: tokens[1],
            semconv.INPUT_MESSAGES: self.turns[0].given,
            semconv.OUTPUT_MESSAGES: self.turns[-1].said,
        }
        error = None
        if self.has_failed:
            error = {semconv.EXCEPTION_TYPE: "ConnectionError", semconv.EXCEPTION_MESSAGE: "the engine went away"}
        return self._span("AgentLoop.run", attributes, context, None, 0, error)

    def _span(
        self,
        name: str,
        attributes: dict[str, Any],
        context: SpanContext,
        parent: SpanContext | None,
        nanoseconds: int,
        error: dict[str, Any] | None = None,
    ) -> ReadableSpan:
        start = self.time if parent else self.start
        self.time += nanoseconds
        return ReadableSpan(
            name,
            context,
            parent,
            _RESOURCE,
            {**attributes, **self.tags, **({semconv.ERROR_TYPE: error[semconv.EXCEPTION_TYPE]} if error else {})},
            [Event(semconv.EXCEPTION_EVENT, error, self.time)] if error else (),
            status=Status(StatusCode.ERROR, error[semconv.EXCEPTION_MESSAGE]) if error else Status(),
            start_time=start,
            end_time=self.time,
            instrumentation_scope=_SCOPE,
        )

    def _context(self) -> SpanContext:
        return SpanContext(self.trace_id, self.random.getrandbits(64) | 1, False, TraceFlags(1))

    def _seconds(self, mean: float) -> int:
        """Return nanoseconds, of which a few are many."""
        return int(mean * self.random.lognormvariate(-0.3, 0.8) * _SECOND)


def _message(role: str, text: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}, *parts]}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
