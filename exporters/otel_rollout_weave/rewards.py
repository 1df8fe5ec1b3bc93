"""Rewards as feedback on the root call, which Weave can filter and sort by."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.delivery.outcome import Verdict
from otel_rollout_weave.api import RequestFailedError, WeaveApi
from otel_rollout_weave.catalogue import REWARD, Catalogue
from otel_rollout_weave.sent import SentIds
from otel_rollout_weave.translate import call_id, reward_of_span

__all__ = ["FEEDBACK_TYPE", "RewardFeedback"]

_logger = logging.getLogger(__name__)

FEEDBACK_TYPE: Final = f"wandb.runnable.{REWARD}"
"""The type of a scorer's results; a filter names `feedback.[wandb.runnable.reward].payload.output`."""


class RewardFeedback:
    """Files the rewards of a batch's roots, each once.

    Args:
        api: The server.
        catalogue: Where the object that rewards are filed under is registered.
        sent: Which rewards may be stored already; it outlives the connection.
    """

    def __init__(self, api: WeaveApi, catalogue: Catalogue, sent: SentIds) -> None:
        self._api = api
        self._catalogue = catalogue
        self._sent = sent
        self._has_warned = False

    def send(self, project_id: str, spans: Sequence[ReadableSpan], *, ask_first: bool) -> None:
        """File the rewards of the roots among `spans`, whose calls are stored already.

        Args:
            project_id: `entity/project`.
            spans: The batch.
            ask_first: Whether to ask which rewards are there, although this process did not send them.

        Raises:
            RequestFailedError: A passing fault. A refusal is only logged: the call holds the reward too.
        """
        rewards = {}
        for span in spans:
            reward = reward_of_span(span)
            context = span.get_span_context()
            if reward is not None and context is not None:
                # One that comes when the root has ended is carried by a span right under it.
                root = call_id(span) if span.parent is None else f"{span.parent.span_id:016x}"
                rewards[f"weave:///{project_id}/call/{root}"] = (reward, context.trace_id)
        if not rewards:
            return
        try:
            self._send(project_id, rewards, ask_first=ask_first)
        except RequestFailedError as failure:
            if failure.outcome.verdict in (Verdict.RETRY, Verdict.UNEXPLAINED):
                self._sent.doubt(rewards)
                raise
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("Weave takes no rewards as feedback; they are in the calls only: %s", failure)
        self._sent.forget(rewards)

    def _send(self, project_id: str, rewards: dict[str, tuple[float, int]], *, ask_first: bool) -> None:
        asked = [reference for reference in rewards if ask_first or self._sent.is_doubtful(reference)]
        stored = self._api.stored_feedback(project_id, FEEDBACK_TYPE, asked) if asked else set()
        missing = {reference: reward for reference, reward in rewards.items() if reference not in stored}
        if not missing:
            return
        scorer = self._catalogue.reward_scorer(project_id)
        batch: list[dict[str, Any]] = [
            {
                "id": str(uuid.UUID(int=trace_id)),
                "project_id": project_id,
                "weave_ref": reference,
                "feedback_type": FEEDBACK_TYPE,
                "runnable_ref": scorer,
                "payload": {"output": reward},
            }
            for reference, (reward, trace_id) in missing.items()
        ]
        self._api.create_feedback(batch)
