"""The figures of a trajectory, computed from the rows of its spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, NamedTuple

from otel_rollout.facts.compact_spans import ERROR, EVALUATOR, KINDS, LLM, TOOL, Around, SpanRow
from otel_rollout.text.sanitize import INT64_MAX

MAX_ERRORS: Final = 8
MAX_TOOLS: Final = 64
OTHER_TOOLS: Final = "…"
"""Has the calls of the tools beyond the bound."""
MAX_HASHES: Final = 256
MAX_KEYS: Final = 32
_PRIME: Final = 0x01000193
"""The hash of a turn is multiplied with it before a result's hash is added, as in FNV."""


class ToolCounts(NamedTuple):
    """The calls of one tool."""

    calls: int
    errors: int


class SpanError(NamedTuple):
    """A span that failed.

    Args:
        name: Its name; of a tool call, the tool's.
        kind: Its OpenInference kind; empty if it has none.
        type: The exception's class or `error.type`; empty if it is unknown.
        is_mended: True if a later call of the same name succeeded, or one of the same kind that it was inside.
        is_first: True if it ended before the first generation began.
    """

    name: str
    kind: str
    type: str
    is_mended: bool
    is_first: bool = False


def figures_of(rows: Sequence[SpanRow], around: Around, root_id: int, users: Container[int]) -> dict[str, Any]:
    """Return facts by name: the times, turns, tokens and tools of a trajectory.

    Args:
        rows: Its spans, by start.
        around: The spans around each.
        root_id: The root's id; 0 without a root.
        users: The spans of a simulated user's turns.
    """
    root = around.known.get(root_id) if root_id else None
    # Spans after the root are no part of it.
    busy = [row for row in rows if row.kind >= EVALUATOR and (root is None or row.start <= root.end)]
    of_users = [row for row in busy if row.span_id in users]
    others = [row for row in busy if row.span_id not in users]
    outer = [row for row in busy if row.kind != EVALUATOR and around.is_outermost(row)]
    hashes: list[int] = []
    for row in outer:
        if row.kind == LLM and row.span_id not in users:
            hashes.append(row.record.content)
        elif hashes and hashes[-1]:
            # A user's words are the policy's input, as a tool's result is.
            hashes[-1] = (hashes[-1] * _PRIME ^ (row.record.content or -row.status)) & 0xFFFFFFFF or 1
    calls = [row for row in outer if row.kind == TOOL]
    repeats = Counter(row.record.call for row in calls if row.record.call)
    waiting = 0.0
    if root is not None:
        waiting = (root.end - root.start) / 1e9 - _seconds(busy, root.start, root.end)
    return {
        **_totals([row for row in outer if row.kind == LLM and row.span_id not in users]),
        **{f"user_{name}": total for name, total in _totals([row for row in outer if row.span_id in users]).items()},
        "user_seconds": _seconds(of_users),
        "llm_seconds": _seconds(row for row in others if row.kind == LLM),
        "tool_seconds": _seconds(row for row in others if row.kind == TOOL),
        "reward_seconds": _seconds(row for row in others if row.kind == EVALUATOR),
        "waiting_seconds": waiting,
        "tools": _tools_of(calls),
        "repeated_calls": max(repeats.values(), default=0),
        "turn_hashes": tuple(f"{each:08x}" if each else "" for each in hashes[:MAX_HASHES]),
    }


def _seconds(rows: Iterable[SpanRow], first: int = 0, last: int = INT64_MAX) -> float:
    """Return the seconds between two times in which one of the spans runs at least."""
    total, until = 0, first
    for row in rows:
        # Without calls of `min` and `max` it takes half the time.
        end = row.end if row.end < last else last
        if end > until:
            total += end - (row.start if row.start > until else until)
            until = end
    return total / 1e9


def _totals(turns: Sequence[SpanRow]) -> dict[str, int | None]:
    asked = [row.asked for row in turns if row.asked is not None]
    answered = [row.answered for row in turns if row.answered is not None]
    return {
        "turns": len(turns) or None,
        "input_tokens": min(sum(asked), INT64_MAX) if asked else None,
        "output_tokens": min(sum(answered), INT64_MAX) if answered else None,
    }


def _tools_of(calls: Sequence[SpanRow]) -> dict[str, ToolCounts]:
    """Return the counts by tool, those that are called most first; the others together beyond the bound."""
    counted = Counter([row.name for row in calls])
    failed = Counter([row.name for row in calls if row.status == ERROR])
    names = sorted(counted, key=lambda name: (name == OTHER_TOOLS, -counted[name], name))
    if len(names) <= MAX_TOOLS:
        return {name: ToolCounts(counted[name], failed[name]) for name in names}
    rest = names[MAX_TOOLS - 1 :]
    kept = {name: ToolCounts(counted[name], failed[name]) for name in names[: MAX_TOOLS - 1]}
    return {**kept, OTHER_TOOLS: ToolCounts(sum(counted[name] for name in rest), sum(failed[name] for name in rest))}


def results_of(rows: Iterable[SpanRow]) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Return the odd results, and the keys of results, of the first tools."""
    odd: dict[str, int] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.record.is_odd and (row.name in odd or len(odd) < MAX_TOOLS):
            odd[row.name] = odd.get(row.name, 0) + 1
        if row.record.keys and (row.name in keys or len(keys) < MAX_TOOLS):
            keys[row.name] = tuple(dict.fromkeys((*keys.get(row.name, ()), *row.record.keys)))[:MAX_KEYS]
    return odd, keys


def errors_of(rows: Sequence[SpanRow], around: Around) -> tuple[SpanError, ...]:
    """Return the first spans that failed."""
    first = next((row.start for row in rows if row.kind == LLM), INT64_MAX)
    failed = [(at, row) for at, row in enumerate(rows) if row.status == ERROR][:MAX_ERRORS]
    errors = []
    for at, row in failed:
        again = (each for each in rows[at + 1 :] if each.name == row.name)
        is_mended = any(each.kind == row.kind and each.status != ERROR for each in (*again, *around[row.parent]))
        errors.append(SpanError(row.name, KINDS[row.kind], row.error, is_mended, row.end <= first))
    return tuple(errors)
