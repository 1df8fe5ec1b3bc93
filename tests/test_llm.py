"""The GenAI attributes of a language model's call."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import get_current_span

import otel_rollout
from otel_rollout import rollout_trace_op, semconv
from otel_rollout.record import describe_request, describe_response


def attributes(
    model: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    reason: str | None = None,
    answered: str | None = None,
    cached: int | None = None,
    written: int | None = None,
) -> dict[str, Any]:
    """Return the attributes, without those that are None."""
    every = {
        semconv.REQUEST_MODEL: model,
        semconv.RESPONSE_MODEL: answered,
        semconv.USAGE_INPUT_TOKENS: input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: output_tokens,
        semconv.USAGE_CACHED_TOKENS: cached,
        semconv.USAGE_CACHE_WRITE_TOKENS: written,
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
                attributes("asked", 5, 7, "stop", "answered"),
            ),
            (
                {},
                SimpleNamespace(
                    model="claude",
                    usage=SimpleNamespace(input_tokens=5, output_tokens=7),
                    stop_reason="end_turn",
                    choices=None,
                ),
                attributes(None, 5, 7, "end_turn", "claude"),
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
        assert describe_response(describe_request(arguments or {}), result) == expected

    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            (
                {
                    "prompt_tokens": 10,
                    "completion_tokens": 7,
                    "prompt_tokens_details": SimpleNamespace(cached_tokens=8),
                },
                attributes(None, 10, 7, cached=8),
            ),
            (
                SimpleNamespace(input_tokens=10, output_tokens=7, input_tokens_details={"cached_tokens": 0}),
                attributes(None, 10, 7, cached=0),
            ),
            (
                SimpleNamespace(
                    input_tokens=2, output_tokens=7, cache_read_input_tokens=30, cache_creation_input_tokens=400
                ),
                attributes(None, 432, 7, cached=30, written=400),
            ),
            (
                {"prompt_tokens": 432, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 400},
                attributes(None, 432, cached=30, written=400),
            ),
            (
                {"input_tokens": 2, "cache_read_input_tokens": None, "input_tokens_details": None},
                attributes(None, 2),
            ),
            ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": "8"}}, attributes(None, 10)),
        ],
        ids=["openai chat", "openai responses", "anthropic", "litellm", "none", "wrong types"],
    )
    def test_cached_tokens(self, usage, expected):
        """Cached tokens are part of the input tokens: Anthropic's numbers are added up, OpenAI's include them."""
        assert describe_response({}, {"usage": usage}) == expected

    def test_arrays(self):
        """Ids may be arrays; one without dimensions has no length, and an array is no model's name."""
        np = pytest.importorskip("numpy")

        request = describe_request({"model": np.zeros(3)})
        response = {"prompt_ids": np.arange(4), "token_ids": np.array(1)}

        assert describe_response(request, response) == attributes(None, 4)

    def test_more_ids_than_a_snapshot_holds(self, rollout_spans):
        """The tokens are those of the value, also where its snapshot is cut."""

        @rollout_trace_op(kind="LLM")
        def generate(text):
            return {"prompt_ids": list(range(2_000_000)), "response_ids": [1, 2, 3]}

        generate("hi")
        otel_rollout.flush()

        (span,) = rollout_spans.spans
        assert span.attributes[semconv.USAGE_INPUT_TOKENS] == 2_000_000
        assert span.attributes[semconv.USAGE_OUTPUT_TOKENS] == 3

    def test_ids_that_grow_during_the_call(self, rollout_spans):
        """The prompt's tokens are counted as they were given: a loop may extend the list that it passes."""

        @rollout_trace_op(kind="LLM")
        def generate(prompt_ids):
            prompt_ids.extend([6, 7, 8])
            return {"token_ids": [6, 7, 8]}

        generate([1, 2, 3, 4, 5])
        otel_rollout.flush()

        (span,) = rollout_spans.spans
        assert span.attributes[semconv.USAGE_INPUT_TOKENS] == 5
        assert span.attributes[semconv.USAGE_OUTPUT_TOKENS] == 3

    @pytest.mark.parametrize(
        ("package", "provider"),
        [("openai.types.chat.chat_completion", "openai"), ("anthropic.types.message", "anthropic"), ("mine", None)],
    )
    @pytest.mark.parametrize("fails", [False, True], ids=["returned", "raised"])
    def test_provider_of_a_client_library(self, rollout_spans, package, provider, fails):
        """The class of a client library's result or error gives the provider; other classes give none."""
        kind = type("Answer", (Exception,), {"__module__": package})

        @rollout_trace_op(kind="LLM")
        def generate():
            if fails:
                raise kind
            return kind()

        with contextlib.suppress(kind):
            generate()
        otel_rollout.flush()

        (span,) = rollout_spans.spans
        assert span.attributes.get(semconv.PROVIDER_NAME) == provider

    def test_provider_that_the_program_names(self, rollout_spans):
        """An argument wins over the class of the result, and what was set on the span over both."""
        answer = type("ChatCompletion", (), {"__module__": "openai.types"})

        @rollout_trace_op(kind="LLM")
        def generate(provider, name=None):
            if name:
                get_current_span().set_attribute(semconv.PROVIDER_NAME, name)
            return answer()

        generate("deepseek")
        generate("deepseek", "azure.ai.openai")
        otel_rollout.flush()

        assert [span.attributes[semconv.PROVIDER_NAME] for span in rollout_spans.spans] == [
            "deepseek",
            "azure.ai.openai",
        ]

    @pytest.mark.parametrize("options", [{"capture_output": False}, {"capture_inputs": False}])
    def test_facts_of_a_side_that_is_not_recorded(self, rollout_spans, options):
        """Model and tokens are there where the payload is left out."""

        @rollout_trace_op(kind="LLM", **options)
        def generate(prompt_ids, model):
            return {"token_ids": [6, 7, 8]}

        generate([1, 2], "small")
        otel_rollout.flush()

        (span,) = rollout_spans.spans
        assert {
            semconv.REQUEST_MODEL: "small",
            semconv.USAGE_INPUT_TOKENS: 2,
            semconv.USAGE_OUTPUT_TOKENS: 3,
        }.items() <= (span.attributes.items())
