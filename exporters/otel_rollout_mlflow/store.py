"""What both routes to MLflow can do, and the records that they exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opentelemetry.sdk.trace import ReadableSpan

__all__ = [
    "FINISHED",
    "MAX_LINKED_TRACES",
    "MAX_REWARDS",
    "REWARD_SOURCE",
    "RUNNING",
    "RUN_KEY_TAG",
    "RUN_SETTLED_TAG",
    "TIME_KEY",
    "Feedback",
    "Store",
]

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

RUNNING = "RUNNING"
FINISHED = "FINISHED"

TIME_KEY = "otel_rollout.time_ns"
"""The reward's metadata that says when it was known: of two, the later one counts, in whichever order they arrive."""


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

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that the assessment is stored with."""
        return {TIME_KEY: str(self.time_ns)}

    def is_newer_than(self, metadata: Mapping[str, Any] | None) -> bool:
        """Return whether this reward was known after the one that is stored with this metadata."""
        known = str((metadata or {}).get(TIME_KEY, ""))
        return not known.isdecimal() or self.time_ns > int(known)


class Store(Protocol):
    """A tracking server, or a tracking database; each method makes one attempt and raises `AttemptError`."""

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`, created if there is none."""

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        """Store spans, and as far as they carry them their traces' names, tags and sessions."""

    def trace_infos(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
        """Return what is to be announced of the traces beside their spans, each with whether the root was there."""

    def announce(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Tell what `trace_infos` returned of traces, unless the whole of one was told already."""

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with a run."""

    def record(self, rewards: Sequence[Feedback]) -> None:
        """Store at most `MAX_REWARDS` rewards, each in the place of an older one of its trace."""

    def span_ids(self, trace_id: str) -> set[str] | None:
        """Return the ids of the spans that a trace has, in 16 hexadecimal digits; None where they aren't listed."""

    def run_status(self, run_id: str) -> str | None:
        """Return the status of a run; None if there is none, or it is deleted."""

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        """Return the ids of the runs that were made under `key`, the first made first, and whether each is settled."""

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        """Make a run and return its id."""

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""

    def settle_run(self, run_id: str) -> None:
        """Tag a run as the one that those who come later take."""

    def set_run_status(self, run_id: str, status: str) -> None:
        """Mark a run as `RUNNING` or `FINISHED`."""

    def close(self) -> None:
        """Let go of connections."""
