"""Secrets in payloads."""

from __future__ import annotations

import json
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
            "privateKey", "cookie", "Set-Cookie", "openai.api_key", "GITHUB_TOKEN", "HUGGING_FACE_HUB_TOKEN",
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
            "content", "secretary", "author", "monkey", "EOS_TOKEN", "PAD_TOKEN", "MASK_TOKEN", "MAX_TOKENS",
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

    def test_list_of_texts_and_others(self):
        """Each text of a list is replaced, whatever stands beside it."""
        value = {"authorization": ["Bearer sk", None, ["Basic b"], {"api_key": "k", "n": 1}]}

        assert redact(value) == {
            "authorization": ["[redacted]", None, ["[redacted]"], {"api_key": "[redacted]", "n": 1}]
        }

    def test_upper_case_tokens_go_with_token(self):
        """Variables such as `GITHUB_TOKEN` are replaced because `token` is among the keys, not with other keys."""
        assert redact({"GITHUB_TOKEN": "k"}, keys=["auth_token"]) == {"GITHUB_TOKEN": "k"}

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

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (json.dumps({"api_key": "sk-1", "score": float("nan")}), '{"api_key": "[redacted]", "score": NaN}'),
            (json.dumps({"api_key": "sk-1", "x": "\ud800"}), '{"api_key": "[redacted]", "x": "\\ud800"}'),
            ('{"api_key":"sk-1"}\n{"secret":"sk-2"}', '{"api_key":"[redacted]"}\n{"secret":"[redacted]"}'),
            ('\n {"api_key": "sk-1"}', '{"api_key":"[redacted]"}'),
            ('{"api_key": "sk-1", ', '{"api_key": "[redacted]", '),
            ('{"api_key": "sk-1', '{"api_key": "[redacted]"'),
            ('{"authorization": ["sk-1", NaN, "sk-2"], "n": 1}', '{"authorization": ["[redacted]"], "n": 1}'),
            ('<call>{"n": 1, "apiKey": "sk-1"}</call>', '<call>{"n": 1, "apiKey": "[redacted]"}</call>'),
            (json.dumps('{"api_key": "sk-1"}'), '"{\\"api_key\\": \\"[redacted]\\"}"'),
        ],
        ids=["nan", "surrogate", "lines", "newline", "comma", "cut", "list", "tags", "twice"],
    )  # fmt: skip
    def test_secret_in_a_text_that_is_no_json(self, text, expected):
        """In JSON that can't be read, or stands among other text, the values behind the keys are replaced."""
        assert redact({"result": text}) == {"result": expected}

    def test_json_that_is_nested_in_json_that_can_not_be_read(self):
        """Quotes that are escaped several times are followed to where the value ends."""
        value = {"authorization": ['a "quoted" sk-1', "sk-2"], "api_key": 'sk-3 "\\', "n": float("nan")}
        text = json.dumps(value)
        for _ in range(4):
            text = json.dumps({"body": text, "n": float("nan")})

        seen = redact({"result": text})["result"]

        assert "sk-" not in seen
        for _ in range(4):
            seen = json.loads(seen)["body"]
        assert seen.startswith('{"authorization": ["[redacted]"], "api_key": "[redacted]"')

    @pytest.mark.parametrize(
        "text",
        [
            '["api_key": 1',
            '{"n": NaN, "token": ["Hel", "lo"], "tokens": "a", "api_key": ""}',
            'the "monkey": "value" and what is an api_key?',
        ],
    )
    def test_no_secret_in_a_text(self, text):
        """A text without a secret stays as it is."""
        assert redact({"result": text}) == {"result": text}

    @pytest.mark.parametrize(
        "text",
        ['"api_key":' * 50_000, '"api_key":["' * 50_000, '"api_key":"' + "\\" * 500_000, '"api_key":[' + '"a",' * 9999],
        ids=["keys", "lists", "backslashes", "items"],
    )  # fmt: skip
    def test_hostile_texts(self, text):
        """Long texts that begin many keys and end none don't keep the secret beside them."""
        assert redact({"result": text, "api_key": "k"})["api_key"] == "[redacted]"

    def test_payload_that_is_one_text(self):
        """A payload may be nothing but a text that holds JSON."""
        assert orjson.loads(redact('{"password": "p"}')) == {"password": "[redacted]"}

    def test_nested_deeper_than_can_be_written(self):
        """What can't be searched does not leave."""
        text = b"[" * 600 + b'{"api_key":"k"}' + b"]" * 600

        assert Redactor()(text) == b'"[redacted]"'
