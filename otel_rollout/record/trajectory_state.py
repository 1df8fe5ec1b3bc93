"""The state of a running trajectory: its tags, its totals, its lost spans and bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from otel_rollout import semconv
from otel_rollout.facts.span_facts import numbered
from otel_rollout.guard import clock
from otel_rollout.guard.signal_safe_lock import SignalSafeLock

if TYPE_CHECKING:
    from otel_rollout.facts.prompt_texts import OpenPrompts

# One lock for all trajectories, so that a forked child can renew it. Reentrant, as the garbage collector may end an
# abandoned span while this thread holds it.
_lock = SignalSafeLock()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = SignalSafeLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TrajectoryState:
    """One trajectory, which all its spans refer to; `root` is None once the root has ended.

    Args:
        tags: The tags, out of five, that the trainer gave, by attribute key.
    """

    def __init__(self, tags: dict[str, Any]) -> None:
        self.tags = tags
        self.clock_offset = clock.clock_offset()
        """From the monotonic clock to the time since 1970: the system's clock may be set while it runs."""
        self.tag_bytes = 4 * sum([len(value) for value in tags.values() if isinstance(value, str)])
        self.has_clean_tags = False
        """True once the tags are redacted."""
        self.is_compacted = False
        """True if its next turn begins a compacted conversation."""
        self.prompts: OpenPrompts | None = None
        """The prompts of its turns, if an exporter needs to know what each one continues."""
        self.annotations: dict[str, Any] = {}
        self.root: Any = None
        self.open_ops: dict[Any, None] = {}
        """The spans of ops that have not ended, in the order of their starts."""
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.truncated_bytes = 0
        self.redacted = 0
        self.dropped_spans: dict[str, int] = {}

    def add_turn(self, input_tokens: int, output_tokens: int) -> int:
        """Count a turn of the model and its tokens; return the turn's number, from 1."""
        with _lock:
            self.turns += 1
            self.input_tokens += input_tokens
            self.output_tokens += output_tokens
            return self.turns

    def add_dropped_span(self, exporter: str) -> None:
        """Count a span that the exporter's queue lost."""
        with _lock:
            self.dropped_spans[exporter] = self.dropped_spans.get(exporter, 0) + 1

    def group(self, run: str) -> str | None:
        """Return the group id, shared by all rollouts of one prompt in one step; None without a sample index.

        Args:
            run: The run's part of the id: in Phoenix a session id is unique across all projects.
        """
        sample = self.tags.get(semconv.SAMPLE_INDEX)
        if sample is None:
            return None
        step = self.tags.get(semconv.STEP)
        # Lists of sessions cut the end off: what differs comes first.
        parts = [numbered("s", sample), *([] if step is None else [f"step {step}"])]
        return " · ".join([*parts, *(["validate"] if self.tags.get(semconv.VALIDATE) else []), run])
