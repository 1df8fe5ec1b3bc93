"""What a call of a language model says of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from otel_rollout import semconv
from otel_rollout.llm import describe_llm_call


def attributes(
    model: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """Return the attributes, without those that are None."""
    every = {
        semconv.REQUEST_MODEL: model,
        semconv.USAGE_INPUT_TOKENS: input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: output_tokens,
        semconv.FINISH_REASONS: (reason,) if reason else None,
    }
    return {key: value for key, value in every.items() if value is not None}


class TestDescription:
    """Model, tokens and the reason why it stopped."""

    @pytest.mark.parametrize(
        ("arguments", "result", "expected"),
        [
            (
                {"model": "asked"},
                {
                    "model": "answered",
                    "usage": {"prompt_tokens": 5, "completion_tokens": 7},
                    "choices": [{"finish_reason": "stop"}],
                },
                attributes("asked", 5, 7, "stop"),
            ),
            (
                {},
                SimpleNamespace(
                    model="claude",
                    usage=SimpleNamespace(input_tokens=5, output_tokens=7),
                    stop_reason="end_turn",
                    choices=None,
                ),
                attributes("claude", 5, 7, "end_turn"),
            ),
            (
                {"prompt_ids": [1, 2, 3]},
                SimpleNamespace(token_ids=[4, 5], stop_reason="completed"),
                attributes(None, 3, 2, "completed"),
            ),
            (None, {"prompt_ids": [1], "response_ids": [2, 3, 4], "token_ids": [9]}, attributes(None, 1, 3)),
            ({}, "plain text", {}),
            (None, None, {}),
            ({"model": 3}, {"usage": {"prompt_tokens": True, "completion_tokens": "7"}}, {}),
        ],
        ids=["openai", "anthropic", "verl generate", "verl agent loop", "text", "nothing", "wrong types"],
    )
    def test_shapes(self, arguments, result, expected):
        """The shapes of OpenAI, Anthropic and verl are read."""
        assert describe_llm_call(arguments, result) == expected

    def test_arrays(self):
        """Ids may be arrays; one without dimensions has no length, and an array is no model's name."""
        np = pytest.importorskip("numpy")

        assert describe_llm_call({"model": np.zeros(3)}, {"prompt_ids": np.arange(4), "token_ids": np.array(1)}) == (
            attributes(None, 4)
        )

    def test_values_that_raise(self):
        """A result that raises when it is looked at says nothing, and does no harm."""

        class Raising:
            def __getattr__(self, name: str) -> Any:
                raise RuntimeError(name)

        assert describe_llm_call({}, Raising()) == {}
        assert describe_llm_call({}, mock.Mock()) == {}
