"""Rewards as feedback on the root call, which Weave can filter and sort by."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.outcome import Verdict
from otel_rollout.export.span_facts import reward_of, span_id_of, trace_id_of
from otel_rollout.safety.log_once import warn_once
from otel_rollout_weave.api import RequestFailedError
from otel_rollout_weave.catalogue import REWARD, Catalogue

__all__ = ["FEEDBACK_TYPE", "Reward", "RewardFeedback", "reward_feedback_of"]

FEEDBACK_TYPE: Final = f"wandb.runnable.{REWARD}"
"""The type of a scorer's results; filters use `feedback.[wandb.runnable.reward].payload.output`."""

_VERSION_AND_VARIANT: Final = (7 << 76) | (2 << 62)
_TRACE_BITS: Final = (1 << 62) - 1


@dataclass(frozen=True)
class Reward:
    """A reward of a trajectory.

    Args:
        root_id: The id of the root's call.
        trace_id: The trace's id.
        value: The reward.
        time_ns: When it was known.
    """

    root_id: str
    trace_id: int
    value: float
    time_ns: int

    @property
    def id(self) -> str:
        """A UUID of version 7 with the reward's time and, as its random bits, the trace's id.

        Weave can't update feedback. The id tells a later reward from an earlier one, and both from feedback that is not
        ours; a reward that is sent twice has one id.
        """
        milliseconds, rest = divmod(self.time_ns, 1_000_000)
        time_bits = (milliseconds & ((1 << 48) - 1)) << 80 | (rest * 4096 // 1_000_000) << 64
        return str(uuid.UUID(int=time_bits | _VERSION_AND_VARIANT | self.trace_id & _TRACE_BITS))

    def is_of_this_trace(self, feedback_id: str) -> bool:
        """Return True if an id is that of a reward of the same trace, filed by us."""
        try:
            number = uuid.UUID(feedback_id).int
        except ValueError:
            return False
        return (number ^ uuid.UUID(self.id).int) & (0xF << 76 | (1 << 64) - 1) == 0


def reward_feedback_of(spans: Sequence[ReadableSpan]) -> list[Reward]:
    """Return the rewards on spans."""
    rewards = []
    for span in spans:
        value = reward_of(span)
        if value is not None:
            # A reward that comes after the root's end is on a child of the root.
            root = span_id_of(span) if span.parent is None else f"{span.parent.span_id:016x}"
            rewards.append(Reward(root, trace_id_of(span), value, span.end_time or 0))
    return rewards


class RewardFeedback:
    """Files rewards, the latest of each trajectory.

    Args:
        catalogue: Registers the scorer of rewards.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._api = catalogue.api

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def file(self, project_id: str, rewards: Sequence[Reward]) -> None:
        """File rewards of stored calls, unless a later one is stored; purge earlier ones.

        Args:
            project_id: `entity/project`.
            rewards: At most one of each trajectory.

        Raises:
            RequestFailedError: The server did not answer, or refused.
        """
        by_reference = {f"weave:///{project_id}/call/{reward.root_id}": reward for reward in rewards}
        stored = self._stored(project_id, by_reference)
        missing = {ref: reward for ref, reward in by_reference.items() if max(stored[ref], default="") < reward.id}
        if missing:
            scorer = self._catalogue.reward_scorer(project_id)
            batch: list[dict[str, Any]] = [
                {
                    "id": reward.id,
                    "project_id": project_id,
                    "weave_ref": reference,
                    "feedback_type": FEEDBACK_TYPE,
                    "runnable_ref": scorer,
                    "payload": {"output": reward.value},
                }
                for reference, reward in missing.items()
            ]
            self._api.create_feedback(batch)
        # Purged last, so that no trajectory is without its reward in between.
        latest = {ref: max([*stored[ref], reward.id]) for ref, reward in by_reference.items()}
        outdated = [one for ref, ids in stored.items() for one in ids if one != latest[ref]]
        if outdated:
            self._api.purge_feedback(project_id, outdated)

    def _stored(self, project_id: str, rewards: Mapping[str, Reward]) -> dict[str, list[str]]:
        """Return the ids of the rewards that we have filed, by call."""
        try:
            found = self._api.stored_feedback(project_id, FEEDBACK_TYPE, list(rewards))
        except RequestFailedError as failure:
            if failure.outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED):
                raise
            # A key that may write and not read: a reward twice is better than none.
            warn_once("Weave rewards", "Weave does not say which rewards it has, so some may come twice: %s", failure)
            found = {}
        return {
            ref: [one for one in found.get(ref, []) if reward.is_of_this_trace(one)] for ref, reward in rewards.items()
        }
