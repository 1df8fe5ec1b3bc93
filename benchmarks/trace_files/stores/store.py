"""What a store does in the benchmark."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan


class Root(NamedTuple):
    """What is asked of each trajectory of a step."""

    trace_id: str
    sample_index: int
    rollout_n: int
    status: str
    reward: float
    start_time: int
    end_time: int


class Group(NamedTuple):
    """What is asked of each group: the rollouts of one prompt in one step."""

    step: int
    sample_index: int
    rollouts: int
    mean_reward: float


class Store(abc.ABC):
    """Spans on disk.

    Args:
        folder: An empty folder of its own.
    """

    title: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abc.abstractmethod
    def write(self, spans: Sequence[ReadableSpan]) -> None:
        """Store a batch of finished spans."""

    @abc.abstractmethod
    def finish(self) -> None:
        """End writing."""

    @abc.abstractmethod
    def roots(self, step: int) -> Sequence[Root]:
        """Return the trajectories of a step, without their spans."""

    @abc.abstractmethod
    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        """Return the spans of one trajectory in a form of the store's own."""

    @abc.abstractmethod
    def spans(self, step: int) -> Sequence[Any]:
        """Return the spans of a step in a form of the store's own."""

    @abc.abstractmethod
    def groups(self) -> Sequence[Group]:
        """Return the statistics of all groups."""

    @abc.abstractmethod
    def attributes_of(self, span: Any) -> dict[str, Any]:
        """Return the attributes of a span that `trajectory` or `spans` returned."""

    def size(self) -> int:
        """Return how many bytes the store takes on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class Trajectories:
    """Spans held in memory until the root of their trajectory has come: what a file of whole trajectories needs."""

    def __init__(self) -> None:
        self._open: dict[int, list[ReadableSpan]] = {}

    def add(self, spans: Iterable[ReadableSpan]) -> list[list[ReadableSpan]]:
        """Add spans; return the trajectories that are whole now."""
        whole = []
        for span in spans:
            if span.context is None:
                continue
            self._open.setdefault(span.context.trace_id, []).append(span)
            if span.parent is None:
                whole.append(self._open.pop(span.context.trace_id))
        return whole
