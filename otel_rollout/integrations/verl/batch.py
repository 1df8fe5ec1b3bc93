"""The part of a batch that a worker of verl rolls out, seen before it becomes one call per trajectory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextvars import ContextVar
from typing import Any, Final

from otel_rollout.integrations.verl.identity import Identity, Row, identify, scalar
from otel_rollout.spans.sampling import select_samples

__all__ = ["META_KEY", "Batch", "PromptSelection", "batch_variable"]

META_KEY: Final = "otel_rollout_rows"
"""In a batch's `meta_info`, which no agent loop and no training data sees: one `Row` per row of the whole batch."""


class Batch:
    """One call of `AgentLoopWorker.generate_sequences`.

    Args:
        columns: The columns of the batch by name.
        meta_info: What holds for all of its rows.
        max_samples: How many samples are traced; None for all.
    """

    def __init__(self, columns: dict[str, Any], meta_info: dict[str, Any], max_samples: int | None) -> None:
        self._rows: list[Row] | None = meta_info.get(META_KEY)
        self._seen: Counter[str] = Counter()
        keys = columns.get("uid")
        if keys is None:
            keys = columns.get("index")
        self._traced: set[Any] | None = None
        self._left = max_samples if keys is None else None
        if max_samples is not None and keys is not None:
            step = meta_info.get("global_steps", -1)
            names = [scalar(key) for key in keys]
            self._traced = {names[position] for position in select_samples(names, max_samples, step=step)}

    def identify(self, trajectory: dict[str, Any], columns: dict[str, Any]) -> Identity:
        """Return which trajectory this is; called once for each, in the order of the rows."""
        uid = columns.get("uid")
        nth = None
        if uid is not None:
            nth = self._seen[str(uid)]
            self._seen[str(uid)] += 1
        row = None
        position = scalar(columns.get("priority"))
        if self._rows is not None and isinstance(position, int) and 0 <= position < len(self._rows):
            row = self._rows[position]
        return identify(trajectory, columns, row=row, nth_of_group=nth)

    def is_traced(self, columns: dict[str, Any]) -> bool:
        """Return whether this sample is one of those that are traced; called once for each."""
        if self._left is not None:
            # Nothing tells the samples apart: the first rows.
            self._left -= 1
            return self._left >= 0
        if self._traced is None:
            return True
        key = columns.get("uid")
        return scalar(columns.get("index") if key is None else key) in self._traced


class PromptSelection:
    """Which prompts of a step are traced where they come one by one: the first ones, with all their rollouts."""

    def __init__(self) -> None:
        self._picked: OrderedDict[tuple[Any, bool], set[Any]] = OrderedDict()

    def is_traced(self, step: Any, validate: bool, prompt: Any, max_samples: int | None) -> bool:
        """Return whether this prompt is one of those that are traced.

        Args:
            step: The training step.
            validate: Whether this is a validation pass.
            prompt: What tells it apart from the other prompts of the step.
            max_samples: How many prompts are traced; None for all.
        """
        if max_samples is None:
            return True
        picked = self._picked.setdefault((step, validate), set())
        while len(self._picked) > 16:
            self._picked.popitem(last=False)
        if prompt not in picked and len(picked) < max_samples:
            picked.add(prompt)
        return prompt in picked


batch_variable: Final[ContextVar[Batch | None]] = ContextVar("otel-rollout-verl-batch", default=None)
