"""Uses of the public API that a type checker must accept, and some that it must not; never run.

Checked by `mypy --strict tests/typing/api.py`: an unused `type: ignore` is an error there too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from typing_extensions import assert_type

import otel_rollout
from otel_rollout import RolloutTraceConfig, Trajectory, annotate, rollout_trace_attr, rollout_trace_op, select_samples
from otel_rollout.hooks import Arguments, Call, Hook, Observer, Patch, after, install_hooks, start_tracing
from otel_rollout.testing import InMemorySpanExporter, deterministic_ids_and_times, span_tree


@rollout_trace_op
def plain(value: int, *, scale: float = 1.0) -> float:
    return value * scale


assert_type(plain(1, scale=2.0), float)
plain("text")  # type: ignore[arg-type]
plain(1, factor=2.0)  # type: ignore[call-arg]


@rollout_trace_op(name="generate", kind="LLM", capture_inputs=False, follow_result=True)
async def generate(prompt: str) -> list[int]:
    return [len(prompt)]


@rollout_trace_op()
def count(n: int) -> Iterator[int]:
    yield from range(n)


@rollout_trace_op
async def stream(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@rollout_trace_attr(step=1)
async def rollout(prompt: str) -> int:
    async with rollout_trace_attr(step=2) as inner:
        assert_type(inner, Trajectory)
    return len(prompt)


@rollout_trace_attr(sample_index=lambda prompt, **_: len(prompt), validate=lambda prompt: not prompt)
def short_rollout(prompt: str) -> int:
    return len(prompt)


assert_type(short_rollout("why"), int)


class Agent:  # noqa: D101 - read by the type checker
    @rollout_trace_op
    async def run(self, question: str) -> str:  # noqa: D102
        return question

    @classmethod
    @rollout_trace_op
    def make(cls, name: str) -> Agent:  # noqa: D102
        return cls()

    @staticmethod
    @rollout_trace_op(kind="TOOL")
    def look_up(key: str) -> int:  # noqa: D102
        return len(key)


async def use() -> None:
    assert_type(await generate("why"), list[int])
    assert_type(await rollout("why"), int)
    assert_type([item async for item in stream(2)], list[int])
    assert_type(list(count(2)), list[int])
    assert_type(await Agent().run("why"), str)
    assert_type(Agent.make("name"), Agent)
    assert_type(Agent.look_up("key"), int)
    await generate(1)  # type: ignore[arg-type]


rollout_trace_op(kind=3)  # type: ignore[call-overload]
rollout_trace_op(kind="CHAT")  # type: ignore[call-overload]
rollout_trace_op(3)  # type: ignore[call-overload]

assert_type(rollout_trace_attr(1, 2, 3, "name", True, False), Trajectory)
with rollout_trace_attr(sample_index="uid", step=1, rollout_n=0, validate=True) as running:
    assert_type(running, Trajectory)
    assert_type(running.trace_id, str | None)
    assert_type(running.url, str | None)
    running.record("generate", "LLM")
    running.record("generate", "CHAT")  # type: ignore[arg-type]
    annotate(reward=1.0, status="truncated", input=["any"], output={"value": 1}, scorer="exact")
    annotate(reward=1.0, rewards={"format": 0.2, "judge": {"value": True, "explanation": "as asked"}})
    annotate(reward="high")  # type: ignore[arg-type]

otel_rollout.init("project", "experiment")
otel_rollout.init("project", "experiment", "otlp,console", True, 4, run_id="run", set_global=True)
otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
otel_rollout.init("project", "experiment", backend=["mlflow", InMemorySpanExporter()])
otel_rollout.init("project", "experiment", tracer_provider=TracerProvider())
otel_rollout.init("project", "experiment", endpoint="http://localhost:4318", headers={"x-key": "value"})
otel_rollout.init("project", "experiment", max_queue_bytes="1GiB", redact_keys=["email"], spool="spool")
otel_rollout.init("project", "experiment", transforms=[lambda span: span, print])
otel_rollout.init("project", "experiment", transforms=[int])  # type: ignore[list-item]
otel_rollout.init("project", "experiment", max_queue_byte=1)  # type: ignore[call-arg]
otel_rollout.init("project", "experiment", chat_messages="yes please")  # type: ignore[arg-type]
otel_rollout.init("project")  # type: ignore[call-arg]
RolloutTraceConfig.init("project", "experiment", None)
assert_type(RolloutTraceConfig.get_backend(), str | None)
assert_type(RolloutTraceConfig.enable_token2text(), bool)

assert_type(otel_rollout.flush(timeout=1.0), bool)
assert_type(otel_rollout.shutdown(), bool)
assert_type(otel_rollout.stats(), otel_rollout.Stats)
assert_type(otel_rollout.stats().lost, int)
assert_type(select_samples([1, "a"], 2, step=1), set[int])

assert_type(otel_rollout.read_trajectories("rollout-traces"), Iterator[otel_rollout.RecordedTrajectory])
for trajectory in otel_rollout.read_trajectories(
    Path("spool"), step=range(3), sample_index="uid", reward=(None, 0.5), validate=False
):
    assert_type(trajectory.step, int | None)
    assert_type(trajectory.reward, float | None)
    assert_type(trajectory.spans, list[ReadableSpan])
otel_rollout.read_trajectories("rollout-traces", step="7")  # type: ignore[arg-type]
otel_rollout.read_trajectories("rollout-traces", 7)  # type: ignore[call-arg]

with deterministic_ids_and_times():
    span_tree(InMemorySpanExporter().spans)


class Turn(Observer):
    """An observer with steps of its own."""

    opens_span = True

    def __init__(self, call: Call) -> None:
        self.step = call.receiver.step

    def changed(self, call: Call) -> Arguments | None:
        """Replace an argument."""
        return call.replaced({"step": self.step})

    def end(self, result: object) -> None:
        """Read the result."""


def started(call: Call, result: object) -> None:
    assert_type(call.arguments["config"], Any)
    start_tracing("trainer", "project", None, backend="console", run_id="run")


def optional(call: Call) -> Turn | None:
    return Turn(call) if call.arguments else None


HOOKS: tuple[Hook | Patch, ...] = (
    Hook("trainer", "Trainer.__init__", "nothing is traced", after(started), while_off=True),
    Hook("trainer", "Trainer.turn", "turns are not traced", Turn, needs=("step",), kind="LLM"),
    Hook("trainer", "Trainer.tool", "tools are not traced", optional),
    Hook("trainer", "Trainer.tool", "tools are not traced", len),  # type: ignore[arg-type]
    Patch("trainer", "Trainer", "nothing is traced", print),
)
install_hooks(HOOKS)
install_hooks([Hook("trainer", "Trainer.turn", "turns are not traced", Turn)])
