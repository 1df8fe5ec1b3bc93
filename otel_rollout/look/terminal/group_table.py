"""The rollouts of one prompt as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

# Its names are imported at first use: a table without prompts needs none of them.
from otel_rollout import facts, semconv
from otel_rollout.facts.amounts import deviation_of, mean_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.facts.trace_tree import STATUS_STYLES
from otel_rollout.look.terminal.table import Cell, Column, Table
from otel_rollout.messages import parse_json
from otel_rollout.text.plain_text import duration, printable, shorten, status_name

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_ANSWER: Final = 60
COLUMNS: Final = (
    Column("rollout"),
    Column("status", is_text=True),
    Column("turns", rank=5),
    Column("tokens", rank=6),
    Column("tool errors", rank=1),
    Column("duration", rank=4),
    Column("answer", is_text=True, narrowest=12, keeps_end=True),
    Column("reward"),
    Column("advantage", rank=2),
)


def group_table(group: Sequence[TrajectorySummary], answers: Sequence[str], *, id_digits: int = 0) -> Table:
    """Return a table with one row a rollout, with the advantage that GRPO would give it.

    Args:
        group: The rollouts of one prompt.
        answers: Their answers.
        id_digits: The digits of the trace ids that are shown.
    """
    table = Table([*COLUMNS, *([Column("trace", is_text=True, rank=3)] if id_digits else [])])
    for each, cells in zip(group, group_cells(group, answers, MAX_ANSWER), strict=True):
        table.add_row(*cells, *([each.trace_id[:id_digits]] if id_digits else []))
    return table


def group_cells(group: Sequence[TrajectorySummary], answers: Sequence[str], max_answer: int) -> list[list[str | Cell]]:
    """Return the cells of `COLUMNS` for each rollout of one prompt.

    Args:
        group: The rollouts.
        answers: Their answers.
        max_answer: The most characters of an answer; its beginning and its end are kept.
    """
    compared = advantages([each.reward for each in group])
    return [
        [
            _text(each.rollout_n),
            status_cell(each.status, has_root=each.has_root),
            _text(each.turns),
            token_counts(each.input_tokens, each.output_tokens),
            f"{sum(tool.errors for tool in each.tools.values()):,}",
            duration(each.end_time - each.start_time),
            _answer(answer, max_answer),
            "-" if each.reward is None else f"{each.reward:.3g}",
            "-" if advantage is None else f"{advantage:+.2f}",
        ]
        for each, answer, advantage in zip(group, answers, compared, strict=True)
    ]


def status_cell(status: object, *, has_root: bool) -> Cell:
    """Return a trajectory's status as a cell."""
    name = status_name(status, has_root=has_root)
    return Cell(name, STATUS_STYLES.get(name, "yellow" if name != "-" else ""))


def token_counts(given: Any, generated: Any) -> str:
    """Return the tokens of a trajectory: in its prompts, and generated."""
    return "-" if given is None and generated is None else f"{_text(given)}→{_text(generated)}"


def _answer(text: str, limit: int) -> str:
    line = printable(" ".join(text[: 10 * limit].split()) if len(text) <= 10 * limit else "")
    if len(text) > 10 * limit:
        line = f"{printable(shorten(text, limit // 2))}{printable(' '.join(text[-limit // 2 :].split()))}"
    if len(line) > limit:
        line = f"{line[: limit // 2]}…{line[-(limit // 2 - 1) :]}"
    return line or "-"


def _text(value: Any) -> str:
    return "-" if value is None else printable(str(value))


def prompt_of(spans: Sequence[ReadableSpan]) -> str:
    """Return a trajectory's prompt: the root's input, or the first question of the first generation."""
    root = _root_of(spans)
    if root is not None and (prompt := _attribute_text(root, semconv.INPUT_VALUE) or _question(root)):
        return prompt
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return _question(turns[0]) if turns else ""


def answer_of(spans: Sequence[ReadableSpan]) -> str:
    """Return a trajectory's answer: the root's output; if that was not recorded, the last words of the model."""
    root = _root_of(spans)
    if root is not None:
        if semconv.OUTPUT_VALUE in (root.attributes or {}):
            return _attribute_text(root, semconv.OUTPUT_VALUE)
        if said := facts.said_by(root):
            return said
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return facts.said_by(turns[-1]) if turns else ""


def advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Return each reward's advantage within its group, as GRPO takes it: (reward - mean) / deviation.

    Args:
        rewards: The rewards; one that is unknown has no advantage, and the others are compared without it.
    """
    known = [reward for reward in rewards if reward is not None]
    if not known:
        return [None] * len(rewards)
    mean, deviation = mean_of(known), deviation_of(known)
    return [None if reward is None else (reward - mean) / (deviation + 1e-6) for reward in rewards]


def _root_of(spans: Sequence[ReadableSpan]) -> ReadableSpan | None:
    return next((span for span in spans if span.parent is None), None)


def _is(span: ReadableSpan, kind: str) -> bool:
    return (span.attributes or {}).get(semconv.SPAN_KIND) == kind


def _question(span: ReadableSpan) -> str:
    users = [message.text for message in facts.input_messages(span) if message.role == "user"]
    return users[0] if users else ""


def _attribute_text(span: ReadableSpan, key: str) -> str:
    """Return a payload as text: messages by their text, a JSON string without its quotes, nothing for null."""
    payload = (span.attributes or {}).get(key)
    parsed = parse_json(payload)
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, (dict, list)):
        said = facts.said_by(span) if key == semconv.OUTPUT_VALUE else _question(span)
        return said or str(payload)
    return "" if payload in (None, "null") else str(payload)
