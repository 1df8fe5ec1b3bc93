"""The interface of a tracking server and a tracking database, and the records that they exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.facts.reward_parts import REWARD

MAX_LINKED_TRACES: Final = 100
"""The most traces that MLflow associates with a run in one request."""

MAX_REWARDS: Final = 512
"""The most rewards that are stored together: a failure among them has all of these tried again."""

REWARD_SOURCE: Final = "otel-rollout"

RUN_KEY_TAG: Final = "otel_rollout.run_key"
"""The tag by which a run that an exporter made is found."""

RUN_SETTLED_TAG: Final = "otel_rollout.run_settled"
"""The tag of a run that a worker has settled on: later workers take this one."""

RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"

TIME_KEY: Final = "otel_rollout.time_ns"
"""The reward's metadata key for its time: the later of two rewards counts, in whichever order they arrive."""


class AttemptError(Exception):
    """An attempt to write to MLflow failed.

    Args:
        outcome: The outcome, which decides delivery's next step.
        is_missing: MLflow has no experiment, run or trace of the id in the request.
        is_taken: MLflow has something of that name already.
    """

    def __init__(self, outcome: Outcome, *, is_missing: bool = False, is_taken: bool = False) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        self.is_missing = is_missing
        self.is_taken = is_taken


def configuration_error(reason: str) -> AttemptError:
    """Return the error for a wrong setting: nothing is delivered until it is changed."""
    return AttemptError(Outcome(Verdict.CONFIGURATION_ERROR, reason))


@dataclass(frozen=True)
class Feedback:
    """A reward or a named part of it, as an assessment of a trace.

    Args:
        trace_id: MLflow's id of the trace.
        value: The reward.
        time_ns: When it was known.
        name: `reward`, or the part's name.
        rationale: The reason for the value.
        is_late: True if its span is not stored: the trace may come later, from another process.
    """

    trace_id: str
    value: float | bool | str
    time_ns: int
    name: str = REWARD
    rationale: str = ""
    is_late: bool = False

    @property
    def assessment_id(self) -> str:
        """One id per trace and name: MLflow refuses a second one, so a reward that is sent twice is stored once."""
        own = self.trace_id.removeprefix("tr-")
        if self.name == REWARD:
            return f"a-{own}"
        # The column has room for 50 characters.
        return f"a-{hashlib.sha256(f'{own} {self.name}'.encode()).hexdigest()[:32]}"

    @property
    def metadata(self) -> dict[str, str]:
        """The assessment's metadata."""
        return {TIME_KEY: str(self.time_ns)}

    def is_newer_than(self, metadata: Mapping[str, Any] | None) -> bool:
        """Return True if this reward is later than the stored one that has this metadata."""
        known = str((metadata or {}).get(TIME_KEY, ""))
        return not known.isdecimal() or self.time_ns > int(known)


class Store(Protocol):
    """A tracking server or database; each method makes one attempt and raises `AttemptError`."""

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`; create it if there is none."""

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        """Store spans with the names, tags and sessions of their traces."""

    def trace_infos(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
        """Return the trace infos for `announce`, and True if the trace's root is among `spans`."""
        return []

    def announce(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Store trace infos, except for traces whose root was announced before."""
        return

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with a run."""

    def record(self, rewards: Sequence[Feedback]) -> None:
        """Upsert at most `MAX_REWARDS` rewards; one that is older than the stored one changes nothing."""

    def span_ids(self, trace_id: str) -> set[str] | None:
        """Return the ids of a trace's spans in 16 hexadecimal digits; None if this version doesn't list them."""

    def run_status(self, run_id: str) -> str | None:
        """Return the status of a run; None if there is none, or it is deleted."""

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        """Return the ids of the runs made under `key`, oldest first, and True for each that is settled."""

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        """Create a run and return its id."""

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""

    def settle_run(self, run_id: str) -> None:
        """Tag a run as settled: later workers take this one."""

    def set_run_status(self, run_id: str, status: str) -> None:
        """Set a run's status to `RUNNING` or `FINISHED`."""

    def close(self) -> None:
        """Close the connections."""


def get_or_create_experiment(name: str, find: Callable[[], tuple[str, bool] | None], create: Callable[[], str]) -> str:
    """Return the id of an experiment.

    Args:
        name: Its name.
        find: Returns its id, and True if it is deleted; None if there is none.
        create: Creates it and returns its id.
    """
    for _ in range(2):
        found = find()
        if found is not None:
            experiment_id, is_deleted = found
            if is_deleted:
                raise configuration_error(
                    f"the MLflow experiment {name!r} (id {experiment_id}) is deleted: restore it, delete it for good, "
                    "or choose another name"
                )
            return experiment_id
        try:
            return create()
        except AttemptError as error:
            # Another process created it between our two requests: look again.
            if not error.is_taken:
                raise
    raise AttemptError(Outcome(Verdict.RETRY, f"the MLflow experiment {name!r} is there and not there"))


def check_experiment(experiment_id: str, found: tuple[str, str] | None, name: str | None) -> None:
    """Raise the error of a missing experiment if it was deleted or renamed since its id was found.

    Args:
        experiment_id: Its id.
        found: Its name and its lifecycle stage; None if there is no such experiment.
        name: The name that it was found by; None if it is known by its id.
    """
    if found is None or found[1] == "deleted" or (name is not None and found[0] != name):
        reason = f"the MLflow experiment {name or experiment_id} was deleted or renamed"
        raise AttemptError(Outcome(Verdict.UNEXPLAINED, reason), is_missing=True)


def upsert_reward(
    feedback: Feedback,
    create: Callable[[], object],
    stored_metadata: Callable[[], Mapping[str, Any] | None],
    update: Callable[[], object],
) -> bool:
    """Create the assessment of a reward, or update an older one; return False if the stored one is as new."""
    try:
        create()
    except AttemptError as error:
        # A second one of this id violates a constraint of the database; versions report that in different ways.
        if error.is_missing or error.outcome.verdict in (Verdict.RETRY, Verdict.CONFIGURATION_ERROR):
            raise
        try:
            metadata = stored_metadata()
        except AttemptError as second:
            raise error from second
        if not feedback.is_newer_than(metadata):
            return False
        update()
    return True
