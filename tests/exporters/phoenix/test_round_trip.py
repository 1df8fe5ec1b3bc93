"""Trajectories and rewards in a real Phoenix, read back by its API."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from opentelemetry.trace import get_current_span

import otel_rollout
from otel_rollout import FollowUpStats, annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.facts import RewardPart
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout_phoenix import PhoenixSpanExporter
from otel_rollout_phoenix.annotations import Annotation

from .conftest import SECONDS, counted

pytestmark = pytest.mark.integration


def values(rows: list[dict[str, Any]], of: str) -> dict[tuple[str, str], tuple[Any, Any, Any]]:
    """Return the score, label and explanation of annotations by the id and the name."""
    found = {
        (row[of], row["name"]): tuple(row["result"][key] for key in ("score", "label", "explanation")) for row in rows
    }
    assert len(found) == len(rows)
    return found


def roots(phoenix: Any, project: str) -> dict[int, dict[str, Any]]:
    """Return the roots by their number in the group."""
    found = phoenix.api.spans(project, parent_id="null")
    return {span["attributes"]["rollout.rollout_n"]: span for span in found}


class TestRewards:
    """Rewards as annotations."""

    def test_reward_and_parts(self, phoenix, project, trace) -> None:
        """After a flush Phoenix has each part on the root, and the reward on the trace and in the session's mean."""
        parts = {"correct": False, "judge": {"value": "good", "explanation": "well argued"}}
        trace(phoenix.address, 0.0, 1.0, rewards=parts)
        assert otel_rollout.flush(SECONDS), otel_rollout.stats()

        assert counted() == FollowUpStats(done=6)
        found = roots(phoenix, project)
        ids = {number: span["context"] for number, span in found.items()}
        spans = phoenix.api.annotations(project, "span", identifier=["otel-rollout"])
        assert values(spans, "span_id") == {
            (ids[number]["span_id"], name): value
            for number, reward in enumerate((0.0, 1.0))
            for name, value in {
                "reward": (reward, None, None),
                "correct": (0.0, "false", None),
                "judge": (None, "good", "well argued"),
            }.items()
        }
        traces = phoenix.api.annotations(project, "trace", identifier=["otel-rollout"])
        assert values(traces, "trace_id") == {
            (ids[0]["trace_id"], "reward"): (0.0, None, None),
            (ids[1]["trace_id"], "reward"): (1.0, None, None),
        }
        sessions = phoenix.api.annotations(project, "session", session_ids=[found[0]["attributes"]["session.id"]])
        assert {(row["identifier"], row["result"]["score"]) for row in sessions} == {
            (ids[0]["trace_id"], 0.0),
            (ids[1]["trace_id"], 1.0),
        }
        condition = "annotations['reward'].score > 0.5"
        assert phoenix.api.search(project, condition) == {ids[1]["span_id"]}

    def test_a_late_reward_replaces_the_first(self, phoenix, project) -> None:
        """A reward on a later child of the root replaces the root's, on the trace too; an older one does not."""

        @rollout_trace_op(kind="EVALUATOR")
        def judge(score: float) -> None:
            get_current_span().set_attribute("rollout.reward", score)

        exporter = PhoenixSpanExporter(endpoint=phoenix.address)
        otel_rollout.init(project, "exp", backend=exporter)
        with rollout_trace_attr(12, 7, 0, name="trajectory"):
            carrier = inject()
            annotate(reward=0.25, rewards={"format": 1.0})
        assert otel_rollout.flush(SECONDS)
        older = dict(exporter._annotated)
        with extract(carrier):
            judge(0.75)
        assert otel_rollout.flush(SECONDS)

        def stored() -> dict[str, float]:
            rows = phoenix.api.annotations(project, "span", identifier=["otel-rollout"])
            [trace_row] = phoenix.api.annotations(project, "trace", identifier=["otel-rollout"])
            return {**{row["name"]: row["result"]["score"] for row in rows}, "trace": trace_row["result"]["score"]}

        assert stored() == {"reward": 0.75, "format": 1.0, "trace": 0.75}
        # As another process has it, which knows only the root.
        [root] = phoenix.api.spans(project, parent_id="null")
        ids = root["context"]
        time_ns = older[f"{ids['span_id']} reward"]
        old = Annotation(ids["span_id"], ids["trace_id"], None, RewardPart("reward", 0.25), time_ns)
        assert exporter._annotate(project, [old]) == DELIVERED
        assert stored() == {"reward": 0.75, "format": 1.0, "trace": 0.75}

    def test_a_project_with_a_slash(self, phoenix, project) -> None:
        """A project's name that can't stand in a path of Phoenix's API has its rewards, and is read back."""
        name = f"team/{project}"
        otel_rollout.init(name, "exp", backend=(exporter := PhoenixSpanExporter(endpoint=phoenix.address)))
        with rollout_trace_attr(12, 7, 0, name="trajectory"):
            annotate(reward=0.5)
        assert otel_rollout.flush(SECONDS)
        assert counted() == FollowUpStats(done=1)
        path = exporter._side_api.project_path(name)
        [row] = phoenix.api.annotations(unquote(path), "span", identifier=["otel-rollout"])
        assert row["result"]["score"] == 0.5
