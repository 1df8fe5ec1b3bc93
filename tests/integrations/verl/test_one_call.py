"""Turns and tool calls on stand-ins of verl: what a fault in one costs, and what of it is kept."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from otel_rollout import flush, rollout_trace_attr
from otel_rollout.guard import forget_warnings
from otel_rollout.hooks.verl import Identity, Rollout, generation, rewards, rollout_variable, tools
from otel_rollout.testing import InMemorySpanExporter
from tests.integrations.verl import stand_ins
from tests.integrations.verl.stand_ins import HOOKS, StandIn, install


@pytest.fixture(autouse=True)
def _as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
    forget_warnings()


class TestOneFault:
    """A fault in one call."""

    def test_leaves_the_turns_after_it_traced(
        self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One fault in the first of five turns costs what it was about, and not the spans of the turns after it."""
        stand_in = StandIn(generation.GENERATE, stand_ins.form_of(generation.GENERATE))
        install(stand_in)
        real, faults_left = generation.take_snapshot, [True]

        def faulty(value: Any) -> bytes:
            if faults_left and faults_left.pop():
                raise RuntimeError("one fault of ours")
            return real(value)

        monkeypatch.setattr(generation, "take_snapshot", faulty)

        async def main() -> None:
            with rollout_trace_attr(step=1, sample_index=0):
                for turn in range(5):
                    await stand_in.call([f"request-{turn}"], {"prompt_ids": [turn], "sampling_params": {}})

        asyncio.run(main())
        flush()
        assert len([span for span in rollout_spans.as_dicts() if span["name"].endswith("generate")]) == 5

    def test_arguments_that_no_parser_can_hold(self, rollout_spans: InMemorySpanExporter) -> None:
        """100,000 brackets as a tool's arguments are a failed call by a name of ours, and what follows is traced."""
        [hook] = [hook for hook in HOOKS if hook.target == "ToolAgentLoop._call_tool"]
        stand_in = StandIn(hook, stand_ins.form_of(hook))
        install(stand_in)
        stand_in.owner.tools = {"add": object()}
        call = stand_ins.plausible("tool_call")

        async def main() -> None:
            with rollout_trace_attr(step=1, sample_index=0):
                for arguments in ("[" * 100_000, "[" * 30_000, "{}"):
                    call.arguments = arguments
                    await stand_in.call([call, {}, None], {})
                assert tools._tool_call.get() is None

        asyncio.run(main())
        flush()
        spans = [span for span in rollout_spans.as_dicts() if span["attributes"]["openinference.span.kind"] == "TOOL"]
        assert [(span["name"], span["status"]) for span in spans] == [("unknown_tool", "ERROR")] * 3
        assert {len(span["attributes"]["rollout.requested_tool"]) for span in spans} == {200}
        assert {span["attributes"]["gen_ai.tool.name"] for span in spans} == {"unknown_tool"}


class TestMemory:
    """Memory of running trajectories."""

    def test_ids_of_running_trajectories_are_not_kept(self, rollout_spans: InMemorySpanExporter) -> None:
        """A turn of 100,000 ids leaves less than a kilobyte behind, and the next one still shows only what is new."""
        output = SimpleNamespace(token_ids=[7], stop_reason="stop", extra_fields={}, num_preempted=0)
        stand_in = StandIn(
            generation.GENERATE, dataclasses.replace(stand_ins.form_of(generation.GENERATE), result=lambda: output)
        )
        install(stand_in)
        ids = list(range(100_000))
        state = Rollout(Identity(1, 0, 0, "index", "batch"), True, {}, None)

        async def main() -> None:
            token = rollout_variable.set(state)
            with rollout_trace_attr(step=1, sample_index=0):
                for prompt in (ids, [*ids, 7, 8], [0, 1, 3]):
                    await stand_in.call(["request"], {"prompt_ids": prompt, "sampling_params": {}})
            rollout_variable.reset(token)

        asyncio.run(main())
        flush()
        assert len(pickle.dumps(state.sequences)) < 1000
        turns = [span["attributes"] for span in rollout_spans.as_dicts() if span["name"].endswith("generate")]
        assert turns[1]["input.value"]["prompt_ids"] == [8]
        assert turns[1]["input.value"]["prompt_ids_start"] == 100_001
        assert [turn.get("rollout.prefix_broken") for turn in turns] == [None, None, True]

    def test_last_turn_of_a_response(self) -> None:
        """The final text is what the model said last, with what tools said before and after it left out."""
        ids, mask = [1, 2, 3, 4, 5, 6], [1, 0, 1, 1, 0, 0]
        assert rewards._last_turn(SimpleNamespace(response_ids=ids, response_mask=mask)) == [3, 4]
        assert rewards._last_turn(SimpleNamespace(response_ids=ids, response_mask=[1] * 6)) == ids
        assert rewards._last_turn(SimpleNamespace(response_ids=ids, response_mask=[0] * 6)) == ids
