"""The spans that a trace folder should have and doesn't: what a process's exporter lost, by step and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from otel_rollout.counts import Loss
from otel_rollout.folder.append_file import AppendFile
from otel_rollout.folder.layout import LOST
from otel_rollout.folder.lines import read_lines, seal_of
from otel_rollout.text.plain_text import counted


class LostSpans(NamedTuple):
    """Spans of one step that are lost.

    Args:
        loss: Their step, and the reason.
        run_id: The run.
        spans: The number of spans.
    """

    loss: Loss
    run_id: str | None
    spans: int


def append_losses(folder: Path, worker: str, run_id: str | None, losses: Mapping[Loss, int]) -> None:
    """Append lines to the worker's file of losses.

    Args:
        folder: The trace folder, created if it is missing.
        worker: The worker's name.
        run_id: The run.
        losses: The numbers of spans; a negative number takes back an earlier one.

    Raises:
        OSError: The disk did not take all of them, and has none of them.
    """
    lines = []
    for loss, spans in losses.items():
        start = orjson.dumps({**loss._asdict(), "run_id": run_id, "spans": spans})[:-1]
        lines.append(start + seal_of(start))
    file = AppendFile(folder / f"{worker}{LOST}")
    try:
        file.append(lines)
    finally:
        file.close()


def read_losses(folders: Iterable[Path]) -> list[LostSpans]:
    """Return the losses in trace folders, in the order of steps; a torn line is left out."""
    total: Counter[tuple[Loss, str | None]] = Counter()
    for path in (path for folder in folders for path in sorted(folder.glob(f"*{LOST}"))):
        with suppress(OSError):
            for line in (line for _, lines in read_lines(path) for line in lines):
                fields = orjson.loads(line + b"}")
                run_id, spans = fields.pop("run_id"), fields.pop("spans")
                total[Loss(**fields), run_id] += spans
    found = [LostSpans(loss, run_id, spans) for (loss, run_id), spans in total.items() if spans > 0]
    return sorted(found, key=lambda each: (each.loss.step is None, each.loss.step or 0, each.loss.reason))


def describe_losses(losses: Iterable[LostSpans]) -> str:
    """Return a line on losses: how many, of which steps, why; empty if there are none."""
    reasons: Counter[str] = Counter()
    steps: dict[int | None, None] = {}
    for each in losses:
        reasons[each.loss.reason] += each.spans
        steps[each.loss.step] = None
    if not reasons:
        return ""
    known = [step for step in steps if step is not None]
    where = [f"step {known[0]}" if len(known) == 1 else f"steps {known[0]} to {known[-1]}"] if known else []
    where += ["no step"] if None in steps else []
    why = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f"{counted(reasons.total(), 'span')} of {' and '.join(where)} lost before this folder had them ({why})"
