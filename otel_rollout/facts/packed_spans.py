"""The spans of a trajectory as rows of numbers, packed while it is running, and its figures."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

from otel_rollout import semconv
from otel_rollout.text.sanitize import INT64_MAX

KINDS: Final = ("", "AGENT", "CHAIN", "EMBEDDING", "EVALUATOR", "LLM", "TOOL")
"""A row has the position of its kind here."""
AGENT, EVALUATOR, LLM, TOOL = 1, 4, 5, 6
_SCOPES: Final = frozenset(map(KINDS.index, semconv.SCOPES))
ERROR: Final = 2
PRIME: Final = 0x01000193
"""The hash of a turn is multiplied with it before a result's hash is added, as in FNV."""
UINT32_MAX: Final = 2**32 - 1
MAX_TOOLS: Final = 64
OTHER_TOOLS: Final = "…"
"""Has the calls of the tools beyond the bound."""
MAX_HASHES: Final = 256
MAX_DEPTH: Final = 256
"""Deeper nesting is not looked through: spans of other programs may even be nested in a circle."""
SpanRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Start and end (microseconds since 1970), span id, parent id (or 0), hash of its output, hash of its
call (or 0), input and output tokens (or -1), name (its position in a list), kind, status. Rows sort by start."""

PACKED: Final = Struct("<qqQQIIqqIBB")
"""A row in 61 bytes; as a tuple it would take 400."""


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


class Totals(NamedTuple):
    """The generations of a trajectory, except nested ones; None is unknown."""

    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Figures(NamedTuple):
    """The figures of a trajectory, computed from its rows.

    Args:
        totals: The turns and tokens of its generations.
        of_user: The turns and tokens of a simulated user's generations.
        user_seconds: The time in these.
        llm_seconds: The time in the other generations.
        tool_seconds: The time in tools.
        reward_seconds: The time in evaluators.
        waiting_seconds: The time of the root in none of them.
        tools: The calls by tool.
        repeated_calls: The most calls of one tool with the same arguments.
        turn_hashes: A hash of each turn.
    """

    totals: Totals
    of_user: Totals
    user_seconds: float
    llm_seconds: float
    tool_seconds: float
    reward_seconds: float
    waiting_seconds: float
    tools: dict[str, ToolCounts]
    repeated_calls: int
    turn_hashes: tuple[str, ...]


def figures_of(  # noqa: PLR0915 - one pass
    rows: Sequence[SpanRow], names: Sequence[str], root_id: int, users: Container[int] = ()
) -> Figures:
    """Return the figures of a trajectory."""
    root = next((row for row in rows if row[2] == root_id), None) if root_id else None
    root_start, root_end, root_kind = (root[0], root[1], root[9]) if root is not None else (0, 0, 0)
    parents: dict[int, tuple[int, int]] | None = None
    turns = turn = llm = llm_end = user = user_end = tool = tool_end = reward = reward_end = busy = 0
    busy_end = root_start
    input_tokens = output_tokens = -1
    of_user = [0, -1, -1]
    hashes: list[str] = []
    calls: dict[int, int] = {}
    failed: dict[int, int] = {}
    repeats: dict[int, int] = {}
    # One pass, with the covered time of each kind: a span's summary may cost the traced program microseconds.
    for start, end, span_id, parent, content, call, asked, answered, name, kind, status in rows:
        # Spans after the root are no part of it.
        if kind < EVALUATOR or (root is not None and start > root_end):
            continue
        if end > busy_end and start < root_end and busy_end < root_end:
            last = end if end < root_end else root_end
            busy += last - (start if start > busy_end else busy_end)
            busy_end = last
        is_user = span_id in users
        if is_user:
            if end > user_end:
                user += end - (start if start > user_end else user_end)
                user_end = end
        elif kind == LLM:
            if end > llm_end:
                llm += end - (start if start > llm_end else llm_end)
                llm_end = end
        elif kind == TOOL:
            if end > tool_end:
                tool += end - (start if start > tool_end else tool_end)
                tool_end = end
        else:
            if end > reward_end:
                reward += end - (start if start > reward_end else reward_end)
                reward_end = end
            continue
        if parent and (parent != root_id or root_kind == kind):
            if parents is None:
                parents = {row[2]: (row[3], row[9]) for row in rows}
            if _is_inside(parent, kind, parents):
                continue
        if is_user:
            of_user = [of_user[0] + 1, _plus(of_user[1], asked), _plus(of_user[2], answered)]
            if turn:
                # It is the policy's input, as a tool's result is.
                turn = (turn * PRIME ^ content) & UINT32_MAX or 1
        elif kind == LLM:
            if turns and turns <= MAX_HASHES:
                hashes.append("%08x" % turn if turn else "")  # noqa: UP031 - half the time of other ways
            turns += 1
            turn = content
            if asked >= 0:
                input_tokens = asked + (input_tokens if input_tokens > 0 else 0)
            if answered >= 0:
                output_tokens = answered + (output_tokens if output_tokens > 0 else 0)
        else:
            calls[name] = calls.get(name, 0) + 1
            if status == ERROR:
                failed[name] = failed.get(name, 0) + 1
            if call:
                repeats[call] = repeats.get(call, 0) + 1
            if turn:
                turn = (turn * PRIME ^ (content or -status)) & UINT32_MAX or 1
    if turns and turns <= MAX_HASHES:
        hashes.append(f"{turn:08x}" if turn else "")
    return Figures(
        _totals(turns, input_tokens, output_tokens),
        _totals(*of_user),
        user / 1e6,
        llm / 1e6,
        tool / 1e6,
        reward / 1e6,
        (root_end - root_start - busy) / 1e6 if root is not None else 0.0,
        bound_tools((names[name], ToolCounts(count, failed.get(name, 0))) for name, count in calls.items()),
        max(repeats.values(), default=0),
        tuple(hashes),
    )


def _plus(known: int, more: int) -> int:
    """Return the sum of counts, in which -1 is unknown."""
    return known if more < 0 else more + max(known, 0)


def _totals(turns: int, *tokens: int) -> Totals:
    return Totals(turns or None, *(min(count, INT64_MAX) if count >= 0 else None for count in tokens))


def is_mended(failed: SpanRow, rows: Sequence[SpanRow]) -> bool:
    """Return True if a later call of the same name succeeded, or a call of the same kind that this one is inside."""
    _, _, span_id, parent, _, _, _, _, name, kind, _ = failed
    is_later = False
    for row in rows:
        if is_later and row[8] == name and row[9] == kind and row[10] != ERROR:
            return True
        is_later = is_later or row[2] == span_id
    parents = {row[2]: row for row in rows}
    # Spans of other programs may be nested in a circle.
    for _ in range(MAX_DEPTH):
        around = parents.get(parent)
        if around is None:
            return False
        if around[9] == kind and around[10] != ERROR:
            return True
        parent = around[3]
    return False


def bound_tools(tools: Iterable[tuple[str, ToolCounts]]) -> dict[str, ToolCounts]:
    """Return the counts by tool, those that are called most first; the others together beyond the bound."""
    counted: dict[str, ToolCounts] = {}
    for name, counts in tools:
        known = counted.get(name)
        counted[name] = (
            counts if known is None else ToolCounts(known.calls + counts.calls, known.errors + counts.errors)
        )
    if len(counted) < 2:
        return counted
    names = sorted(counted, key=lambda name: (name == OTHER_TOOLS, -counted[name].calls, name))
    if len(names) <= MAX_TOOLS:
        return {name: counted[name] for name in names}
    rest = [counted[name] for name in names[MAX_TOOLS - 1 :]]
    kept = {name: counted[name] for name in names[: MAX_TOOLS - 1]}
    kept[OTHER_TOOLS] = ToolCounts(sum(each.calls for each in rest), sum(each.errors for each in rest))
    return kept


def unpack(packed: bytes | bytearray) -> list[SpanRow]:
    """Return packed rows, sorted."""
    return sorted(cast("Iterable[SpanRow]", PACKED.iter_unpack(packed)))


def scopes_of(rows: Sequence[SpanRow]) -> Iterator[tuple[SpanRow, tuple[int, ...]]]:
    """Yield the generations that are in no other one, with the agents, tools and evaluators around each."""
    parents = {row[2]: row for row in rows}
    for row in rows:
        if row[9] != LLM:
            continue
        scope: dict[int, None] = {}
        around = parents.get(row[3])
        for _ in range(MAX_DEPTH):
            if around is None or around[9] == LLM:
                break
            # A root is around everything.
            if around[9] in _SCOPES and around[3]:
                scope[around[2]] = None
            around = parents.get(around[3])
        if around is None or around[9] != LLM:
            yield row, tuple(reversed(scope))


def _is_inside(span_id: int, kind: int, parents: dict[int, tuple[int, int]]) -> bool:
    """Return True if a span is one of a kind, or inside one."""
    for _ in range(MAX_DEPTH):
        found = parents.get(span_id)
        if found is None:
            return False
        if found[1] == kind:
            return True
        span_id = found[0]
    return False
