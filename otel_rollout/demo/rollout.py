"""The rollout: n traced trajectories of every sample, many at a time, each an agent loop of policy and tools."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.demo.chat import (
    ASSISTANT,
    END,
    SYSTEM_PROMPT,
    BpeTokenizer,
    find_answer,
    find_tool_calls,
    write_message,
)
from otel_rollout.demo.policy import EngineError, Policy, SamplingParams
from otel_rollout.demo.problems import LOOKUP_TABLE, ToolCall, problem_at
from otel_rollout.demo.tools import Calculator, Lookup, ToolError
from otel_rollout.guard.clock import monotonic


@dataclass(frozen=True)
class AgentLoopOutput:
    """The outcome of one trajectory.

    Args:
        answer: The policy's answer; None if it gave none.
        prompt_ids: The tokens of the prompt.
        response_ids: All tokens after it, tool messages included.
        turns: The number of generations.
        tool_errors: The number of failed tool calls.
        truncated: True if the turns ran out before an answer.
    """

    answer: str | None
    prompt_ids: list[int]
    response_ids: list[int]
    turns: int
    tool_errors: int
    truncated: bool


class AgentLoop:
    """Runs trajectories, any number of them side by side.

    Args:
        policy: Generates the messages.
        tools: The tools that the policy may call.
        max_turns: The most generations of a trajectory.
    """

    def __init__(self, policy: Policy, tools: Iterable[Calculator | Lookup], max_turns: int = 6) -> None:
        self.tokenizer = policy.tokenizer
        self._policy = policy
        self._tools = {tool.name: tool for tool in tools}
        self._max_turns = max_turns

    @rollout_trace_op(kind="CHAIN")
    async def run(self, question: str, request_id: str, sampling_params: SamplingParams) -> AgentLoopOutput:
        """Run one trajectory until the policy answers or has generated `max_turns` times.

        Args:
            question: The problem.
            request_id: The trajectory's id for the engine.
            sampling_params: The sampling of tokens.
        """
        opening = write_message("system", SYSTEM_PROMPT) + write_message("user", question)
        prompt_ids = self.tokenizer.encode(opening + ASSISTANT)
        token_ids = list(prompt_ids)
        answer, turns, tool_errors = None, 0, 0
        while answer is None and turns < self._max_turns:
            turns += 1
            output = await self._policy.generate(request_id, token_ids, sampling_params)
            token_ids = token_ids + output.token_ids
            text = self.tokenizer.decode(output.token_ids)
            results = await asyncio.gather(*map(self._call, find_tool_calls(text)))
            tool_errors += sum(result.startswith("error") for result in results)
            answer = find_answer(text)
            if answer is None:
                token_ids = self.next_prompt(token_ids, len(output.token_ids), results)
        return AgentLoopOutput(
            answer=answer,
            prompt_ids=prompt_ids,
            response_ids=token_ids[len(prompt_ids) :],
            turns=turns,
            tool_errors=tool_errors,
            truncated=answer is None,
        )

    def next_prompt(self, token_ids: list[int], generated: int, results: Iterable[str]) -> list[int]:
        """Return the prompt of the next turn.

        Args:
            token_ids: The conversation so far.
            generated: The number of tokens at its end that the policy generated last.
            results: The results of the tools that it called.
        """
        messages = "".join(write_message("tool", result) for result in results)
        return token_ids + self.tokenizer.encode(END + messages + ASSISTANT)

    async def _call(self, call: ToolCall) -> str:
        tool = self._tools.get(call.tool)
        if tool is None:
            return f"error: there is no tool {call.tool!r}"
        try:
            return await tool.execute(call.argument)
        except ToolError as error:
            return f"error: {error}"


TRAJECTORY_DEADLINE = 2.0
"""Seconds after which a trainer no longer waits for a straggler."""
DEADLINE_PARTS = 20
"""It is waited for in parts: on a busy machine each takes longer, as turns do, so only stragglers are cancelled."""


@dataclass(frozen=True)
class Pass:
    """One pass over the samples.

    Args:
        step: The training step.
        samples: The number of samples.
        rollouts: The number of trajectories of each.
        validate: True for a validation pass.
    """

    step: int
    samples: int
    rollouts: int
    validate: bool = False

    @property
    def name(self) -> str:
        """The pass's name on the screen."""
        return "validation" if self.validate else f"step {self.step}"

    @property
    def trajectories(self) -> int:
        """The number of its trajectories."""
        return self.samples * self.rollouts


@dataclass(frozen=True)
class Trajectory:
    """One trajectory and its outcome; `reward` is None if it was not scored."""

    step: int
    sample_index: int
    rollout_n: int
    validate: bool
    status: str
    seconds: float
    reward: float | None = None
    answer: str | None = None
    turns: int = 0
    tool_errors: int = 0


class Verifier:
    """Compares answers with the dataset's."""

    @rollout_trace_op(kind="EVALUATOR")
    async def score(self, answer: str | None, expected: float) -> float:
        """Return 1.0 for the right number, else 0.0."""
        try:
            number = float(answer or "nan")
        except ValueError:
            return 0.0
        return 1.0 if math.isclose(number, expected, rel_tol=1e-6) else 0.0


def passes(steps: int, samples: int, rollouts: int) -> list[Pass]:
    """Return the training steps and the validation pass after them, with one trajectory a sample."""
    training = [Pass(step, samples, rollouts) for step in range(1, steps + 1)]
    return [*training, Pass(steps, samples, 1, validate=True)]


async def run_pass(
    of: Pass, *, tokenizer: BpeTokenizer, seed: int, concurrency: int, on_done: Callable[[Trajectory], None]
) -> list[Trajectory]:
    """Run all trajectories of a pass.

    Args:
        of: The pass.
        tokenizer: The policy's tokenizer.
        seed: Decides everything that the policy does.
        concurrency: The number of trajectories that run at a time.
        on_done: Called with each trajectory as it ends.
    """
    policy = Policy(tokenizer, of.step if of.validate else of.step - 1)
    agent_loop = AgentLoop(policy, [Calculator(), Lookup(LOOKUP_TABLE)])
    slots = asyncio.Semaphore(concurrency)

    async def run_in_slot(sample_index: int, rollout_n: int) -> Trajectory:
        async with slots:
            trajectory = await _run_to_deadline(agent_loop, of, sample_index, rollout_n, seed)
        on_done(trajectory)
        return trajectory

    return await asyncio.gather(*(run_in_slot(sample, n) for sample in range(of.samples) for n in range(of.rollouts)))


async def _run_to_deadline(agent_loop: AgentLoop, of: Pass, sample_index: int, rollout_n: int, seed: int) -> Trajectory:
    started = monotonic()
    task = asyncio.ensure_future(_run_trajectory(agent_loop, of, sample_index, rollout_n, seed))
    try:
        for _ in range(DEADLINE_PARTS):
            await asyncio.wait({task}, timeout=TRAJECTORY_DEADLINE / DEADLINE_PARTS)
            if task.done():
                return task.result()
    except EngineError:
        status = "error"
    else:
        status = "cancelled"
    finally:
        # Here too if the rollout itself is cancelled.
        task.cancel()
        await asyncio.wait({task})
    return Trajectory(of.step, sample_index, rollout_n, of.validate, status, monotonic() - started)


async def _run_trajectory(agent_loop: AgentLoop, of: Pass, sample_index: int, rollout_n: int, seed: int) -> Trajectory:
    started = monotonic()
    problem = problem_at(sample_index)
    with rollout_trace_attr(
        sample_index=sample_index, step=of.step, rollout_n=rollout_n, name="agent_loop", validate=of.validate
    ):
        annotate(input=problem.question)
        output = await agent_loop.run(
            problem.question,
            request_id=request_id(of, sample_index, rollout_n),
            sampling_params=sampling_params(of, sample_index, rollout_n, seed),
        )
        reward = await Verifier().score(output.answer, problem.answer)
        status = "truncated" if output.truncated else "completed"
        annotate(reward=reward, status=status, output=output.answer)
    return Trajectory(
        of.step,
        sample_index,
        rollout_n,
        of.validate,
        status,
        monotonic() - started,
        reward=reward,
        answer=output.answer,
        turns=output.turns,
        tool_errors=output.tool_errors,
    )


def request_id(of: Pass, sample_index: int, rollout_n: int) -> str:
    """Return a trajectory's id for the engine."""
    return f"{of.name.replace(' ', '-')}/sample-{sample_index}/rollout-{rollout_n}"


def sampling_params(of: Pass, sample_index: int, rollout_n: int, seed: int) -> SamplingParams:
    """Return the sampling of a trajectory, which the run's seed and its place decide."""
    drawn = hashlib.blake2b(
        f"seed {seed}, {of.name}, sample {sample_index}, rollout {rollout_n}".encode(), digest_size=4
    ).digest()
    return SamplingParams(temperature=0.0 if of.validate else 1.0, seed=int.from_bytes(drawn, "big"))


def mean_reward(trajectories: Sequence[Trajectory]) -> float | None:
    """Return the mean of the known rewards, as `otel-rollout ls` does; None if there are none."""
    rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None
