"""The agent loop: the policy generates, its tools run, their results go back to it, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from otel_rollout import rollout_trace_op
from otel_rollout.demo.chat import (
    ASSISTANT,
    END,
    SYSTEM_PROMPT,
    find_answer,
    find_tool_calls,
    write_message,
)
from otel_rollout.demo.policy import Policy, SamplingParams
from otel_rollout.demo.problems import ToolCall
from otel_rollout.demo.tools import Calculator, Lookup, ToolError


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
