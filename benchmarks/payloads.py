"""What the traced functions take and return: chats of a given size, and lists of token ids."""

from __future__ import annotations

import random
from typing import Any

_TEXT = (
    "the agent looks up a price, multiplies it by the number of tickets and checks the result before it answers; "
    'it was told "show each step", so the calculation is written out line by line and the tool is called again\n'
)
VOCABULARY = 151_936


def chat(size: int) -> list[dict[str, str]]:
    """Return a conversation whose JSON text takes about `size` bytes."""
    generator = random.Random(size)
    vocabulary = _TEXT.split(" ")
    messages: list[dict[str, str]] = []
    taken = 0
    while taken < size:
        words = " ".join(generator.choices(vocabulary, k=120))[: max(16, min(600, size - taken - 40))]
        messages.append({"role": ("user", "assistant", "tool")[len(messages) % 3], "content": words})
        taken += len(words) + 40
    return messages


def token_ids(count: int) -> list[int]:
    """Return `count` ids as a tokenizer would give them."""
    generator = random.Random(count)
    return [generator.randrange(VOCABULARY) for _ in range(count)]


def answer(size: int) -> dict[str, Any]:
    """Return what an agent loop gives back: a chat of about `size` bytes with a few scalars."""
    return {"messages": chat(size - 60), "finish_reason": "stop", "reward": 1.0, "turns": 3}
