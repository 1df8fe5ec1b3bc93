"""The table of settings."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import otel_rollout
from otel_rollout.errors import ConfigurationError
from otel_rollout.settings import SETTINGS, InitSettings, Settings, resolve_settings


class TestPrecedence:
    """The source of a value."""

    def test_an_argument_wins_over_the_environment(self):
        """The argument of init counts before the variable."""
        assert resolve_settings({"max_batch_spans": 7}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9"}).max_batch_spans == 7

    def test_the_environment_wins_over_the_default(self):
        """A variable counts before the default."""
        assert resolve_settings({}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9"}).max_batch_spans == 9

    def test_an_empty_variable_counts_as_unset(self):
        """As OpenTelemetry's specification says of empty variables."""
        assert resolve_settings({}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": " "}).max_batch_spans == 512

    def test_the_table_and_the_dataclass_have_the_same_settings(self):
        """Each row has a field, and each field a row."""
        assert {setting.name for setting in SETTINGS} == {field.name for field in fields(Settings)}

    def test_every_setting_is_a_typed_keyword_of_init(self):
        """Editors and type checkers know each setting: by name in the signature, or in `InitSettings`."""
        keywords = {*inspect.signature(otel_rollout.init).parameters, *InitSettings.__annotations__}
        assert keywords >= {setting.name for setting in SETTINGS}
        assert set(InitSettings.__annotations__) < {setting.name for setting in SETTINGS}

    def test_no_variable_sets_two_settings(self):
        """A variable means one thing."""
        variables = [variable for setting in SETTINGS for variable in setting.variables]

        assert len(variables) == len(set(variables))

    def test_defaults_pass_their_own_check(self):
        """A default could be given as an argument."""
        for setting in SETTINGS:
            if setting.default is not None:
                assert setting.read(setting.default) == setting.default


class TestValues:
    """The forms of a value."""

    @pytest.mark.parametrize(
        ("text", "size"), [("1048576", 2**20), ("256MiB", 2**28), ("1 GB", 10**9), ("1.5kib", 1536), ("9b", 9)]
    )
    def test_sizes_take_units(self, text: str, size: int):
        """A size is a number of bytes, or a number with a unit."""
        assert resolve_settings({"max_queue_bytes": text}, {}).max_queue_bytes == size

    @pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("No", False), ("off", False)])
    def test_switches_take_the_usual_words(self, text: str, value: bool):
        """A switch is on or off in the words that people use."""
        assert resolve_settings({}, {"OTEL_ROLLOUT_TOKEN2TEXT": text}).token2text is value

    def test_redact_keys_are_added(self):
        """Names stand beside the built-in ones; with `none` they stand alone."""
        assert resolve_settings({"redact_keys": ["b", "a "]}, {}).redact_keys == ("built-in", "a", "b")
        assert resolve_settings({}, {"OTEL_ROLLOUT_REDACT_KEYS": "none"}).redact_keys == ()
        assert resolve_settings({}, {"OTEL_ROLLOUT_REDACT_KEYS": "none,a"}).redact_keys == ("a",)
        assert resolve_settings({"redact_keys": ()}, {}).redact_keys == ()

    def test_redact_patterns_are_added(self):
        """Patterns stand beside the built-in forms; spaces separate those of a variable, not those of a list."""
        environ = {"OTEL_ROLLOUT_REDACT_PATTERNS": "cust-[0-9]{8,12} INT_[a-z]+"}

        assert resolve_settings({}, environ).redact_patterns == ("built-in", "INT_[a-z]+", "cust-[0-9]{8,12}")
        assert resolve_settings({"redact_patterns": ["top secret"]}, {}).redact_patterns == ("built-in", "top secret")
        assert resolve_settings({"redact_patterns": "none"}, {}).redact_patterns == ()
        assert resolve_settings({"redact_patterns": "none a"}, {}).redact_patterns == ("a",)

    @pytest.mark.parametrize(
        ("pattern", "right"),
        [
            ("(x", "regular expressions, and '(x' is none: missing ), unterminated subpattern at position 0"),
            ("a*", "regular expressions that match something, and 'a*' matches the empty text"),
            (
                "(a+)+$",
                (
                    "regular expressions that take linear time, and '(a+)+$' takes more than 0.5 s of CPU for 480 KB: "
                    "a repeat that more follows needs an end, such as {1,100} in the place of +"
                ),
            ),
        ],
    )
    def test_a_bad_pattern_is_named(self, pattern: str, right: str):
        """The error says which setting it is, which of its patterns, and what is wrong with that one."""
        with pytest.raises(ConfigurationError) as caught:
            resolve_settings({}, {"OTEL_ROLLOUT_REDACT_PATTERNS": f"fine {pattern}"})

        assert str(caught.value) == f"OTEL_ROLLOUT_REDACT_PATTERNS='fine {pattern}': this should be {right}"

    @pytest.mark.parametrize("patterns", ["", " ", [""], 7])
    def test_forms_are_not_switched_off_by_mistake(self, patterns: object):
        """Only `none` and an empty list mean that no form is replaced."""
        with pytest.raises(ConfigurationError, match="this should be regular expressions separated by spaces, or none"):
            resolve_settings({"redact_patterns": patterns}, {})

    @pytest.mark.parametrize("keys", ["", " ", ", ,", [""], 7])
    def test_redaction_is_not_switched_off_by_mistake(self, keys: object):
        """Only `none` and an empty list mean that nothing is replaced."""
        with pytest.raises(ConfigurationError, match="this should be names separated by commas, or none"):
            resolve_settings({"redact_keys": keys}, {})

    @pytest.mark.parametrize("name", ["max_queue_bytes", "max_batch_spans", "max_samples_per_step_per_worker"])
    def test_infinity(self, name: str):
        """A number without an end is an error like any other."""
        with pytest.raises(ConfigurationError, match=f"^{name}=inf: this should be"):
            resolve_settings({name: float("inf")}, {})

    @pytest.mark.parametrize(
        ("variable", "text", "right"),
        [
            ("OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS", "inf", "a number of milliseconds, 0 or more"),
            ("OTEL_ROLLOUT_MAX_QUEUE_BYTES", "256 potatoes", "a positive size in bytes, such as 1048576 or 256MiB"),
            ("OTEL_ROLLOUT_MAX_QUEUE_BYTES", "inf", "a positive size in bytes, such as 1048576 or 256MiB"),
            ("OTEL_ROLLOUT_REDACT_KEYS", ",", "names separated by commas, or none"),
            ("OTEL_ROLLOUT_TOKEN2TEXT", "maybe", "true or false"),
            ("OTEL_ROLLOUT_MAX_SAMPLES_PER_STEP_PER_WORKER", "-3", "a whole number, 0 or more"),
        ],
    )
    def test_a_bad_variable_names_itself_and_what_is_right(self, variable: str, text: str, right: str):
        """The error says which variable, what it holds, and what it should hold."""
        with pytest.raises(ConfigurationError) as caught:
            resolve_settings({}, {variable: text})

        assert str(caught.value) == f"{variable}={text!r}: this should be {right}"

    def test_a_bad_argument_names_itself(self):
        """The error names the argument where the value came from one."""
        with pytest.raises(ConfigurationError, match=r"^max_queue_bytes=-1: this should be a positive size"):
            resolve_settings({"max_queue_bytes": -1}, {})

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("max_queue_byte", "did you mean 'max_queue_bytes'?"),
            ("backends", "did you mean 'backend'?"),
            ("verbosity", "there are token2text,"),
            ("sample_ratio", "a share of the prompts is traced with OTEL_TRACES_SAMPLER=rollout_sample_ratio"),
            ("sampler", "a share of the prompts is traced with OTEL_TRACES_SAMPLER=rollout_sample_ratio"),
        ],
    )
    def test_an_unknown_setting_is_answered_with_the_right_one(self, given: str, said: str):
        """An error names the argument that a misspelt one is near to, or all of them."""
        with pytest.raises(ConfigurationError) as caught:
            resolve_settings({given: 1}, {}, also_known=["backend"])

        assert str(caught.value).startswith(f"{given}: there is no such setting; {said}")


def test_meanings_are_one_line():
    """Each row says what it does in one line without a full stop: it goes into a table."""
    for setting in SETTINGS:
        assert inspect.cleandoc(setting.meaning) == setting.meaning
        assert not setting.meaning.endswith(".")
