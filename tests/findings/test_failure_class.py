"""The class of a failure follows from what spans hold."""

from __future__ import annotations

import pytest

from otel_rollout.catalog.failure_class import BLAMES, FAILURE_CLASSES, failure_class
from otel_rollout.facts import SpanError
from tests.findings.made_up_steps import failed_tool, make_trajectory


def ended(error_type: str, kind: str, inner: str | None = None) -> dict[str, object]:
    """Return the fields of a trajectory that an exception in a span of a kind ended."""
    return {
        "status": "error",
        "reward": None,
        "error_type": error_type,
        "errors": (SpanError("run", "AGENT", error_type, False), SpanError("op", kind, inner or error_type, False)),
    }


def tried_again(kind: str) -> dict[str, object]:
    """Return the fields of a trajectory with a call that failed, and then succeeded."""
    return {"reward": 0.0, "errors": (SpanError("ask", kind, "ConnectionError", True),)}


START = SpanError("start", "CHAIN", "shop.StartError", False, is_first=True)
ROOT = SpanError("run", "AGENT", "shop.StartError", False)

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
    "a wrong answer after a judge's second try": (tried_again("EVALUATOR"), "model"),
    "a wrong answer after a tool's second try": (tried_again("TOOL"), "model"),
    "it was truncated": ({"status": "truncated"}, "model"),
    "the engine aborted it": ({"status": "truncated", "finish_reason": "abort"}, "engine"),
    "a wrong answer": ({"reward": 0.0}, "model"),
    "a wrong answer after a mended call": (failed_tool("ToolError", is_mended=True), "model"),
    "a wrong answer after a failed call": (failed_tool("ToolError"), "tool"),
    "a wrong answer after a timeout": (failed_tool("TimeoutError"), "timeout"),
    "a wrong answer after an unknown tool": ({"reward": 0.0, "unknown_tool_calls": 1}, "model"),
    "the last turn's call failed": ({**failed_tool("ToolError"), "status": "truncated"}, "model"),
    "no reward": ({"reward": None, "errors": (SpanError("score", "EVALUATOR", "ValueError", False),)}, "reward"),
    "the start failed, and the loop went on": ({"reward": 0.0, "errors": (START,)}, "environment"),
    "the start failed, and ended it": (
        {"status": "error", "reward": None, "error_type": "shop.StartError", "errors": (START, ROOT)},
        "environment",
    ),
    "the start timed out": ({"reward": 0.0, "errors": (START._replace(type="StartTimeout"),)}, "timeout"),
    "the start was tried again": ({"reward": 0.0, "errors": (START._replace(is_mended=True),)}, "model"),
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

    def test_without_generations_nothing_is_early(self):
        """Where no trajectory of a step has generations, they are not traced."""
        trajectory = make_trajectory(reward=0.0, errors=(START._replace(kind="TOOL"),))
        assert failure_class(trajectory, worst_reward=0.0, has_turns=False) == "tool"

    def test_each_has_one_blame(self):
        """The model's, the environment's, or unresolved."""
        assert sorted(name for names in BLAMES.values() for name in names) == sorted(FAILURE_CLASSES)
