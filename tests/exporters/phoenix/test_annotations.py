"""Rewards on spans as records of Phoenix's annotations."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout_phoenix.annotations import annotations_of

TRACE_ID, ROOT_ID, SCORER_ID = 0xABC, 0xDEF, 0x123


def make_span(attributes: dict[str, Any], span_id: int = ROOT_ID, parent: int | None = None) -> ReadableSpan:
    """Return a span of one trace."""
    return ReadableSpan(
        "span",
        SpanContext(TRACE_ID, span_id, is_remote=False),
        parent=None if parent is None else SpanContext(TRACE_ID, parent, is_remote=True),
        attributes=attributes,
        end_time=1_700_000_000_000_000_001,
    )


def result(name: str, score: float | None, label: str | None = None, explanation: str | None = None) -> dict[str, Any]:
    """Return what all records of a part share."""
    return {
        "name": name,
        "annotator_kind": "CODE",
        "result": {"score": score, "label": label, "explanation": explanation},
        "metadata": {"time_ns": "1700000000000000001"},
    }


class TestAnnotations:
    """`annotations_of`."""

    def test_a_root_with_parts(self) -> None:
        """Each part annotates the root; the reward itself also the trace and the session, there once per trajectory."""
        parts = {"correct": True, "verdict": "good", "judge": {"value": 0.5, "explanation": "half right"}}
        root = make_span(
            {"rollout.reward": 1.0, "rollout.reward_parts": json.dumps(parts), "session.id": "s12 · step 7"}
        )
        annotations = annotations_of([root])
        on_root = {"span_id": f"{ROOT_ID:016x}", "identifier": "otel-rollout"}
        assert [each.span_record() for each in annotations] == [
            {**on_root, **result("reward", 1.0)},
            {**on_root, **result("correct", 1.0, "true")},
            {**on_root, **result("verdict", None, "good")},
            {**on_root, **result("judge", 0.5, None, "half right")},
        ]
        assert [each.is_total for each in annotations] == [True, False, False, False]
        trace_id = f"{TRACE_ID:032x}"
        assert annotations[0].trace_record() == {
            "trace_id": trace_id, "identifier": "otel-rollout", **result("reward", 1.0)
        }  # fmt: skip
        assert annotations[0].session_record() == {
            "session_id": "s12 · step 7", "identifier": trace_id, **result("reward", 1.0)
        }  # fmt: skip

    def test_a_late_reward(self) -> None:
        """A reward on a child annotates the root; the session is unknown there."""
        [late] = annotations_of([make_span({"rollout.reward": 0.25}, SCORER_ID, ROOT_ID)])
        assert (late.span_id, late.session_id, late.part.value) == (f"{ROOT_ID:016x}", None, 0.25)

    def test_spans_without_rewards(self) -> None:
        """Other spans have none."""
        assert annotations_of([make_span({}), make_span({"rollout.step": 1}, SCORER_ID, ROOT_ID)]) == []
