"""What is known of a running trajectory: its tags, its totals, and what was lost of it."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

from otel_rollout import semconv

__all__ = ["TrajectoryState"]

# One for all, held for an addition: a forked child renews it, which it can't do for those of trajectories. Reentrant:
# the garbage collector may end an abandoned span while this thread holds it.
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TrajectoryState:
    """One trajectory, shared by reference by all its spans; its `root` is None once that has ended.

    Args:
        tags: The five tags by attribute key; those that the trainer did not give are left out.
    """

    __slots__ = (
        "annotations",
        "dropped_spans",
        "has_clean_tags",
        "input_tokens",
        "output_tokens",
        "root",
        "tag_bytes",
        "tags",
        "truncated_bytes",
        "turns",
    )

    def __init__(self, tags: dict[str, Any]) -> None:
        self.tags = tags
        self.tag_bytes = sum(4 * len(value) for value in tags.values() if isinstance(value, str))
        self.has_clean_tags = False
        """Whether the tags were searched for secrets."""
        self.annotations: dict[str, Any] = {}
        self.root: Any = None
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.truncated_bytes = 0
        self.dropped_spans: Counter[str] = Counter()

    def add_turn(self, input_tokens: int, output_tokens: int) -> None:
        """Count one turn of the model and its tokens."""
        with _lock:
            self.turns += 1
            self.input_tokens += input_tokens
            self.output_tokens += output_tokens

    def add_dropped_span(self, exporter: str) -> None:
        """Count a span that the queue of `exporter` lost."""
        with _lock:
            self.dropped_spans[exporter] += 1

    def group(self, run: str) -> str | None:
        """Return the group id: what all rollouts of one prompt in one step share; None without a sample index.

        Args:
            run: What tells this run's groups from another's: Phoenix knows a session id once, over all its projects.
        """
        sample = self.tags.get(semconv.SAMPLE_INDEX)
        if sample is None:
            return None
        parts = [run, *(["validate"] if self.tags.get(semconv.VALIDATE) else []), self.tags.get(semconv.STEP, "-")]
        return "/".join(str(part) for part in [*parts, sample])
