"""Exceptions that leave traced code, as events of a span."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pydantic
import pytest

import otel_rollout
from otel_rollout import rollout_trace_op
from otel_rollout.record import ExceptionRecord

pytestmark = pytest.mark.every_python


class Refused(Exception):
    """An exception with a text of its own."""

    def __str__(self) -> str:
        return "refused"


class Broken(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestExceptions:
    """Exceptions that leave traced code."""

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ValueError("no"), "no"),
            (KeyError("missing"), "'missing'"),
            (ValueError("a", 1, None), "('a', 1, None)"),
            (ValueError("a", [1], 2), "'a', <builtins.list>, 2"),
            (KeyError(object()), "<builtins.object>"),
            (Refused("a", [1]), "refused"),
            (Broken("a", 2), "'a', 2"),
            (OSError(2, "No such file", "name.txt"), "[Errno 2] No such file: 'name.txt'"),
            (RuntimeError(), ""),
            (subprocess.CalledProcessError(3, ["ls"]), "Command '['ls']' returned non-zero exit status 3."),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_known_texts(self, rollout_spans, error, message):
        """A message is what `str` returns, but arguments that may be large or slow are their class."""

        @rollout_trace_op
        def f() -> None:
            raise error

        with pytest.raises(type(error)):
            f()
        otel_rollout.flush()

        assert rollout_spans.spans[0].events[0].attributes["exception.message"] == message

    def test_what_pydantic_says(self, rollout_spans):
        """The problems that pydantic found are named, with the values left out."""

        class Arguments(pydantic.BaseModel):
            count: int

        @rollout_trace_op
        def f() -> None:
            Arguments(count="many")  # type: ignore[arg-type]

        with pytest.raises(pydantic.ValidationError):
            f()
        otel_rollout.flush()

        message = rollout_spans.spans[0].events[0].attributes["exception.message"]
        assert message.startswith("1 validation errors for Arguments\ncount: Input should be a valid integer")

    def test_causes_and_notes(self, rollout_spans):
        """The stack trace has the exception that led to this one, and the notes of both."""

        @rollout_trace_op
        def f() -> None:
            try:
                raise KeyError("first")
            except KeyError as error:
                failure = ValueError("second")
                failure.__dict__["__notes__"] = ["look here"]
                raise failure from error

        with pytest.raises(ValueError):
            f()
        otel_rollout.flush()

        text = rollout_spans.spans[0].events[0].attributes["exception.stacktrace"]
        assert text.index("KeyError: 'first'") < text.index("direct cause") < text.index("ValueError: second")
        assert "look here" in text

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
    def test_groups(self):
        """The stack trace has a line for each exception of a group, in groups inside too."""
        inner = ExceptionGroup("inner", [KeyError("b")])  # noqa: F821 - a builtin since 3.11
        text = ExceptionRecord(ExceptionGroup("outer", [ValueError("a"), inner])).format()  # noqa: F821

        for line in ("outer (2 sub-exceptions)", "  | ValueError: a", "  |   | KeyError: 'b'"):
            assert line in text

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
    def test_groups_of_groups(self):
        """A wide tree of groups shows its first exceptions."""
        error: Exception = ValueError("leaf")
        for _ in range(7):
            error = ExceptionGroup("group", [error] * 16)  # noqa: F821

        assert 64 <= ExceptionRecord(error).format().count("\n") < 80

    def test_many_problems_of_pydantic(self):
        """A thousand problems are counted, and not listed."""

        class Arguments(pydantic.BaseModel):
            counts: list[int]

        with pytest.raises(pydantic.ValidationError) as caught:
            Arguments(counts=["many"] * 1000)  # type: ignore[list-item]

        assert ExceptionRecord(caught.value).message == "1000 validation errors for Arguments\n"


class TestFrames:
    """The frames of long tracebacks."""

    def test_the_innermost_frames_are_kept(self):
        """Of a deep call, the frames nearest to the error are shown."""

        def fall(depth: int) -> None:
            if depth:
                fall(depth - 1)
            raise ValueError

        with pytest.raises(ValueError) as caught:
            fall(200)
        ((_, _, frames),) = ExceptionRecord(caught.value).chain

        assert len(frames) == 64
        assert {code.co_name for code, _, _ in frames} == {"fall"}

    def test_one_exception_raised_again_and_again(self):
        """The frames that are read don't grow with the raises, and the newest ones are among them."""
        stored = RuntimeError("the engine is dead")

        def generate() -> None:
            raise stored

        def read_calls() -> int:
            calls = itertools.count()
            before = sys.getprofile()
            sys.setprofile(lambda frame, event, argument: next(calls))
            try:
                ExceptionRecord(stored)
            finally:
                sys.setprofile(before)
            return next(calls)

        counts = []
        for _ in range(3):
            for _ in range(512):
                with pytest.raises(RuntimeError):
                    generate()
            counts.append(read_calls())

        assert max(counts) < 1.1 * min(counts)
