"""A byte-level BPE tokenizer, trained on the demo's own problems in a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from otel_rollout.demo.chat import SPECIAL_TOKENS, SYSTEM_PROMPT, write_tool_call
from otel_rollout.demo.problems import LOOKUP_TABLE, PROBLEMS

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
