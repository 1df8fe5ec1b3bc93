"""The demo's chat format, conversations, tool calls and answers as text, and a byte-level BPE tokenizer for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from otel_rollout.demo.problems import LOOKUP_TABLE, PROBLEMS, ToolCall

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ASSISTANT = "<|assistant|>"
"""Asks the policy to generate."""
END = "<|end|>"
SPECIAL_TOKENS = ("<|system|>", "<|user|>", ASSISTANT, "<|tool|>", END)

SYSTEM_PROMPT = (
    "Solve the problem. You have two tools: calculator works out an arithmetic expression, lookup finds an "
    "entry of the price list. Call a tool with\n"
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 * 3"}}\n</tool_call>\n'
    "and read its result in the next message. Give the final number as <answer>6</answer>."
)

PARAMETERS: Final = {"calculator": "expression", "lookup": "entry"}
"""The name of each tool's argument."""

_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ANSWER = re.compile(r"<answer>\s*(-?[\d.,]+)\s*</answer>")


def write_message(role: str, text: str) -> str:
    """Write a finished message with the special tokens around it."""
    return f"<|{role}|>{text}{END}"


def write_tool_call(call: ToolCall) -> str:
    """Write a tool call as the policy does: in the form of Hermes' and Qwen's models."""
    fields = {"name": call.tool, "arguments": {PARAMETERS[call.tool]: call.argument}}
    return f"<tool_call>\n{json.dumps(fields)}\n</tool_call>"


def write_answer(answer: str) -> str:
    """Write a final answer as the policy does."""
    return f"<answer>{answer}</answer>"


def find_tool_calls(text: str) -> list[ToolCall]:
    """Return the tool calls in a generated text, without malformed ones."""
    calls = []
    for written in _TOOL_CALL.findall(text):
        with suppress(ValueError, KeyError, TypeError):
            fields = json.loads(written)
            (argument,) = dict(fields["arguments"]).values()
            calls.append(ToolCall(str(fields["name"]), str(argument)))
    return calls


def find_answer(text: str) -> str | None:
    """Return the final answer in a generated text, if it has one."""
    answers: list[str] = _ANSWER.findall(text)
    return answers[-1].replace(",", "") if answers else None


VOCABULARY_SIZE = 1200


class BpeTokenizer:
    """Encodes text to token ids and decodes it, with special tokens kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))


def train_tokenizer() -> BpeTokenizer:
    """Train on the demo's texts; the vocabulary is always the same."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        _corpus(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return BpeTokenizer(tokenizer)


def _corpus() -> Iterator[str]:
    yield SYSTEM_PROMPT
    for problem in PROBLEMS:
        yield problem.question
        for turn in problem.solution:
            yield turn.thought
            yield from (write_tool_call(call) for call in turn.calls)
    for entry, value in LOOKUP_TABLE.items():
        yield f"{entry} {value}"
