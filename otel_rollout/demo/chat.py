"""The chat format of the demo: how a conversation, a tool call and an answer are written as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from otel_rollout.demo.problems import ToolCall

__all__ = [
    "SPECIAL_TOKENS",
    "SYSTEM_PROMPT",
    "Message",
    "close_assistant_message",
    "find_answer",
    "find_tool_calls",
    "open_assistant_message",
    "read_messages",
    "write_answer",
    "write_message",
    "write_tool_call",
]

_END = "<|end|>"
SPECIAL_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", _END)

SYSTEM_PROMPT = (
    "Solve the problem. You have two tools: calculator works out an arithmetic expression, lookup finds an "
    "entry of the price list. Call a tool with "
    '<tool_call>{"tool": "calculator", "argument": "2 * 3"}</tool_call> '
    "and read its result in the next message. Give the final number as <answer>6</answer>."
)

_MESSAGE = re.compile(r"<\|(system|user|assistant|tool)\|>(.*?)<\|end\|>", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*(-?[\d.,]+)\s*</answer>")


class Message(NamedTuple):
    """One message of a conversation."""

    role: str
    text: str


def write_message(message: Message) -> str:
    """Write a finished message with the special tokens around it."""
    return f"<|{message.role}|>{message.text}{_END}"


def open_assistant_message() -> str:
    """Write what asks the policy to speak."""
    return "<|assistant|>"


def close_assistant_message() -> str:
    """Write what ends the policy's message."""
    return _END


def read_messages(text: str) -> list[Message]:
    """Read the finished messages back from the text of a conversation."""
    return [Message(role, content) for role, content in _MESSAGE.findall(text)]


def write_tool_call(call: ToolCall) -> str:
    """Write a tool call as the policy does."""
    return f"<tool_call>{json.dumps({'tool': call.tool, 'argument': call.argument})}</tool_call>"


def write_answer(answer: str) -> str:
    """Write a final answer as the policy does."""
    return f"<answer>{answer}</answer>"


def find_tool_calls(text: str) -> Sequence[ToolCall]:
    """Return the tool calls in what the policy said; a malformed one counts as none."""
    calls = map(_read_tool_call, _TOOL_CALL.findall(text))
    return [call for call in calls if call is not None]


def find_answer(text: str) -> str | None:
    """Return the final answer in what the policy said, if it gave one."""
    answers: list[str] = _ANSWER.findall(text)
    return answers[-1].replace(",", "") if answers else None


def _read_tool_call(written: str) -> ToolCall | None:
    try:
        fields = json.loads(written)
        return ToolCall(str(fields["tool"]), str(fields["argument"]))
    except (ValueError, KeyError, TypeError):
        return None
