"""Summaries of trajectories: from their spans, from the columns of an index, and from the lines of one trajectory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.facts.amounts import sum_of
from otel_rollout.facts.builder import MAX_ERRORS, MAX_ODD, Collected, SummaryBuilder
from otel_rollout.facts.figures import Figures, SpanRow, Totals, bound_tools, figures_of, shape_columns
from otel_rollout.facts.json_types import readers_of
from otel_rollout.facts.reward_parts import MEASURES, OF_TRAINING, REWARD
from otel_rollout.facts.shapes import Shapes
from otel_rollout.facts.table import (
    COLUMNS,
    FACTS,
    Fact,
    Provenance,
    SpanError,
    TrajectorySummary,
    columns_of,
    identity_of,
)
from otel_rollout.text.sanitize import INT64_MAX

_LATEST: Final = (REWARD, *OF_TRAINING, *MEASURES)
_SECONDS: Final = ("llm_seconds", "tool_seconds", "reward_seconds", "waiting_seconds")
_SHAPE: Final = b',"shape":{'
_PROVENANCE: Final = b',"provenance":['
_JOINS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {"sum": sum_of, "least": min, "most": max}


_READERS: Final[Sequence[tuple[str, Callable[[Any], Any]]]] = tuple(
    (name, readers_of(TrajectorySummary)[name]) for name, _ in COLUMNS if name != "shape"
)


def summarise_trajectory(spans: Iterable[ReadableSpan]) -> TrajectorySummary:
    """Return the summary of a trajectory, or of a part of one.

    Args:
        spans: Its spans, of one trace, in any order; a span that comes twice counts once.

    Raises:
        ValueError: There is none.
    """
    known = {span.context.span_id: span for span in spans if span.context is not None}
    first = next(iter(known.values()), None)
    if first is None or first.context is None:
        raise ValueError("a trajectory has one span at least")
    builder = SummaryBuilder(first.context.trace_id)
    builder.add(known.values())
    collected = Collected(builder)
    summary = TrajectorySummary(**identity_of(collected), **columns_of(collected))
    summary.shape = Shapes(collected.shape)
    return summary


def summary_of_json(
    identity: Mapping[str, Any], columns: bytes, shape_of_spans: Callable[[], Mapping[str, Any]] | None = None
) -> TrajectorySummary:
    """Return the summary of columns in JSON, without the braces; the shape is parsed on first use.

    Args:
        identity: The fields that `columns` lacks.
        columns: The columns, which another program may have written.
        shape_of_spans: Returns the columns of the shape if `columns` have another form of it.

    Raises:
        ValueError: A column has another form.
    """
    # In a text a quote would have a backslash before it.
    start, end = columns.find(_SHAPE), columns.rfind(_PROVENANCE)
    try:
        if 0 <= start < end:
            given = orjson.loads(b"{%b%b}" % (columns[:start], columns[end:]))
            shape = Shapes(columns[start + len(_SHAPE) - 1 : end], shape_of_spans)
        else:
            given = orjson.loads(b"{%b}" % columns)
            shape = Shapes(given["shape"])
        values = {name: read(given[name]) for name, read in _READERS}
    except (LookupError, TypeError) as error:
        raise ValueError(f"no summary: {error}") from error
    if any(counts.errors > counts.calls for counts in values["tools"].values()):
        raise ValueError("tools has another form")
    return TrajectorySummary(**identity, **values, shape=shape)


def merge_summaries(parts: Sequence[TrajectorySummary]) -> TrajectorySummary:
    """Return the summary of a trajectory from the summaries of its parts, which have no span in common.

    It equals the summary of all spans if each part's `shape` has all of its spans; else durations, tokens and turns
    are sums over the parts.

    Args:
        parts: The summaries, of one trace, in any order.

    Raises:
        ValueError: There is none.
    """
    if len(parts) < 2:
        if not parts:
            raise ValueError("a trajectory has one part at least")
        return parts[0]
    merged = _Merged(parts)
    own = {
        "end_time": merged.end_time,
        "finish_reason": merged.finished.finish_reason,
        **{name: merged.latest.get(name, (0, None))[1] for name in _LATEST},
        "reward_parts": {name[1:]: value for name, (_, value) in sorted(merged.latest.items()) if name[0] == "."},
        "late": {name: at for name, (at, _) in sorted(merged.latest.items()) if at > 0},
        "odd_results": _sums([part.odd_results for part in merged.parts]),
        "errors": merged.errors(),
        "prompt": merged.prompted.prompt,
        "answer": merged.answered.answer,
        "provenance": merged.provenance,
    }
    joined = {each.name: merged.join(each) for each in FACTS if each.merge not in ("main", "own")}
    return replace(merged.main, **own, **joined)


class _Merged:
    """The lines of a trajectory; the table's functions read figures, totals and shape of it."""

    def __init__(self, parts: Sequence[TrajectorySummary]) -> None:
        self.parts = sorted(parts, key=lambda part: part.provenance.main)
        self.main = self.parts[0]
        self.latest = _latest_facts(self.parts)
        self.prompted = self._best("prompt", "start_of_prompt", is_last=False)
        self.answered = self._best("answer", "start_of_answer", is_last=True)
        self.finished = self._best("finish_reason", "start_of_finish", is_last=True)
        names: dict[str, int] = {}
        self._rows = sorted(row for part in self.parts for row in _rows_of(part, names))
        start_time = min(part.start_time for part in self.parts)
        self.shape = Shapes(shape_columns(self._rows, list(names), start_time // 1000))
        root_id = self.main.provenance.main[3] if self.main.has_root else 0
        self.figures = figures_of(self._rows, list(names), root_id)
        if len(self._rows) < sum(part.spans for part in self.parts):
            self.figures = self._without_rows(self.figures)
        self.totals = self.figures.totals
        if self.main.provenance.has_totals:
            self.totals = Totals(*(getattr(self.main, name) for name in Totals._fields))

    def join(self, fact: Fact) -> Any:
        """Return a fact of all lines, by the rule of its row in the table."""
        if fact.merge == "rows":
            return fact.of and fact.of(self)
        values = self._known(fact.name)
        return _JOINS[fact.merge](values) if values else None

    def _known(self, name: str) -> list[Any]:
        return [value for part in self.parts if (value := getattr(part, name)) is not None]

    def _without_rows(self, figures: Figures) -> Figures:
        """Return the figures of lines whose shapes lack spans, as far as they can be added up."""
        known = [self._known(name) for name in Totals._fields]
        return figures._replace(
            totals=Totals(*(sum_of(values) if values else None for values in known)),
            tools=bound_tools(pair for part in self.parts for pair in part.tools.items()),
            repeated_calls=max(figures.repeated_calls, *(part.repeated_calls for part in self.parts)),
            **{name: sum(getattr(part, name) for part in self.parts) for name in _SECONDS},
        )

    @property
    def end_time(self) -> int:
        """The root's end, else the last one."""
        return self.main.end_time if self.main.has_root else max(part.end_time for part in self.parts)

    @property
    def provenance(self) -> Provenance:
        """The spans that the values came from."""
        return self.main.provenance._replace(
            start_of_prompt=self.prompted.provenance.start_of_prompt,
            start_of_answer=self.answered.provenance.start_of_answer,
            start_of_finish=self.finished.provenance.start_of_finish,
        )

    def errors(self) -> tuple[SpanError, ...]:
        """Return the first errors of all lines by time; those without a shape are last."""
        positions = {each.span_id: position for position, each in enumerate(self.shape)}
        starts = {row[2]: row[0] for row in self._rows}
        placed = []
        for part in self.parts:
            for error in part.errors:
                failed = part.shape_of(error)
                at = (starts[int(failed.span_id, 16)], int(failed.span_id, 16)) if failed else (INT64_MAX, 0)
                placed.append((at, error._replace(shape=positions.get(failed.span_id, -1) if failed else -1)))
        return tuple(error for _, error in sorted(placed)[:MAX_ERRORS])

    def _best(self, field: str, key: str, *, is_last: bool) -> TrajectorySummary:
        """Return the line whose value counts: the root's, else the first or the last generation's."""
        known = [part for part in self.parts if getattr(part, field)] or self.parts[:1]
        sign = -1 if is_last else 1

        def order(part: TrajectorySummary) -> tuple[bool, int, str]:
            at = getattr(part.provenance, key)
            return at != 0, sign * at, getattr(part, field) or ""

        return min(known, key=order)


def _latest_facts(parts: Sequence[TrajectorySummary]) -> dict[str, tuple[int, Any]]:
    """Return the latest reward, facts of training and parts of the reward, with the time of each.

    Args:
        parts: The summaries, in the order of their first spans.
    """
    latest: dict[str, tuple[int, Any]] = {}
    for part in parts:
        known = {name: getattr(part, name) for name in _LATEST}
        known |= {f".{name}": value for name, value in part.reward_parts.items()}
        for name, value in known.items():
            at = part.late.get(name, 0)
            if value is not None and at >= latest.get(name, (0,))[0]:
                latest[name] = (at, value)
    return latest


def _sums(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = {name: None for each in counts for name in each}
    return {name: sum_of(each.get(name, 0) for each in counts) for name in list(names)[:MAX_ODD]}


def is_disjoint(parts: Sequence[TrajectorySummary]) -> bool:
    """Return True if no span is in two parts, as far as their shapes show."""
    ids = [each.span_id for part in parts for each in part.shape]
    return len(set(ids)) == len(ids)


def without_copies(parts: Sequence[TrajectorySummary]) -> list[TrajectorySummary]:
    """Return the parts without those whose spans are all in parts before them.

    Args:
        parts: The parts of one trajectory; of two that have the same spans the first is kept.
    """
    kept: list[TrajectorySummary] = []
    known: set[str] = set()
    for part in parts:
        ids = {each.span_id for each in part.shape}
        # A shape has a bound: the spans beyond it may be new.
        if kept and ids <= known and len(part.shape) == part.spans:
            continue
        kept.append(part)
        known |= ids
    return kept


def _rows_of(part: TrajectorySummary, names: dict[str, int]) -> Iterable[SpanRow]:
    return part.shape.rows(part.start_time // 1000, names) if isinstance(part.shape, Shapes) else ()
