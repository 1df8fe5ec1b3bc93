"""Simulated users: whose turns a trajectory has."""

from __future__ import annotations

from typing import Any

import pytest

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv, subagent
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import recorded

Reply = dict[str, Any]


def reply(messages: list[Reply]) -> Reply:
    return {"role": "assistant", "content": f"answer {len(messages)}", "usage": {"prompt_tokens": 5}}


simulate = rollout_trace_op(kind="LLM", name="simulate", role="user")(reply)
generate = rollout_trace_op(kind="LLM", name="generate")(reply)
judge = rollout_trace_op(kind="LLM", name="judge", role="policy")(reply)


def roles_of(exporter: InMemorySpanExporter) -> dict[str, Any]:
    return {each["name"]: each["attributes"].get(semconv.ROLE) for each in recorded(exporter)}


@pytest.mark.every_python
class TestRole:
    """`role` of ops and of sub-agents."""

    def test_is_on_the_span(self, rollout_spans: InMemorySpanExporter) -> None:
        """An op has its own role, else that of the sub-agent around it; without one it has none."""
        with rollout_trace_attr(1, 2, 3):
            simulate([])
            generate([])
            with subagent("customer", role="user"):
                judge([])
                rollout_trace_op(kind="LLM", name="inside")(reply)([])
                rollout_trace_op(kind="TOOL", name="tool")(reply)([])
        assert {name: role for name, role in roles_of(rollout_spans).items() if role} == {
            "simulate": "user",
            "customer": "user",
            "judge": "policy",
            "inside": "user",
        }

    def test_turns_and_tokens_are_the_policys(self, rollout_spans: InMemorySpanExporter) -> None:
        """The root counts the policy's alone, and the simulator's turns have no number."""
        with rollout_trace_attr(1, 2, 3) as trajectory:
            simulate([])
            generate([])
            with subagent("customer", role="user"):
                generate([])
            trajectory.record("told", kind="LLM", output=reply([]), **{semconv.ROLE: "user"})
        spans = recorded(rollout_spans)
        root = next(each for each in spans if each["parent_id"] is None)["attributes"]
        assert (root[semconv.TURNS], root[semconv.INPUT_TOKENS]) == (1, 5)
        turns = {each["name"]: each["attributes"].get(semconv.TURN) for each in spans[:2]}
        assert turns == {"simulate": None, "generate": 1}

    def test_a_mark_of_compaction_is_the_policys(self, rollout_spans: InMemorySpanExporter) -> None:
        """A simulator that speaks between the mark and the policy's next turn doesn't take it."""
        with rollout_trace_attr(1, 2, 3):
            generate([])
            annotate(compacted=True)
            simulate([])
            generate([])
        marks = [each["attributes"].get(semconv.COMPACTED) for each in recorded(rollout_spans)]
        assert marks[:3] == [None, None, True]

    @pytest.mark.parametrize(("kind", "role"), [("TOOL", "user"), ("CHAIN", "policy"), ("LLM", "customer")])
    def test_that_makes_no_sense(self, kind: Any, role: Any) -> None:
        """A decorator refuses a role that is none, or of a kind without turns."""
        with pytest.raises(ValueError, match="LLM and AGENT ops have the roles policy and user"):
            rollout_trace_op(kind=kind, role=role)

    def test_of_a_running_block_never_raises(self, rollout_spans: InMemorySpanExporter) -> None:
        """A sub-agent's wrong role is logged once, and ignored."""
        wrong: Any = "customer"
        with rollout_trace_attr(1, 2, 3), subagent("customer", role=wrong):
            generate([])
        assert set(roles_of(rollout_spans).values()) == {None}
        assert otel_rollout.flush(10.0)
