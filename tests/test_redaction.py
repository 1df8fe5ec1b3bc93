"""Secrets in payloads."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from otel_rollout.redaction import Redactor


def redact(value: Any, **options: Any) -> Any:
    """Return what a reader sees."""
    return orjson.loads(Redactor(**options)(orjson.dumps(value)))


class TestKeys:
    """Which keys name a secret."""

    @pytest.mark.parametrize(
        "key",
        [
            "api_key", "apikey", "apiKey", "API_KEY", "OPENAI_API_KEY", "X-API-Key", "x-goog-api-key", "Authorization",
            "proxy-authorization", "Proxy-Authorization", "password", "db_password", "token", "Token",
            "access_token", "accessToken",
            "hf_token", "X-Auth-Token", "refreshToken", "client_secret", "clientSecret", "secret",
            "aws_secret_access_key",
            "privateKey", "cookie", "Set-Cookie", "openai.api_key",
        ],
    )  # fmt: skip
    def test_secret(self, key):
        """A text under it is replaced, at any depth."""
        assert redact({"a": [{key: "hunter2", "b": 1}]}) == {"a": [{key: "[redacted]", "b": 1}]}

    @pytest.mark.parametrize(
        "key",
        [
            "prompt_ids", "token_ids", "response_ids", "max_tokens", "max_new_tokens", "tokens", "eos_token",
            "pad_token", "bos_token", "tokenizer", "token_count", "valid_token", "next_token", "key", "keys",
            "content", "secretary", "author", "monkey",
        ],
    )  # fmt: skip
    def test_no_secret(self, key):
        """A text under it stays."""
        assert redact({key: "value"}) == {key: "value"}

    @pytest.mark.parametrize("value", [7, [1, 2, 3], None, True, {"id": 5, "text": "hi"}, ["Hel", "lo"], ""])
    def test_a_token_that_is_no_text(self, value):
        """Under `token`, only a text can be a secret: the rest are a model's tokens."""
        assert redact({"token": value}) == {"token": value}

    def test_header_with_several_values(self):
        """All texts of a list under a header's name are replaced."""
        assert redact({"Authorization": ["Bearer a", "Basic b"]}) == {"Authorization": ["[redacted]", "[redacted]"]}

    def test_own_keys(self):
        """The keys can be chosen; then the built-in ones don't count."""
        value = {"customer_name": "Ada", "api_key": "k"}

        assert redact(value, keys=["Customer-Name"]) == {"customer_name": "[redacted]", "api_key": "k"}

    def test_no_keys(self):
        """With no keys nothing is replaced."""
        assert redact({"api_key": "k"}, keys=[]) == {"api_key": "k"}


class TestTexts:
    """What is searched."""

    def test_untouched_text_comes_back_as_it_is(self):
        """Without a secret, not one byte changes."""
        text = b'{ "content": "what is an api_key?" , "n": 1.0 }'

        assert Redactor()(text) is text

    def test_json_within_a_text(self):
        """The arguments of a tool call are JSON in a text; secrets in it are found, at any depth of nesting."""
        inner = orjson.dumps({"headers": {"authorization": "Bearer a"}}).decode()
        arguments = orjson.dumps({"api_key": "k", "q": 1, "body": inner}).decode()

        seen = redact({"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]})

        called = orjson.loads(seen["tool_calls"][0]["function"]["arguments"])
        assert called["api_key"] == "[redacted]"
        assert called["q"] == 1
        assert orjson.loads(called["body"]) == {"headers": {"authorization": "[redacted]"}}

    def test_broken_json_within_a_text(self):
        """A text that only looks like JSON stays as it is."""
        value = {"text": '{"api_key": "k", ', "a": '["api_key": 1'}

        assert redact(value) == value

    def test_payload_that_is_one_text(self):
        """A payload may be nothing but a text that holds JSON."""
        assert orjson.loads(redact('{"password": "p"}')) == {"password": "[redacted]"}

    def test_nested_deeper_than_can_be_written(self):
        """What can't be searched does not leave."""
        text = b"[" * 600 + b'{"api_key":"k"}' + b"]" * 600

        assert Redactor()(text) == b'"[redacted]"'
