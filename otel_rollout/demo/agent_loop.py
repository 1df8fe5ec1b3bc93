"""The agent loop: the policy speaks, its tool calls are made, their results are told it, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from otel_rollout import rollout_trace_op
from otel_rollout.demo.chat import (
    SYSTEM_PROMPT,
    Message,
    close_assistant_message,
    find_answer,
    find_tool_calls,
    open_assistant_message,
    write_message,
)
from otel_rollout.demo.policy import Policy, SamplingParams
from otel_rollout.demo.problems import ToolCall
from otel_rollout.demo.tools import Tool, ToolError

__all__ = ["AgentLoop", "AgentLoopOutput"]


@dataclass(frozen=True)
class AgentLoopOutput:
    """What became of one trajectory.

    Args:
        answer: The policy's answer; None where it gave none.
        prompt_ids: The tokens of the problem as it was put.
        response_ids: All tokens after them, the tools' messages among them.
        turns: How often the policy spoke.
        tool_errors: How many tool calls failed.
        truncated: Whether it was stopped before it answered.
    """

    answer: str | None
    prompt_ids: list[int]
    response_ids: list[int]
    turns: int
    tool_errors: int
    truncated: bool


class AgentLoop:
    """Runs one trajectory at a time; any number of them side by side.

    Args:
        policy: Generates the messages.
        tools: What the policy may call.
        max_turns: How often it may speak.
    """

    def __init__(self, policy: Policy, tools: Iterable[Tool], max_turns: int = 6) -> None:
        self.tokenizer = policy.tokenizer
        self._policy = policy
        self._tools = {tool.name: tool for tool in tools}
        self._max_turns = max_turns

    @rollout_trace_op(kind="CHAIN")
    async def run(self, question: str, request_id: str, sampling_params: SamplingParams) -> AgentLoopOutput:
        """Run until the policy answers or has spoken `max_turns` times.

        Args:
            question: The problem.
            request_id: Names the trajectory to the engine.
            sampling_params: How tokens are drawn.
        """
        opening = write_message(Message("system", SYSTEM_PROMPT)) + write_message(Message("user", question))
        prompt_ids = self.tokenizer.encode(opening + open_assistant_message())
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
                told = "".join(write_message(Message("tool", result)) for result in results)
                token_ids = token_ids + self.tokenizer.encode(
                    close_assistant_message() + told + open_assistant_message()
                )
        return AgentLoopOutput(
            answer=answer,
            prompt_ids=prompt_ids,
            response_ids=token_ids[len(prompt_ids) :],
            turns=turns,
            tool_errors=tool_errors,
            truncated=answer is None,
        )

    async def _call(self, call: ToolCall) -> str:
        tool = self._tools.get(call.tool)
        if tool is None:
            return f"error: there is no tool {call.tool!r}"
        try:
            return await tool.execute(call.argument)
        except ToolError as error:
            return f"error: {error}"
