"""Rewards as feedback on the root call, which Weave can filter and sort by."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.http import RequestFailedError
from otel_rollout.export.outcome import Verdict
from otel_rollout.facts.reward_parts import REWARD, reward_parts_of
from otel_rollout.facts.span_facts import span_id_of, trace_id_of
from otel_rollout.guard.log_once import warn_once
from otel_rollout_weave.catalogue import Catalogue, object_id_of

FEEDBACK_PREFIX: Final = "wandb.runnable."
"""The type of a scorer's results begins so; filters use `feedback.[wandb.runnable.reward].payload.output`."""

_VERSION_AND_VARIANT: Final = (7 << 76) | (2 << 62)
_TRACE_BITS: Final = (1 << 62) - 1


@dataclass(frozen=True)
class Reward:
    """A reward of a trajectory, by the id of its root's call; or a named part of it."""

    root_id: str
    trace_id: int
    value: float | bool | str
    time_ns: int
    name: str = REWARD
    explanation: str = ""

    @property
    def id(self) -> str:
        """A UUID of version 7 with the reward's time and, as its random bits, the trace's id and the part's name.

        Weave can't update feedback. The id distinguishes a later reward from an earlier one, and both from feedback
        that is not ours; a reward that is sent twice has one id.
        """
        milliseconds, rest = divmod(self.time_ns, 1_000_000)
        time_bits = (milliseconds & ((1 << 48) - 1)) << 80 | (rest * 4096 // 1_000_000) << 64
        own = self.trace_id
        if self.name != REWARD:
            own ^= int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big")
        return str(uuid.UUID(int=time_bits | _VERSION_AND_VARIANT | own & _TRACE_BITS))

    def is_of_this_trace(self, feedback_id: str) -> bool:
        """Return True if an id is of the same reward or part of the same trace, filed by us."""
        try:
            number = uuid.UUID(feedback_id).int
        except ValueError:
            return False
        return (number ^ uuid.UUID(self.id).int) & (0xF << 76 | (1 << 64) - 1) == 0


def reward_feedback_of(spans: Sequence[ReadableSpan]) -> list[Reward]:
    """Return the rewards on spans, and their parts."""
    rewards = []
    for span in spans:
        # A reward that comes after the root's end is on a child of the root.
        root = span_id_of(span) if span.parent is None else f"{span.parent.span_id:016x}"
        for name, value, explanation in reward_parts_of(span):
            rewards.append(Reward(root, trace_id_of(span), value, span.end_time or 0, name, explanation))
    return rewards


class RewardFeedback:
    """Files rewards, the latest of each trajectory."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._api = catalogue.api

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def file(self, project_id: str, name: str, rewards: Sequence[Reward]) -> None:
        """File rewards of stored calls, unless a later one is stored; purge earlier ones.

        Args:
            project_id: `entity/project`.
            name: `reward`, or the name of the part.
            rewards: The rewards of this name, at most one of each trajectory.

        Raises:
            RequestFailedError: The server did not answer, or refused.
        """
        by_reference = {f"weave:///{project_id}/call/{reward.root_id}": reward for reward in rewards}
        feedback_type = FEEDBACK_PREFIX + object_id_of(name)
        stored = self._stored(project_id, feedback_type, by_reference)
        missing = {ref: reward for ref, reward in by_reference.items() if max(stored[ref], default="") < reward.id}
        if missing:
            scorer = self._catalogue.scorer(project_id, name)
            batch: list[dict[str, Any]] = [
                {
                    "id": reward.id,
                    "project_id": project_id,
                    "weave_ref": reference,
                    "feedback_type": feedback_type,
                    "runnable_ref": scorer,
                    "payload": {
                        "output": reward.value,
                        **({"explanation": reward.explanation} if reward.explanation else {}),
                    },
                }
                for reference, reward in missing.items()
            ]
            self._api.create_feedback(batch)
        # Purged last, so that no trajectory is without its reward in between.
        latest = {ref: max([*stored[ref], reward.id]) for ref, reward in by_reference.items()}
        outdated = [one for ref, ids in stored.items() for one in ids if one != latest[ref]]
        if outdated:
            self._api.purge_feedback(project_id, outdated)

    def _stored(self, project_id: str, feedback_type: str, rewards: Mapping[str, Reward]) -> dict[str, list[str]]:
        """Return the ids of the rewards that we have filed, by call."""
        try:
            found = self._api.stored_feedback(project_id, feedback_type, list(rewards))
        except RequestFailedError as failure:
            if failure.outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED):
                raise
            # A key that may write and not read: a reward twice is better than none.
            warn_once("Weave rewards", "Weave does not say which rewards it has, so some may come twice: %s", failure)
            found = {}
        return {
            ref: [one for one in found.get(ref, []) if reward.is_of_this_trace(one)] for ref, reward in rewards.items()
        }
