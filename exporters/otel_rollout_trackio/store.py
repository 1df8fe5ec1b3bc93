"""The interface of the stores of conversations."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from otel_rollout.export.outcome import Outcome
from otel_rollout_trackio.translate import Conversation

__all__ = ["Store", "StoreError"]


class StoreError(Exception):
    """A request failed; `outcome` decides delivery's next step."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Store(abc.ABC):
    """A destination of conversations; each method raises `StoreError`."""

    @abc.abstractmethod
    def write(self, conversations: Sequence[Conversation]) -> None:
        """Store conversations; one that is stored already stays as it is."""

    @abc.abstractmethod
    def read(self, project: str, run_id: str, log_id: str) -> list[dict[str, Any]]:
        """Return the stored trackio traces whose id or metadata have `log_id`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect."""
