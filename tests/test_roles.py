"""Simulated users: whose turns a trajectory has."""

from __future__ import annotations

from typing import Any

import pytest

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv, subagent
from otel_rollout.facts import conversations_of, summarise_trajectory
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
        assert otel_rollout.flush(60)


class Play:
    """A chat of a simulator and a policy, in one process, without tracing's knowledge of who is who.

    Args:
        of_policy: What the policy's op returns beside its message.
        of_user: What the simulator's op returns beside its message.
        role: The mark on the simulator.
    """

    def __init__(self, of_policy: Reply | None = None, of_user: Reply | None = None, role: Any = None) -> None:
        self.user: list[Reply] = [{"role": "system", "content": "You are a customer."}]
        self.agent: list[Reply] = [{"role": "system", "content": "You are a shop's agent."}]
        self.of_policy, self.of_user = of_policy or {}, of_user or {}
        self.simulate = rollout_trace_op(kind="LLM", name="simulate", role=role)(self._simulate)
        self.generate = rollout_trace_op(kind="LLM", name="generate")(self._generate)

    def _simulate(self, messages: list[Reply]) -> Reply:
        return {"role": "assistant", "content": f"question {len(messages)}", "usage": USAGE, **self.of_user}

    def _generate(self, messages: list[Reply]) -> Reply:
        return {"role": "assistant", "content": f"answer {len(messages)}", "usage": USAGE, **self.of_policy}

    def run(self, exchanges: int = 3) -> None:
        """Play the simulator's turn and the policy's, some times."""
        for _ in range(exchanges):
            self.hear(self.user, self.agent, self.simulate)
            self.hear(self.agent, self.user, self.generate)

    @staticmethod
    def hear(own: list[Reply], others: list[Reply], speak: Any) -> None:
        """Add what a side says to both histories."""
        text = speak(list(own))["content"]
        own.append({"role": "assistant", "content": text})
        others.append({"role": "user", "content": text})


USAGE = {"prompt_tokens": 7, "completion_tokens": 2}
IDS = {"token_ids": [1, 2]}


def played(exporter: InMemorySpanExporter, play: Play) -> tuple[Any, list[tuple[str, str]]]:
    """Return a chat's summary, and the kind and name of each of its conversations."""
    with rollout_trace_attr(1, 2, 3):
        play.run()
    assert otel_rollout.flush(60)
    found = conversations_of(exporter.spans)
    return summarise_trajectory(exporter.spans), [(each.kind, each.name) for each in found.all]


class TestSides:
    """Who is the policy, where a simulator speaks first."""

    @pytest.mark.parametrize("given", [{"role": "user"}, {"of_policy": IDS}], ids=["by a mark", "by token ids"])
    def test_the_policy_is_main(self, rollout_spans: InMemorySpanExporter, given: dict[str, Any]) -> None:
        """Turns, tokens, prompt and answer are its own; the simulator's are apart."""
        summary, kinds = played(rollout_spans, Play(**given))
        assert kinds == [("user", "simulate"), ("main", "")]
        assert (summary.turns, summary.user_turns) == (3, 3)
        assert (summary.input_tokens, summary.user_input_tokens) == (21, 21)
        assert (summary.prompt, summary.answer) == ("question 1", "answer 6")
        assert (summary.subagents, summary.two_sides, len(summary.turn_hashes)) == (0, False, 3)

    @pytest.mark.parametrize("given", [{"role": "user"}, {"of_policy": IDS}], ids=["by a mark", "by token ids"])
    def test_faults_of_the_simulator_are_not_the_policys(
        self, rollout_spans: InMemorySpanExporter, given: dict[str, Any]
    ) -> None:
        """A finish reason and a call in the text count only as the policy's."""
        play = Play(**given)
        with rollout_trace_attr(1, 2, 3):
            play.run()
            play.simulate = rollout_trace_op(kind="LLM", name="simulate", role=given.get("role"))(
                lambda _: {"role": "assistant", "content": "<tool_call>{", "finish_reason": "length"}
            )
            play.hear(play.user, play.agent, play.simulate)
        assert otel_rollout.flush(60)
        summary = summarise_trajectory(rollout_spans.spans)
        assert (summary.user_turns, summary.finish_reason, summary.unparsed_tool_calls) == (4, None, 0)

    @pytest.mark.parametrize("of_both", [{}, IDS], ids=["neither has token ids", "both have token ids"])
    def test_that_nothing_decides(self, rollout_spans: InMemorySpanExporter, of_both: Reply) -> None:
        """Then it is said that two sides speak."""
        play = Play(of_both, of_both)
        summary, _ = played(rollout_spans, play)
        assert summary.two_sides

    def test_two_policies(self, rollout_spans: InMemorySpanExporter) -> None:
        """If both sides are marked as policies, both sides' turns are the trajectory's, and nothing is to be said."""
        play = Play()
        play.simulate = rollout_trace_op(kind="LLM", role="policy")(play._simulate)
        play.generate = rollout_trace_op(kind="LLM", role="policy")(play._generate)
        summary, _ = played(rollout_spans, play)
        assert (summary.turns, summary.user_turns, summary.two_sides) == (6, None, False)

    def test_a_policy_in_an_agent_that_is_trained(self, rollout_spans: InMemorySpanExporter) -> None:
        """It is main, although the simulator is further out."""
        play = Play()
        speak = play.generate

        def generate(messages: list[Reply]) -> Reply:
            with subagent("shop"):
                annotate(trained=True)
                return speak(messages)

        play.generate = generate
        summary, kinds = played(rollout_spans, play)
        assert (summary.turns, kinds[0][0]) == (3, "user")

    def test_an_agent_that_is_asked_is_no_simulator(self, rollout_spans: InMemorySpanExporter) -> None:
        """A sub-agent of a scope of its own stays one, also if its answers come back as the user's."""
        play = Play()
        speak = play.simulate

        def ask(messages: list[Reply]) -> Reply:
            with subagent("reader"):
                return speak(messages)

        play.simulate = ask
        summary, kinds = played(rollout_spans, play)
        assert ("subagent", "reader") in kinds
        assert not summary.two_sides

    def test_tools_are_the_policys(self, rollout_spans: InMemorySpanExporter) -> None:
        """A tool call after a simulator's turn is none of the simulator's."""
        play = Play(role="user")
        with rollout_trace_attr(1, 2, 3):
            play.run(1)
            play.hear(play.user, play.agent, play.simulate)
            rollout_trace_op(kind="TOOL", name="search")(len)("x")
            play.hear(play.agent, play.user, play.generate)
        assert otel_rollout.flush(60)
        found = conversations_of(rollout_spans.spans)
        [tool] = [span for span in rollout_spans.spans if span.name == "search"]
        assert tool.context is not None
        assert found.all[found.of_span[tool.context.span_id] - 1].kind == "main"
