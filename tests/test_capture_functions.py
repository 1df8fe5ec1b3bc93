"""Functions of the program that capture calls: `capture_inputs`, `capture_output` and `__rollout_payload__`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

import otel_rollout
from otel_rollout import rollout_trace_op, semconv
from tests.payload_values import read

pytestmark = pytest.mark.every_python


class PanicError(BaseException):
    """The user's own, beside Exception."""


class TestUserFunctions:
    """Functions that a user gives us to call."""

    def test_capture_functions(self, rollout_spans):
        """The functions' results are recorded in place of arguments and result."""

        @rollout_trace_op(
            capture_inputs=lambda arguments: {"count": len(arguments["items"])},
            capture_output=lambda result: result.upper(),
        )
        def f(items: list[int]) -> str:
            return "done"

        assert f([1, 2, 3]) == "done"
        otel_rollout.flush()

        (span,) = rollout_spans.spans
        assert orjson.loads(span.attributes[semconv.INPUT_VALUE]) == {"count": 3}
        assert span.attributes[semconv.OUTPUT_VALUE] == "DONE"

    def test_an_error_is_one_warning(self, rollout_spans, caplog):
        """A function that fails is logged once; the call goes on, and the payload has a note."""

        @rollout_trace_op(capture_inputs=lambda arguments: 1 / 0)
        def f(x: int) -> int:
            return x

        assert [f(1), f(2)] == [1, 2]
        otel_rollout.flush()

        assert [record.getMessage().partition(":")[2][:16] for record in caplog.records] == [" capture_inputs "]
        assert "failed: ZeroDivisionError" in rollout_spans.spans[0].attributes[semconv.INPUT_VALUE]

    def test_what_is_no_exception_passes(self, rollout_spans):
        """A BaseException of the user's function is the user's."""

        def panic(arguments: Any) -> Any:
            raise PanicError

        @rollout_trace_op(capture_inputs=panic)
        def f(x: int) -> int:
            return x

        with pytest.raises(PanicError):
            f(1)

    def test_rollout_payload(self, rollout_spans, caplog):
        """`__rollout_payload__` returns the value to record in place of an object; its error is one warning."""

        class Payload:
            def __rollout_payload__(self) -> Any:
                return {"kept": [1, {"deep": True}]}

        class Broken:
            def __rollout_payload__(self) -> Any:
                raise RuntimeError("broken")

        assert read([Payload(), Broken(), Broken()]) == [
            {"kept": [1, {"deep": True}]},
            "[__rollout_payload__ failed: RuntimeError]",
            "[__rollout_payload__ failed: RuntimeError]",
        ]
        assert len(caplog.records) == 1
