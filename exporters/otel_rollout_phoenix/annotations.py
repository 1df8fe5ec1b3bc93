"""Rewards as annotations of spans, traces and sessions: pure functions of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.reward_parts import REWARD, RewardPart, reward_parts_of
from otel_rollout.facts.span_facts import span_id_of, trace_id_of

IDENTIFIER: Final = "otel-rollout"
"""Phoenix keeps one annotation for each name and identifier: a second one replaces the first."""
TIME_KEY: Final = "time_ns"


@dataclass(frozen=True)
class Annotation:
    """A reward or a part of one, of the trajectory whose root is `span_id`."""

    span_id: str
    trace_id: str
    session_id: str | None
    part: RewardPart
    time_ns: int

    @property
    def key(self) -> str:
        """The key among the annotations of one project."""
        return f"{self.span_id} {self.part.name}"

    @property
    def is_total(self) -> bool:
        """True for the reward itself: traces and sessions are annotated with it, not with its parts."""
        return self.part.name == REWARD

    @property
    def size(self) -> int:
        """An estimate of the memory of its texts in bytes."""
        value = self.part.value
        return 2 * (len(self.part.name) + len(self.part.explanation)) + (len(value) if isinstance(value, str) else 0)

    def span_record(self) -> dict[str, Any]:
        """Return the record of `POST /v1/span_annotations`."""
        return {"span_id": self.span_id, "identifier": IDENTIFIER, **self._result()}

    def trace_record(self) -> dict[str, Any]:
        """Return the record of `POST /v1/trace_annotations`."""
        return {"trace_id": self.trace_id, "identifier": IDENTIFIER, **self._result()}

    def session_record(self) -> dict[str, Any]:
        """Return the record of `POST /v1/session_annotations`, one for each trajectory: Phoenix shows their mean."""
        return {"session_id": self.session_id, "identifier": self.trace_id, **self._result()}

    def _result(self) -> dict[str, Any]:
        score, label = self.part.score_and_label
        explanation = self.part.explanation or None
        return {
            "name": self.part.name,
            "annotator_kind": "CODE",
            "result": {"score": score, "label": label, "explanation": explanation},
            "metadata": {TIME_KEY: str(self.time_ns)},
        }


def annotations_of(spans: Sequence[ReadableSpan]) -> list[Annotation]:
    """Return the annotations for the rewards on spans."""
    found = []
    for span in spans:
        parts = reward_parts_of(span)
        if not parts:
            continue
        # A reward that comes after the root's end is on a child of the root.
        root = span_id_of(span) if span.parent is None else f"{span.parent.span_id:016x}"
        session = (span.attributes or {}).get(semconv.SESSION_ID)
        session_id = session if isinstance(session, str) and session else None
        trace_id = f"{trace_id_of(span):032x}"
        found += [Annotation(root, trace_id, session_id, part, span.end_time or 0) for part in parts]
    return found
