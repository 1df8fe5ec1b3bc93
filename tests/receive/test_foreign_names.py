"""Spans of RL-Insight and NeMo Gym, imported: rollouts under their names are trajectories here."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import read_trajectories
from tests.receive.importing import add
from tests.trace_folder.collector_files import write_collector_file
from tests.trace_folder.recordings import make_span

pytest.importorskip("rich")


def rl_insight(
    name: str, number: int, *, session: int = 0, seconds: tuple[float, float] = (0, 1), **more: Any
) -> ReadableSpan:
    """A span as RL-Insight sends it: the root of a trace of its own."""
    identity = {
        "project": "math",
        "experiment_name": "exp-1",
        "sample": "17",
        "session": str(session),
        "traj": "0",
        "uid": "request-17",
        "global_steps": 7,
    }
    return make_span(name, number, 1000 + number, parent=None, attributes={**identity, **more}, seconds=seconds)


def gym(name: str, number: int, rollout: str | None, *, parent: int | None = 1) -> ReadableSpan:
    """A span as NeMo Gym sends it, in the trace of the whole run."""
    attributes = {"nemo.gym.run.id": "run-a"} | ({} if rollout is None else {"nemo.gym.rollout.id": rollout})
    return make_span(name, number, 77, parent=parent, attributes=attributes, seconds=(number, number + 1))


def imported(tmp_path: Any, capsys: Any, requests: list[list[ReadableSpan]]) -> list[Any]:
    """The trajectories of a folder that took these requests."""
    write_collector_file(tmp_path / "otlp.json", "proto", requests)
    add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")
    return sorted(read_trajectories(tmp_path / "traces"), key=lambda each: str(each.rollout_n))


class TestRlInsight:
    """The spans of its Agent Loop protocol."""

    def test_session_is_a_trajectory(self, tmp_path: Any, capsys: Any) -> None:
        """Spans of one session meet in one trajectory, whichever request brings them, with turns and reward."""
        turn = {"prompt_tokens": 9, "completion_tokens": 4, "finish_reason": "stop", "content": "the answer"}
        requests = [
            [
                rl_insight("gateway_generation", 2, turn=1, **turn),
                rl_insight("gateway_generation", 3, session=1, **turn),
            ],
            [rl_insight("agent_session", 4, status="success", seconds=(0, 9))],
            [rl_insight("agent_task", 5, reward=0.5, status="success"), rl_insight("gateway_generation", 6, **turn)],
            [rl_insight("agent_session", 7, session=1, status="failure")],
        ]
        first, second = imported(tmp_path, capsys, requests)
        assert (first.step, first.sample_index, first.rollout_n, first.experiment_name) == (7, 17, 0, "exp-1")
        assert (first.status, first.reward, second.status) == ("completed", 0.5, "error")
        assert sorted(span.name for span in first.spans) == [
            "agent_session",
            "agent_task",
            "gateway_generation",
            "gateway_generation",
        ]
        root = first.spans[-1]
        assert root.parent is None
        assert all(span.parent.span_id == root.context.span_id for span in first.spans[:-1])
        generation = next(span.attributes for span in first.spans if span.name == "gateway_generation")
        assert generation["openinference.span.kind"] == "LLM"
        assert (generation["gen_ai.usage.input_tokens"], generation["output.value"]) == (9, "the answer")
        assert generation["turn"] == 1

    def test_names_without_their_identity_stay(self, tmp_path: Any, capsys: Any) -> None:
        """A span with one of the names and without the identity is that of another program."""
        span = make_span("agent_task", 2, 5, parent=None, attributes={"sample": "3"})
        [found] = imported(tmp_path, capsys, [[span]])
        assert (found.step, found.sample_index, found.spans[0].context.trace_id) == (None, None, 5)


class TestNemoGym:
    """The spans of its telemetry."""

    def test_rollouts_of_one_trace(self, tmp_path: Any, capsys: Any) -> None:
        """Each rollout in the trace of a run is a trajectory, with its model calls and its verification."""
        spans = [gym("gym.job", 1, None, parent=None), gym("POST /run", 2, None)]
        for number, rollout in enumerate(("12-0", "12-1-a1")):
            first = 10 * number
            spans += [
                gym("gym.model.responses", first + 13, rollout),
                gym("gym.verify", first + 14, rollout),
                gym("gym.sandbox.exec", first + 15, rollout),
                gym("gym.rollout", first + 12, rollout, parent=2),
            ]
        zero, one, rest = imported(tmp_path, capsys, [spans])
        assert [(each.sample_index, each.rollout_n, each.experiment_name) for each in (zero, one)] == [
            (12, 0, "run-a"),
            (12, 1, "run-a"),
        ]
        kinds = {span.name: span.attributes["openinference.span.kind"] for span in one.spans}
        assert kinds == {
            "gym.model.responses": "LLM",
            "gym.verify": "EVALUATOR",
            "gym.sandbox.exec": "CHAIN",
            "gym.rollout": "AGENT",
        }
        assert sorted(span.name for span in rest.spans) == ["POST /run", "gym.job"]

    def test_rollout_with_an_id_of_its_own(self, tmp_path: Any, capsys: Any) -> None:
        """An id that isn't made of task and rollout is the sample's index."""
        [found] = imported(tmp_path, capsys, [[gym("gym.rollout", 12, "eval.a_b", parent=None)]])
        assert (found.sample_index, found.rollout_n) == ("eval.a_b", None)
