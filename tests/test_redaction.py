"""Secrets in payloads."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from otel_rollout.processing.redaction import BUILT_IN, Redactor, compile_pattern, make_redactor
from tests.secret_shapes import FORMS, ORDINARY_KEYS, ORDINARY_TEXTS, ORDINARY_VALUES, SECRET, SECRET_KEYS, TEXTS

MEBIBYTE = 2**20

HOSTILE = [
    (begin * (MEBIBYTE // len(begin)))[:MEBIBYTE]
    for begin in (
        '"api_key":', '"api_key":["', '"password": ', "'password': '", "password=", "password: ", "token=a1b2c3d4 ",
        "[('password','", "--password ", "<password>", "name: password value: ",
        '"value":', "value: ", '"name":"x","value":', "Authorization: Basic ", "Cookie: a=",
        "sk-", "xoxb-", "ghp_", "eyJ", "AKIA", "AIza", "SG.", "Bearer ", "://", "://a:", "://:@", "a@", "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----", "-----END ", "_", "-", ":", "=", ">", "[", "(", '"', "'", "\\", "\\n", " ", "A",
        "{", '{"a":', '[["', "\u200b", "key",
    )
] + [
    begin + filling * MEBIBYTE
    for begin in (
        "sk-", "eyJ", "://a:", "Bearer ", 'password="', '"api_key":"', "password: ", "<password>", "--password ",
    )
    for filling in ("a", "\\", "1", " ")
]  # fmt: skip


def redact(value: Any, **options: Any) -> Any:
    """Return the redacted value as Python objects."""
    return orjson.loads(Redactor(**options)(orjson.dumps(value)))


class TestKeys:
    """Which keys name a secret."""

    @pytest.mark.parametrize("key", SECRET_KEYS)
    def test_secret(self, key):
        """A text under it is replaced, at any depth."""
        assert redact({"a": [{key: "hunter2", "b": 1}]}) == {"a": [{key: "[redacted]", "b": 1}]}

    @pytest.mark.parametrize("key", ORDINARY_KEYS)
    def test_no_secret(self, key):
        """A text under it stays."""
        assert redact({key: "value"}) == {key: "value"}

    @pytest.mark.parametrize("value", ORDINARY_VALUES, ids=repr)
    def test_values_that_stay(self, value):
        """Numbers, tokens of a model, schemas, names of fields and media stay, inside JSON in a text too."""
        assert redact(value) == value
        assert redact({"text": json.dumps(value)}) == {"text": json.dumps(value)}

    @pytest.mark.parametrize("value", [7, [1, 2, 3], None, True, {"id": 5, "text": "hi"}, ["Hel", "lo"], ""])
    def test_a_token_that_is_no_text(self, value):
        """Under `token`, only a text can be a secret: the rest are a model's tokens."""
        assert redact({"token": value}) == {"token": value}

    def test_header_with_several_values(self):
        """All texts of a list under a header's name are replaced."""
        assert redact({"Authorization": ["Bearer a", "Basic b"]}) == {"Authorization": ["[redacted]", "[redacted]"]}

    def test_list_of_texts_and_others(self):
        """Each text of a list is replaced, next to any other value."""
        value = {"authorization": ["Bearer sk", None, ["Basic b"], {"api_key": "k", "n": 1}]}

        assert redact(value) == {
            "authorization": ["[redacted]", None, ["[redacted]"], {"api_key": "[redacted]", "n": 1}]
        }

    def test_object_below_a_key(self):
        """All texts of an object under a secret's key are replaced; its keys and numbers stay."""
        value = {"credentials": {"user": "bob", "nested": [{"code": "x", "port": 5432}]}, "cookies": {"sid": "abc"}}

        assert redact(value) == {
            "credentials": {"user": "[redacted]", "nested": [{"code": "[redacted]", "port": 5432}]},
            "cookies": {"sid": "[redacted]"},
        }

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({"name": "api_key", "value": "k"}, {"name": "api_key", "value": "[redacted]"}),
            ({"header": "Authorization", "value": "k"}, {"header": "Authorization", "value": "[redacted]"}),
            ([["x-api-key", "k"], ["accept", "a"]], [["x-api-key", "[redacted]"], ["accept", "a"]]),
            (["run", "--api-key", "k", "--n", "1"], ["run", "--api-key", "[redacted]", "--n", "1"]),
        ],
    )
    def test_pairs(self, value, expected):
        """A name and its value may be side by side: in an object, in a list of pairs, in a command's arguments."""
        assert redact({"a": value}) == {"a": expected}

    def test_own_keys(self):
        """With keys of a user's alone the built-in ones don't count."""
        value = {"customer_name": "Ada", "theCustomerName": "Ada", "password": "k", "GITHUB_TOKEN": "k"}

        assert redact(value, keys=["Customer-Name"]) == {
            "customer_name": "[redacted]",
            "theCustomerName": "[redacted]",
            "password": "k",
            "GITHUB_TOKEN": "k",
        }

    def test_no_keys(self):
        """With no keys nothing is replaced by its key."""
        assert redact({"api_key": "k"}, keys=[]) == {"api_key": "k"}


class TestTexts:
    """The texts that are searched."""

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
        """In invalid JSON, or JSON within other text, the values after the keys are replaced."""
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

    @pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:16])
    def test_hostile_texts(self, text):
        """Texts that begin many secrets and end none don't keep the secret beside them."""
        assert redact({"result": text, "api_key": "k"})["api_key"] == "[redacted]"

    def test_payload_that_is_one_text(self):
        """A payload may be nothing but a text that holds JSON."""
        assert orjson.loads(redact('{"password": "p"}')) == {"password": "[redacted]"}

    def test_nested_deeper_than_can_be_written(self):
        """A text that can't be searched is not exported."""
        text = b"[" * 600 + b'{"api_key":"k"}' + b"]" * 600

        assert Redactor()(text) == b'"[redacted]"'


class TestTables:
    """Every shape that a secret was seen in, and what only looks like one."""

    @pytest.mark.parametrize("shape", TEXTS)
    def test_text(self, shape):
        """A secret in this shape is replaced, in a payload's text and in a text of its own."""
        assert SECRET not in redact({"messages": [{"role": "user", "content": TEXTS[shape]}]})["messages"][0]["content"]
        assert SECRET not in Redactor().text(TEXTS[shape])

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("around", ["{}", "x {} y", "'{}'", "a\n{}\nb", "({})", "{}.", "id={};"])
    def test_form(self, form, around):
        """A secret with a form of its own is replaced in any surroundings, and in JSON in a text."""
        text = around.format(FORMS[form])

        assert FORMS[form][:30] not in redact({"x": text})["x"]
        assert FORMS[form][:30].replace("\n", "\\n") not in redact({"x": json.dumps([1, text])})["x"]
        assert FORMS[form][-20:] not in Redactor().text(text)

    def test_form_as_a_key(self):
        """A secret as a key is replaced; different keys stay different."""
        value = {FORMS["OpenAI"]: 1, FORMS["Slack"]: 2, "a": 3}

        assert redact(value) == {"a": 3, "[redacted]": 1, "[redacted]'": 2}

    @pytest.mark.parametrize("text", ORDINARY_TEXTS, ids=lambda text: text[:24])
    def test_ordinary_text(self, text):
        """Programs and sentences that mention secrets stay as they are, in a payload and by themselves."""
        assert redact({"content": text}) == {"content": text}
        assert Redactor().text(text) == text

    def test_what_stands_around_a_secret_stays(self):
        """Only the value goes."""
        assert (
            Redactor().text("db: postgres://bob:pw@host:5432/x?a=1") == "db: postgres://bob:[redacted]@host:5432/x?a=1"
        )
        assert Redactor().text("curl -H 'Authorization: Bearer abc' x") == "curl -H 'Authorization: [redacted]' x"
        assert Redactor().text("Bearer abcdefgh12345 failed") == "Bearer [redacted] failed"
        assert Redactor().text("f(a=1, password='x y', b=2)") == "f(a=1, password='[redacted]', b=2)"

    def test_count(self):
        """Each replaced value is counted."""
        redactor = Redactor()

        redactor(orjson.dumps({"api_key": "a", "n": 1, "text": "password=hunter2 token=abc12345"}))

        assert redactor.redacted == 3


class TestPatterns:
    """Patterns of a user's."""

    def test_pattern(self):
        """Matches of a user's pattern are replaced in any text and key, in addition to the built-in forms."""
        value = {"a": "for CUST-12345 and CUST-678", "CUST-99999-and-so-on": "x", "n": 12345, "api_key": "k"}

        assert redact(value, patterns=["CUST-[0-9]+"]) == {
            "a": "for [redacted] and [redacted]",
            "[redacted]-and-so-on": "x",
            "n": 12345,
            "api_key": "[redacted]",
        }

    def test_pattern_sees_the_text_itself(self):
        """A pattern looks at the text as it was, not as JSON writes it: quotes, lines and ends are its own."""
        assert redact({"a": 'say "x"\nid 5'}, patterns=[r'"x"\nid \d$']) == {"a": "say [redacted]"}

    @pytest.mark.parametrize(
        "pattern",
        [
            "CUST-[0-9]{8}", "INT_[a-z]+", "(?:[0-9]{4}-){3}[0-9]{4}", "t-(?:a|b)[0-9]{2,8}", "(?i)emp[0-9]+", "[]a]+",
            r"\bfoo\b.{0,20}\d", "a{1,30}b{1,30}c", "a|b+", "(?P<n>ab)(?=c)", r"\(x\)*",
        ],
    )  # fmt: skip
    def test_linear(self, pattern):
        """A pattern is accepted if its repeats have an end, or are at its end."""
        assert compile_pattern(pattern).pattern == pattern

    @pytest.mark.parametrize(
        "pattern",
        [
            "(a+)+$", "(a*)*b", "[a-z]+@corp", ".*x", "(?:a|b)+c", "(a|a){20}", "a{1,50}b{1,50}c", "(?:a+|b)x",
            "(?:a{1,9}){9}b", "x(?=.*y)", "a+?b", "(?:a?){50}b",
        ],
    )  # fmt: skip
    def test_not_linear(self, pattern):
        """A pattern that could take more than linear time is refused: it would hold the GIL meanwhile."""
        with pytest.raises(ValueError, match="linear time"):
            compile_pattern(pattern)


class TestMakeRedactor:
    """Redactors from settings."""

    def test_built_in_and_more(self):
        """A name is added to the built-in ones, and one with a minus sign is taken out of them."""
        redactor = make_redactor((BUILT_IN, "-auth", "nickname"), (BUILT_IN,))

        assert redactor is not None
        assert orjson.loads(redactor(b'{"auth":"a","nickname":"b","password":"c"}')) == {
            "auth": "a",
            "nickname": "[redacted]",
            "password": "[redacted]",
        }

    def test_nothing(self):
        """Without keys and patterns there is nothing to replace; without one of them, the other counts."""
        key, form = b'{"password":"a"}', b'{"a":"%s"}' % FORMS["OpenAI"].encode()
        forms, keys = make_redactor((), (BUILT_IN,)), make_redactor((BUILT_IN,), ())

        assert make_redactor((), ()) is None
        assert forms is not None
        assert keys is not None
        assert (forms(key), forms(form)) == (key, b'{"a":"[redacted]"}')
        assert (keys(key), keys(form)) == (b'{"password":"[redacted]"}', form)
