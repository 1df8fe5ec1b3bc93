"""What both routes to MLflow can do, and the records that they exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["MAX_LINKED_TRACES", "MAX_REWARDS", "REWARD_SOURCE", "RUN_KEY_TAG", "RUN_SETTLED_TAG", "Feedback", "Store"]

MAX_LINKED_TRACES = 100
"""How many traces MLflow associates with a run in one request."""

MAX_REWARDS = 64
"""How many rewards are stored in one go: a failure in their midst has all of these tried again."""

REWARD_SOURCE = "otel-rollout"
"""What the reward's assessment names as its source."""

RUN_KEY_TAG = "otel_rollout.run_key"
"""The tag that a run is found by which an exporter made."""

RUN_SETTLED_TAG = "otel_rollout.run_settled"
"""The tag of a run that a worker has stayed with: those who come later take this one."""


@dataclass(frozen=True)
class Feedback:
    """A reward, as an assessment of a trace.

    Args:
        trace_id: MLflow's id of the trace.
        value: The reward.
        time_ns: When it was known.
    """

    trace_id: str
    value: float
    time_ns: int

    @property
    def assessment_id(self) -> str:
        """One id per trace: a second one with this id is refused, so a reward that is sent twice is stored once."""
        return f"a-{self.trace_id.removeprefix('tr-')}"


class Store(Protocol):
    """A tracking server, or a tracking database; each method makes one attempt and raises `AttemptError`."""

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`, created if there is none."""

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        """Store spans, and their traces' names, tags and sessions."""

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with a run."""

    def record(self, rewards: Sequence[Feedback]) -> None:
        """Store at most `MAX_REWARDS` rewards, each unless it is there already."""

    def span_ids(self, trace_id: str) -> set[str] | None:
        """Return the ids of the spans that a trace has, in 16 hexadecimal digits; None where they aren't listed."""

    def has_run(self, run_id: str) -> bool:
        """Return whether there is such a run."""

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        """Return the ids of the runs that were made under `key`, the first made first, and whether each is settled."""

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        """Make a run and return its id."""

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""

    def settle_run(self, run_id: str) -> None:
        """Tag a run as the one that those who come later take."""

    def finish_run(self, run_id: str) -> None:
        """Mark a run as finished."""

    def close(self) -> None:
        """Let go of connections."""
