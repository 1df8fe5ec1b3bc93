"""Secrets in payloads."""

from __future__ import annotations

import json
import random
import re
import sys
from typing import Any

import orjson
import pytest

from otel_rollout.finish import DEFAULT_REDACTED_KEYS, Redactor, looks_random, make_redactor
from otel_rollout.settings import BUILT_IN
from otel_rollout.text import compile_pattern
from tests.secret_shapes import FORMS, ORDINARY_KEYS, ORDINARY_TEXTS, ORDINARY_VALUES, SECRET, SECRET_KEYS, TEXTS

KIBIBYTE = 2**10

HOSTILE = [
    (begin * 100_000)[:100_000]
    for begin in (
        '"api_key":', '"api_key":["', '"token":["', '"token":{"type":"string",', '"password": ', "'password': '",
        "password=", "password: ", "token:", "token=a1b2c3d4 ", "[('password','", "--password ", "<password>",
        '"value":', '"name":"x","value":', "Authorization: Basic ", "Cookie: a=", "sk-", "xoxb-", "ghp_", "eyJ", "eyJ.",
        "AKIA", "SG.", "Bearer ", "://", "://a:", "://:@", "-----BEGIN PRIVATE KEY-----", "password:\\n a",
        "| password ", 'token:\\"', "_", "-", ":", "=", ">", "[", "(", '"', "'", "\\", " ", "A", "{",
    )
]  # fmt: skip


def redact(value: Any, **options: Any) -> Any:
    """Return the redacted value as Python objects."""
    return orjson.loads(Redactor(**options)(orjson.dumps(value))[0])


def redact_text(text: str) -> str:
    """Return the redacted text."""
    return Redactor().value(text)[0]


class TestKeys:
    """Which keys name a secret."""

    @pytest.mark.parametrize("key", SECRET_KEYS)
    def test_secret(self, key):
        """A text under it that can be a secret is replaced, at any depth."""
        assert redact({"a": [{key: SECRET, "b": 1}]}) == {"a": [{key: "[redacted]", "b": 1}]}

    @pytest.mark.parametrize("key", ORDINARY_KEYS)
    def test_no_secret(self, key):
        """A text under it stays."""
        assert redact({key: "value"}) == {key: "value"}

    @pytest.mark.parametrize("value", ORDINARY_VALUES, ids=repr)
    def test_values_that_stay(self, value):
        """Words, paths, tokens of a model, schemas, names of fields and media stay, inside JSON in a text too."""
        assert redact(value) == value
        assert redact({"text": json.dumps(value)}) == {"text": json.dumps(value)}

    @pytest.mark.parametrize("value", [7, [1, 2, 3], None, True, {"id": 5, "text": "hi"}, ["Hel", "lo"], ""])
    def test_a_token_that_is_no_text(self, value):
        """Under `token`, only a text can be a secret: the rest are a model's tokens."""
        assert redact({"token": value}) == {"token": value}

    @pytest.mark.parametrize("key", ["password", "pin", "passphrase"])
    def test_a_number(self, key):
        """A number is a secret under these keys alone; JSON stays valid."""
        assert redact({key: 271828, "api_key": 271828}) == {key: "[redacted]", "api_key": 271828}

    @pytest.mark.parametrize("value", ["123456x9!", "x9!12345", "test-1234", "y-7654321"])
    def test_a_password_of_letters_digits_and_punctuation(self, value):
        """The letters of a mixed password may be a placeholder's."""
        assert redact({"password": value}) == {"password": "[redacted]"}

    @pytest.mark.parametrize("value", ["123456", "123456789", "anonymous", "undefined", "disabled"])
    def test_what_nobody_keeps_secret(self, value):
        """The words and numbers that stand where no secret is set stay."""
        assert redact({"password": value}) == {"password": value}

    @pytest.mark.parametrize(
        "value", ["$PASSWORD", "${X}", "<your key>", "YOUR_API_KEY", "/run/secrets/x", "os.environ['X']"]
    )
    def test_references(self, value):
        """Variables, placeholders and paths stay."""
        assert redact({"api_key": value, "password": value}) == {"api_key": value, "password": value}

    def test_header_with_several_values(self):
        """All texts of a list under a header's name are replaced."""
        value = {"Authorization": [f"Bearer {SECRET}", f"Token {SECRET}"]}

        assert SECRET not in str(redact(value))

    def test_object_below_a_key(self):
        """Texts of an object under a secret's key are replaced; its keys, numbers and words stay."""
        value = {"credentials": {"user": "bob", "nested": [{"code": SECRET, "port": 5432}]}, "cookies": {"sid": SECRET}}

        assert redact(value) == {
            "credentials": {"user": "bob", "nested": [{"code": "[redacted]", "port": 5432}]},
            "cookies": {"sid": "[redacted]"},
        }

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({"name": "api_key", "value": SECRET}, {"name": "api_key", "value": "[redacted]"}),
            ({"header": "Authorization", "value": SECRET}, {"header": "Authorization", "value": "[redacted]"}),
            ([["x-api-key", SECRET], ["accept", "a"]], [["x-api-key", "[redacted]"], ["accept", "a"]]),
            (["run", "--api-key", SECRET, "--n", "1"], ["run", "--api-key", "[redacted]", "--n", "1"]),
        ],
    )
    def test_pairs(self, value, expected):
        """A name and its value may be side by side: in an object, in a list of pairs, in a command's arguments."""
        assert redact({"a": value}) == {"a": expected}

    def test_own_keys(self):
        """With keys of a user's alone the built-in ones don't count; whatever is under them is a secret."""
        value = {"customer_name": "Ada", "theCustomerName": "Ada", "password": SECRET, "GITHUB_TOKEN": SECRET}

        assert redact(value, keys=["Customer-Name"]) == {
            "customer_name": "[redacted]",
            "theCustomerName": "[redacted]",
            "password": SECRET,
            "GITHUB_TOKEN": SECRET,
        }

    def test_no_keys(self):
        """With no keys nothing is replaced by its key."""
        assert redact({"api_key": SECRET}, keys=[]) == {"api_key": SECRET}


class TestAttributes:
    """Attributes of a span."""

    def test_option_and_header_in_a_list(self):
        """In a list attribute, the value after an option or a header is replaced."""
        given = {"process.command_args": ("train.py", "--api-key", SECRET), "headers": ("Authorization", SECRET)}

        assert Redactor().value(given)[0] == {
            "process.command_args": ("train.py", "--api-key", "[redacted]"),
            "headers": ("Authorization", "[redacted]"),
        }

    def test_secret_in_a_name(self):
        """A secret in an attribute's name is replaced."""
        assert Redactor().value({FORMS["OpenAI, old"]: "x", FORMS["Slack"]: "y", "a": 1})[0] == {
            "[redacted]": "x",
            "[redacted] (2)": "y",
            "a": 1,
        }

    def test_nothing_to_replace(self):
        """Attributes without a secret come back as they are."""
        given = {"a": "b", "n": (1, 2), "names": ("x", "y")}

        assert Redactor().value(given)[0] is given


class TestTexts:
    """The texts that are searched."""

    def test_untouched_text_comes_back_as_it_is(self):
        """Without a secret, not one byte changes."""
        text = b'{ "content": "what is an api_key?" , "n": 1.0 }'

        assert Redactor()(text)[0] is text

    @pytest.mark.parametrize(
        "around",
        [
            '{"n": 265252859812191058636308480000000, "page_token": "tok", "password": "%s"}',
            '{"x": 1.10, "y": 1e400, "z": 1E5, "w": -0, "api_key":"%s"}',
            '{"x": 0.1000000000000000055511151231257827, "password":"%s"}',
            '{"a":1,"a":2,"password":"%s"}',
            '\n {"s":"\\/ \\u00e9", "password":"%s"}\t',
        ],
    )
    def test_what_stands_around_a_secret_stays(self, around):
        """Numbers, equal keys, escapes and spaces around a secret stay byte for byte."""
        assert redact_text(around % SECRET) == around % "[redacted]"
        assert Redactor()((around % SECRET).encode())[0] == (around % "[redacted]").encode()
        assert redact({"text": around % SECRET}) == {"text": around % "[redacted]"}

    def test_only_the_value_goes(self):
        """The rest of an address, a header and a call stays."""
        assert redact_text("db: postgres://bob:pw12@host:5432/x?a=1") == "db: postgres://bob:[redacted]@host:5432/x?a=1"
        assert (
            redact_text(f"curl -H 'Authorization: Bearer {SECRET}' x") == "curl -H 'Authorization: Bearer [redacted]' x"
        )
        assert redact_text("f(a=1, password='x4 y8', b=2)") == "f(a=1, password='[redacted]', b=2)"

    @pytest.mark.parametrize(
        ("text", "clean"),
        [
            ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
            ("sent Basic dXNlcjpwYXNz to x", "sent Basic [redacted] to x"),
            ("HOST=db\nDB_PASSWORD=xq;def|9xK&q\nN=2", "HOST=db\nDB_PASSWORD=[redacted]\nN=2"),
            ("private_key: Ym9iOmh1bnRlcjI=", "private_key: [redacted]"),
            ("api_key = 'c0ffee-77' for curl -u bob:hunter2x9", "api_key = '[redacted]' for curl -u bob:[redacted]"),
        ],
    )
    def test_a_whole_value(self, text, clean):
        """Short credentials in base64 go too, and all signs of a line's password; a command hides none before it."""
        assert redact_text(text) == clean

    @pytest.mark.parametrize("depth", [1, 2, 3, 4])
    def test_json_within_json(self, depth):
        """Secrets in JSON inside strings are found at any depth; each level stays valid."""
        value: Any = {"authorization": [f'x "quoted" {SECRET}', SECRET], "api_key": f'{SECRET}"\\', "n": 1}
        for _ in range(depth):
            value = {"body": json.dumps(value)}

        seen = redact(value)

        assert SECRET not in str(seen)
        for _ in range(depth):
            seen = json.loads(seen["body"])
        assert (seen["api_key"], seen["n"]) == ("[redacted]", 1)

    @pytest.mark.parametrize("shape", [*TEXTS, *FORMS])
    def test_json_stays_valid(self, shape):
        """Whatever is replaced, JSON stays valid, and strings beside it stay."""
        text = {**TEXTS, **FORMS}[shape]
        value = {"a": text, "b": "it's", "c": [text, 'a "b"', "`d"], "e": json.dumps([text, "it's"])}

        seen = redact(value)

        assert (seen["b"], seen["c"][1:]) == ("it's", ['a "b"', "`d"])
        assert json.loads(seen["e"])[1] == "it's"

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({"a": f'"password": "{SECRET}' + "\\" * 256 + '" b'}, {"a": '"password": "[redacted]" b'}),
            ({"a": "x\nB38Q~" + "a1B2" * 8 + "cd"}, {"a": "x\nB38Q~" + "a1B2" * 8 + "cd"}),
            *(
                ({"a": "c", f"password{end}": 48213907}, {"a": "c", f"password{end}": "[redacted]"})
                for end in ("", "\\")
            ),
            ({"text": "password: [\\", "b": {"x": "wxyz"}}, {"text": "password: [\\", "b": {"x": "wxyz"}}),
            ({"a": 'x password("xY7zQ9wE\\', "b": "c"}, {"a": 'x password("[redacted]', "b": "c"}),
        ],
        ids=["many", "an escape's letter", "a key", "a key with one", "an open list", "an open text"],
    )
    def test_backslashes(self, value, expected):
        """Quotes and ends of texts are those of JSON, whatever backslashes are before them."""
        assert redact(value) == expected

    @pytest.mark.parametrize("token", ["xai-", "nvapi-", "jina_", "glpat-", "hf_"])
    def test_token_at_the_end_of_a_sentence(self, token):
        """The full stop stays."""
        assert redact_text(f"It is {token}aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5z.") == "It is [redacted]."

    @pytest.mark.parametrize("depth", [0, 1, 2])
    @pytest.mark.parametrize("end", ["Password: ", "'password': ", "mysql -p", "password:\n  "])
    def test_json_string_that_ends_with_a_name(self, end, depth):
        """No value follows, so that nothing is replaced, also in JSON inside strings."""
        value = [{"role": "user", "parts": [{"content": end}]}, {"role": "assistant", "parts": [end]}]
        for _ in range(depth):
            value = {"body": json.dumps(value, separators=(",", ":"))}
        assert redact(value) == value

    @pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:16])
    def test_hostile_texts(self, text):
        """Texts that begin many secrets and end none don't keep the secret beside them."""
        assert redact({"result": text, "api_key": SECRET})["api_key"] == "[redacted]"

    def test_payload_that_is_one_text(self):
        """A payload may be nothing but a text that holds JSON."""
        assert orjson.loads(redact(json.dumps({"password": SECRET}))) == {"password": "[redacted]"}

    def test_nested_deeper_than_can_be_read(self):
        """Nesting has no limit: nothing is parsed."""
        text = b"[" * 600 + b'{"api_key":"%s"}' % SECRET.encode() + b"]" * 600

        assert Redactor()(text)[0] == text.replace(SECRET.encode(), b"[redacted]")


class TestTables:
    """Every shape that a secret was seen in, and what only looks like one."""

    @pytest.mark.parametrize("shape", TEXTS)
    def test_text(self, shape):
        """A secret in this shape is replaced, in a payload's text and in a text of its own."""
        assert SECRET not in redact({"messages": [{"role": "user", "content": TEXTS[shape]}]})["messages"][0]["content"]
        assert SECRET not in redact_text(TEXTS[shape])

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize(
        "around",
        ["{}", "x {} y", "'{}'", "a\n{}\nb", "({})", "{}.", "id={};", "- {}\n-{}", "\x1b[32m{}\x1b[0m", "密钥是{}"],
    )
    def test_form(self, form, around):
        """A secret with a form of its own is replaced in any surroundings, and in JSON in a text."""
        text = around.replace("{}", FORMS[form])
        last = FORMS[form][-16:]

        assert last not in redact({"x": text})["x"]
        assert last.replace("\n", "\\n") not in redact({"x": json.dumps([1, text])})["x"]
        assert last not in redact_text(text)

    @pytest.mark.parametrize(
        "text",
        [
            "hf_" + "aBcD" * 8,
            "ghp_" + "a1B2" * 8,
            "AKIA" + "Q3EG" * 4 + "X",
            "AKIAIOSFODNN7EXAMPLE",
            "npm_config_registry_for_2024",
        ],
    )
    def test_another_length(self, text):
        """A text of another length than the form's, and the examples of documentations, stay."""
        assert redact_text(text) == text

    @pytest.mark.parametrize("value", ["x6[6k&-#Wzp", "Q5z(g4amg?an", "#Fj92{kd!", "@pple77(core"])
    @pytest.mark.parametrize(
        "shape",
        [
            "passwd: '{}'",
            'password = "{}"',
            "admin_password = r'{}'",
            "WITH PASSWORD = N'{}'",
            "define('DB_PASSWORD', '{}');",
            "sshpass -p '{}' ssh host",
            "Connect-Thing -Password '{}'",
            '["redis-server", "--requirepass", "{}"]',
        ],
    )
    def test_brackets_in_quotes_are_no_call(self, shape: str, value: str) -> None:
        """A password may have any sign: in quotes, a bracket that nothing closes makes no call of it."""
        assert value not in redact_text(shape.replace("{}", value))

    def test_a_table_of_markdown(self) -> None:
        """A name and its value in the cells of a row, in a text and in JSON."""
        given = "| api_key | `a3c7a67df04d86d434b22fd63f122c2c` |"
        nested = json.dumps(given)
        for found in (redact_text(given), redact({"x": given})["x"], redact({"x": nested})["x"]):
            assert "a3c7a67d" not in found
            assert "[redacted]" in found

    @pytest.mark.parametrize(
        "command",
        [
            "curl -v -u bob:{} https://x.com",
            "sshpass -p {} ssh host",
            "mysqldump -h db -u root -p{} app",
            "mongosh db -u bob -p {}",
            "redis-cli -h db -a {} ping",
            "ldapsearch -D cn=bob -w {} -b dc=x",
            "openssl enc -aes-256-cbc -pass pass:{} -in a",
        ],
    )
    def test_commands(self, command: str) -> None:
        """The password in an option that only its command tells, in a text and in JSON."""
        given = command.replace("{}", SECRET)

        assert redact_text(given) == redact({"x": given})["x"] == command.replace("{}", "[redacted]")

    @pytest.mark.parametrize(
        "text",
        ["grant_type=authorization_code&code={}", "refused Basic {}", "a=1&sig={}"],
    )
    def test_signs_that_end_a_name(self, text: str) -> None:
        """A name that ends where the next begins hides none; credentials may look like a word."""
        assert redact_text(text.replace("{}", "dXNlcjpwYXNz5x")) == text.replace("{}", "[redacted]")

    @pytest.mark.parametrize(
        "text",
        [
            'password = "get_password(user_1)"',
            'password: "config[0]"',
            "password = '$DB_PASS_1'",
            "password = '${{ secrets.DB1 }}'",
            "api_key: '%API_KEY_2%'",
            "wc -pin-2 -token fast",
            "readFile('/etc/passwd', 'utf8')",
        ],
    )
    def test_references_stay(self, text: str) -> None:
        """Calls, subscripts and variables are where a secret comes from."""
        assert redact_text(text) == text

    @pytest.mark.parametrize("text", ORDINARY_TEXTS, ids=lambda text: text[:24])
    def test_ordinary_text(self, text):
        """Programs and sentences that mention secrets stay as they are, in a payload and by themselves."""
        assert redact({"content": text}) == {"content": text}
        assert redact_text(text) == text

    def test_looks_random(self):
        """Letters of both cases and digits alternate in what a machine made, not in names."""
        assert all(map(looks_random, ("c0ffeeBabe77", "tr0ub4dor3x", "qWeRtYuIoPaSdFgH", "0a1b2c3d")))
        assert not any(
            map(looks_random, ("IDENTIFIER_1", "getUserAccountById", "secret_3_of_5", "number42", "12345678"))
        )

    def test_count(self):
        """Each replaced value is counted."""
        text = f"password=hunter2 token={SECRET}"

        assert Redactor()(orjson.dumps({"api_key": SECRET, "n": 1, "text": text}))[1] == 3
        assert Redactor().value(text)[1] == 2
        assert Redactor().value({"api_key": SECRET, "n": 1, "text": text, "command": ("--token", SECRET)})[1] == 4
        assert Redactor(patterns=[r"id \d"])(b'["id 5 and id 6","id","id 7"]')[1] == 3


class TestPatterns:
    """Patterns, the built-in ones and a user's."""

    def test_pattern(self):
        """Matches of a user's pattern are replaced in any text and key, in addition to the built-in forms."""
        value = {"a": "for CUST-12345 and CUST-678", "CUST-99999-and-so-on": "x", "n": 12345, "api_key": SECRET}

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
            r"\bfoo\b.{0,20}\d", "a{1,30}b{1,30}c", "a|b+", "(?P<n>ab)(?=c)", r"\(x\)*", "a{1,90}b{1,90}c",
        ],
    )  # fmt: skip
    def test_linear(self, pattern):
        """A pattern that searches long texts at once is accepted."""
        assert compile_pattern(pattern).pattern == pattern

    @pytest.mark.parametrize(
        "pattern",
        [
            "(a+)+$", "(a*)*b", "[a-z]+@corp", ".*x", "(?:a|b)+c", "[ab]{1,50}[ab]{1,50}[ab]{1,50}c",
            "(?:a+|b)x", "(?:a{1,9}){9}b", "a+?b", "(?:a?){50}b", r"x{1,40}\w{1,40}x{1,40}=",
        ],
    )  # fmt: skip
    def test_not_linear(self, pattern):
        """A pattern that takes long is refused with its time: it would hold the GIL meanwhile."""
        with pytest.raises(ValueError, match=r"linear time, and .* takes more than 0\.5 s of CPU"):
            compile_pattern(pattern)

    def test_a_pattern_is_tried_once(self, monkeypatch):
        """A pattern that was accepted starts no process again, and one without a Python to start is refused."""
        assert compile_pattern("tried [0-9]+").pattern == "tried [0-9]+"
        monkeypatch.setattr(sys, "executable", "/nowhere/python")

        assert compile_pattern("tried [0-9]+").pattern == "tried [0-9]+"
        with pytest.raises(ValueError, match="can be tried"):
            compile_pattern("untried [0-9]+")


class TestMakeRedactor:
    """Redactors from settings."""

    def test_built_in_and_more(self):
        """A name is added to the built-in ones, and one with a minus sign is taken out of them."""
        redactor = make_redactor((BUILT_IN, "-auth", "nickname"), (BUILT_IN,))

        assert redactor is not None
        assert orjson.loads(redactor(orjson.dumps({"auth": SECRET, "nickname": "b", "password": SECRET}))[0]) == {
            "auth": SECRET,
            "nickname": "[redacted]",
            "password": "[redacted]",
        }

    def test_nothing(self):
        """Without keys and patterns there is nothing to replace; without one of them, the other counts."""
        key, form = b'{"password":"%s"}' % SECRET.encode(), b'{"a":"%s"}' % FORMS["OpenAI"].encode()
        forms, keys = make_redactor((), (BUILT_IN,)), make_redactor((BUILT_IN,), ())

        assert make_redactor((), ()) is None
        assert forms is not None
        assert keys is not None
        assert (forms(key), forms(form)) == ((key, 0), (b'{"a":"[redacted]"}', 1))
        assert (keys(key), keys(form)) == ((b'{"password":"[redacted]"}', 1), (form, 0))


class TestLook:
    """The one pattern that gives the places, by google-re2 and by `re`."""

    @pytest.mark.parametrize(
        "spell",
        [
            "_".join,
            "-".join,
            ".".join,
            " ".join,
            lambda words: "".join(map(str.title, words)),
            "2".join,
            lambda words: "_".join(words).upper(),
        ],
        ids=["snake", "kebab", "dots", "spaces", "camel", "digits", "upper"],
    )
    def test_names(self, spell) -> None:
        """Each built-in name is found in any spelling."""
        value = "f4bf3503d729f175628686b2e72abf39"
        names = [spell(name.split("_")) for name in DEFAULT_REDACTED_KEYS if name.isascii()]
        redactor = Redactor()

        assert [name for name in names if value in redactor.value(f'{{"{name}": "{value}"}}')[0]] == []

    def test_without_re2(self, monkeypatch) -> None:
        """`re` finds what google-re2 finds, in any mixture; JSON stays valid."""
        pytest.importorskip("re2")
        by_re2 = Redactor()
        monkeypatch.setitem(sys.modules, "re2", None)
        by_re = Redactor()
        assert [isinstance(each._forms.__self__, re.Pattern) for each in (by_re, by_re2)] == [True, False]
        shapes, choice = [*TEXTS.values(), *FORMS.values()], random.Random(7)
        parts = [*shapes, *ORDINARY_TEXTS, *"\"'\\:=({[<>]}),|&@/-_ \n", "\\n", '\\"', "://", "curl ", "api_key"]
        mixed = ["".join(choice.choices(parts, k=6)) for _ in range(400)]
        texts = [*shapes, *mixed, "пароль: 7Qd9zW2x 密码: aB3dE5fG7h"]

        for text in texts:
            for given in (text, f"é密\U0001f600{text}ü\ud800", json.dumps([1, text])):
                assert by_re.value(given) == by_re2.value(given)
            in_json = orjson.dumps({"密": [text, json.dumps([text])], "n": 1})
            assert by_re(in_json) == by_re2(in_json)
            assert orjson.loads(by_re(in_json)[0])["n"] == 1
        assert by_re.value(texts[-1]) == ("пароль: [redacted] 密码: [redacted]", 2)
