"""The class of a failure follows from what spans hold."""

from __future__ import annotations

import pytest

from otel_rollout.catalog.failure_class import FAILURE_CLASSES, failure_class
from otel_rollout.facts import SpanError, SpanShape, ToolCounts
from tests.findings.made_up_steps import failed_tool, make_trajectory


def ended(error_type: str, kind: str, inner: str | None = None) -> dict[str, object]:
    """Return the fields of a trajectory that an exception in a span of a kind ended."""
    return {
        "status": "error",
        "reward": None,
        "error_type": error_type,
        "errors": (SpanError("run", "AGENT", error_type, 0), SpanError("op", kind, inner or error_type, 1)),
    }


def tried_again(kind: str, *, is_inside: bool) -> dict[str, object]:
    """Return the fields of a trajectory with a call that failed, and then succeeded.

    Args:
        kind: The kind of the call.
        is_inside: Both tries are inside a call of the kind, with names of their own.
    """
    shape = [
        SpanShape("run", "AGENT", 0, 1000, 0, -1),
        SpanShape("ask", kind, 100, 100, 1, 0),
        SpanShape("try" if is_inside else "ask", kind, 110, 10, 2, 1 if is_inside else 0),
        SpanShape("again" if is_inside else "ask", kind, 130, 10, 1, 1 if is_inside else 0),
    ]
    return {"reward": 0.0, "shape": tuple(shape), "errors": (SpanError(shape[2].name, kind, "ConnectionError", 2),)}


CASES = {
    "the engine raises": (ended("EngineError", "LLM"), "engine"),
    "the engine's connection": (ended("openai.APIConnectionError", "LLM"), "engine"),
    "a tool raises": (ended("ToolError", "TOOL"), "tool"),
    "a tool's sandbox is gone": (ended("docker.errors.ContainerError", "TOOL"), "environment"),
    "a tool's connection": (ended("ConnectionResetError", "TOOL"), "environment"),
    "a tool times out": (ended("httpx.ReadTimeout", "TOOL"), "timeout"),
    "the engine times out": (ended("asyncio.TimeoutError", "LLM"), "timeout"),
    "the reward function raises": (ended("ZeroDivisionError", "EVALUATOR"), "reward"),
    "the loop raises": (ended("KeyError", "CHAIN"), "unknown"),
    "the loop runs out of memory": (ended("MemoryError", "CHAIN"), "environment"),
    "another exception than the tool's": (ended("KeyError", "TOOL", inner="ToolError"), "unknown"),
    "it was cancelled, and has a reward": ({"status": "cancelled", "reward": 0.0}, "timeout"),
    "it was cancelled as training stopped": ({"status": "cancelled", "reward": None}, None),
    "a wrong answer after a judge's second try": (tried_again("EVALUATOR", is_inside=False), "model"),
    "a wrong answer after a judge's inner retry": (tried_again("EVALUATOR", is_inside=True), "model"),
    "a wrong answer after a tool's inner retry": (tried_again("TOOL", is_inside=True), "model"),
    "it was truncated": ({"status": "truncated"}, "model"),
    "the engine aborted it": ({"status": "truncated", "finish_reason": "abort"}, "engine"),
    "a wrong answer": ({"reward": 0.0}, "model"),
    "a wrong answer after a mended call": (failed_tool("ToolError", is_mended=True), "model"),
    "a wrong answer after a failed call": (failed_tool("ToolError"), "tool"),
    "a wrong answer after a timeout": (failed_tool("TimeoutError"), "timeout"),
    "a wrong answer after an unknown tool": ({"reward": 0.0, "unknown_tool_calls": 1}, "model"),
    "the last turn's call failed": ({**failed_tool("ToolError"), "status": "truncated"}, "model"),
    "no reward": ({"reward": None, "errors": (SpanError("score", "EVALUATOR", "ValueError", 1),)}, "reward"),
    "a right answer": ({"reward": 1.0}, None),
    "it is running": ({"has_root": False, "status": None, "reward": None}, None),
}


class TestFailureClass:
    """The class of one trajectory."""

    @pytest.mark.parametrize("case", CASES)
    def test_follows_from_the_spans(self, case):
        """Exception types, their places, statuses and finish reasons decide."""
        fields, expected = CASES[case]
        assert failure_class(make_trajectory(**fields), worst_reward=0.0) == expected

    def test_every_class_comes_up(self):
        """The cases above have all classes."""
        assert {expected for _, expected in CASES.values()} - {None} == set(FAILURE_CLASSES)

    def test_a_reward_is_bad_only_beside_better_ones(self):
        """If all rewards of a step are the same, none is a failure."""
        assert failure_class(make_trajectory(reward=0.0), worst_reward=None) is None

    def test_an_index_that_is_damaged_places_no_error(self):
        """The shape that an error refers to may be missing: the tool's counts decide."""
        errors = (SpanError("search", "TOOL", "ToolError", 12),)
        mended = make_trajectory(reward=0.0, errors=errors, shape=(), tools={"search": ToolCounts(3, 1)})
        failed = make_trajectory(reward=0.0, errors=errors, shape=(), tools={"search": ToolCounts(1, 1)})
        assert [failure_class(each, worst_reward=0.0) for each in (mended, failed)] == ["model", "tool"]
