"""The tokenizer is a real one: small, trained on the spot, and exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers")

from otel_rollout.demo import SPECIAL_TOKENS, SYSTEM_PROMPT, train_tokenizer

TOKENIZER = train_tokenizer()


class TestBpeTokenizer:
    """Text to ids and back."""

    def test_compresses_the_demos_text(self):
        """Words of the problems are few tokens, so it has learnt from them."""
        assert len(TOKENIZER.encode(SYSTEM_PROMPT)) < len(SYSTEM_PROMPT) / 3

    @given(st.text(max_size=60))
    def test_decodes_what_it_encoded(self, text: str):
        """Any text comes back the same, other languages and emoji too."""
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text

    @pytest.mark.parametrize("token", SPECIAL_TOKENS)
    def test_special_tokens_are_one_token_and_stay_in_the_text(self, token: str):
        """The roles of a conversation can be read in the decoded text."""
        ids = TOKENIZER.encode(f"a{token}b")
        assert len(ids) == 3
        assert TOKENIZER.decode(ids) == f"a{token}b"

    def test_is_the_same_every_time(self):
        """Two trainings give the same ids, so that a seed gives the same rollout."""
        assert train_tokenizer().encode(SYSTEM_PROMPT) == TOKENIZER.encode(SYSTEM_PROMPT)
