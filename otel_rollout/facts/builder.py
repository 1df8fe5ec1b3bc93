"""Collects a trajectory's summary span by span, in a few dozen bytes a span: many may be running."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.exact_conversations import Turn
from otel_rollout.facts.packed_spans import (
    AGENT,
    ERROR,
    EVALUATOR,
    KINDS,
    LLM,
    PACKED,
    TOOL,
    Figures,
    SpanError,
    SpanRow,
    Totals,
    figures_of,
    is_mended,
    scopes_of,
    unpack,
)
from otel_rollout.facts.prompts import UNKNOWN, Prompt, Prompts
from otel_rollout.facts.reward_parts import (
    MAX_PARTS,
    MEASURES,
    OF_TRAINING,
    REWARD,
    TEXTS,
    Dated,
    measures_of,
    reward_parts_of,
)
from otel_rollout.facts.sides import Sides, find_sides, marked_sides
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_record import MAX_KEYS, SpanRecord, call_record, generation_record, root_lines
from otel_rollout.facts.span_values import (
    count_of,
    error_type_of,
    integer_of,
    is_unknown_tool,
    scalars_of,
    short_name,
    text_of,
    times_of,
)
from otel_rollout.guard.log_once import internal_error
from otel_rollout.text.sanitize import INT64_MAX

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_rollout.facts.histories import Histories

MAX_ERRORS: Final = 8
MAX_TOOLS: Final = 64
"""Odd results of further tools are not counted."""
MAX_NAMES: Final = 1024
"""Later names of spans are an ellipsis."""

_NAMED: Final = (REWARD, *OF_TRAINING)
_MAX_FACTS: Final = MAX_PARTS + len(_NAMED) + len(MEASURES)
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_SPAN_KIND: Final = semconv.SPAN_KIND
_STEP: Final = semconv.STEP
_REWARD, _PARTS, _LATE = semconv.REWARD, semconv.REWARD_PARTS, semconv.LATE
_ASKED, _ANSWERED = semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS
_FINISH_REASONS, _PREFIX_BROKEN = semconv.FINISH_REASONS, semconv.PREFIX_BROKEN
_MIN_WEIGHTS, _MAX_WEIGHTS = semconv.MIN_WEIGHTS_VERSION, semconv.MAX_WEIGHTS_VERSION
_TOOL_NAME, _REQUESTED_TOOL = semconv.TOOL_NAME, semconv.REQUESTED_TOOL
_TOTALS: Final = (semconv.TURNS, semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)
UINT64_MAX: Final = 2**64 - 1
_UNSET, _ERROR = StatusCode.UNSET, StatusCode.ERROR
"""An enum's members take ten times as long to look up."""
_NOBODY: Final = (2, 1, 0, 0)
_NO_RECORD: Final = SpanRecord()
_BASE_BYTES: Final = 4096
_NAME_BYTES: Final = 256


class SummaryBuilder:
    """Collects the facts of the spans of one trace; texts and numbers in it are bounded.

    Args:
        trace_id: The trace.
    """

    def __init__(self, trace_id: int) -> None:
        self.trace_id: int = trace_id
        self.is_complete = True
        """False once a span could not be summarised."""
        self.spans: int = 0
        self.start_time: int = INT64_MAX
        self._last_end = self._root_end = 0
        self.main: tuple[int, int, int, int] = _NOBODY
        """The sort key of the span that has the identity; a root's begins with 0."""
        self._tagged = (INT64_MAX, 0)
        """The start and the id of the span whose tags a root without a step has."""
        self.name: str = ""
        self.status_code = 0
        """The root's: 0 unset, 1 ok, 2 error."""
        self.project_name: str | None = None
        self.run_id: str | None = None
        self.attributes: dict[str, Any] = {}
        """The root's scalar attributes without payload; without a root, the tags."""
        self.late_facts: dict[str, Dated] = {}
        """The latest reward and facts of training, and the parts of the reward, with a dot before their names."""
        self.service_name: str | None = None
        self.rows = bytearray()
        self.names: dict[str, int] = {}
        self.generations = Prompts()
        """The prompts, marks and records of its generations."""
        self.errors: list[tuple[int, int, str, str, str]] = []
        self.error_type: str | None = None
        self.root_prompt = self.root_answer = ""
        self.unread_answers: int = 0
        self.unknown_tool_calls: int = 0
        self.prefix_breaks: int = 0
        self.invalid_rewards: int = 0
        self.odd_results: dict[str, int] = {}
        """The calls by tool whose result is nothing, or reads like an error, without an exception."""
        self.result_keys: dict[str, tuple[str, ...]] = {}
        """The keys of the JSON objects that each tool returned."""
        self.min_weights_version: int | None = None
        self.max_weights_version: int | None = None

    def copy(self) -> SummaryBuilder:
        """Return a copy, to which spans can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (bytearray, dict, list, Prompts)):
                setattr(other, name, value.copy())
        return other

    @property
    def has_root(self) -> bool:
        """True if a root is among the spans."""
        return self.main[0] == 0

    @property
    def end_time(self) -> int:
        """The root's end; without a root, the last span's. Its time ends there, whatever comes later."""
        return self._root_end if self.has_root else self._last_end

    @property
    def reward(self) -> float | None:
        """The reward; a late one counts."""
        reward = self.fact(REWARD)
        return reward if isinstance(reward, float) else None

    def fact(self, name: str) -> float | str | None:
        """Return the latest `reward` or fact of training, such as `fate`."""
        found = self.late_facts.get(name)
        return None if found is None else found.value

    @property
    def reward_parts(self) -> dict[str, Any]:
        """The parts of the reward."""
        return {name[1:]: value for name, (_, value) in sorted(self.late_facts.items()) if name[0] == "."}

    @property
    def late(self) -> dict[str, int]:
        """The times of the facts that came after the root."""
        return {name: at for name, (at, _) in sorted(self.late_facts.items()) if at > 0}

    @property
    def status(self) -> str | None:
        """The root's status; `error` if it only failed."""
        status = text_of(self.attributes.get(semconv.STATUS)) if self.has_root else None
        return status or ("error" if self.status_code == ERROR else None)

    @property
    def step(self) -> int | None:
        """The training step, if it is an integer."""
        return integer_of(self.attributes.get(semconv.STEP))

    @property
    def validate(self) -> bool:
        """True if it is part of a validation pass."""
        return bool(self.attributes.get(semconv.VALIDATE))

    def set_place(self, step: int | None, *, validate: bool) -> None:
        """Give it the step of the trajectory that its spans belong to, if they have none themselves."""
        if step is not None and self.attributes.get(semconv.STEP) is None:
            self.attributes[semconv.STEP] = step
            self.attributes[semconv.VALIDATE] = validate

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Add spans; none of them may have been added before.

        If one can't be summarised, which is counted as an internal error, the trajectory keeps only its place: readers
        make its summary.
        """
        for span in spans:
            if span.context is None:
                continue
            self.spans += 1
            try:
                self._add(span, span.context.span_id)
            except Exception:
                self.give_up()
                internal_error("summarising a span")

    def give_up(self) -> None:
        """Keep only the place."""
        self.is_complete = False
        self.rows.clear()
        self.names.clear()
        self.errors.clear()
        self.generations = Prompts()

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, roughly."""
        return _BASE_BYTES + len(self.rows) + _NAME_BYTES * len(self.names) + self.generations.size

    def _add(self, span: ReadableSpan, span_id: int) -> None:
        attributes, parent = span.attributes or {}, span.parent
        get = attributes.get
        start, end = times_of(span)
        self.start_time = min(self.start_time, start)
        self._last_end = max(self._last_end, end)
        if parent is None:
            self._root_end = end
        code = span.status.status_code
        status = 0 if code is _UNSET else ERROR if code is _ERROR else 1
        main = self.main
        if parent is None or (main[0] and (main[1] or start <= main[2])):
            self._add_identity(span, attributes, start, status)
        elif main[1] and _STEP in attributes:
            self._add_tags((start, span_id), attributes)
        if parent is None or _REWARD in attributes or _PARTS in attributes or _LATE in attributes:
            self._add_facts(span, 0 if parent is None else end)
        if not self.is_complete:
            return
        given = get(_SPAN_KIND)
        kind = _KIND_NUMBERS.get(given if type(given) is str and given else kind_of(attributes) or "", 0)
        name = span.name
        record = _NO_RECORD
        asked = answered = -1
        if kind == LLM:
            record = self._add_generation(span, attributes, is_failed=status == ERROR)
            asked, answered = _tokens(get(_ASKED)), _tokens(get(_ANSWERED))
        elif kind == TOOL:
            tool = get(_TOOL_NAME)
            if type(tool) is str and tool:
                name = tool
            record = self._add_call(span, name, attributes, is_failed=status == ERROR)
        elif kind == AGENT and parent is not None:
            self.generations.add_agent(span_id, attributes)
        elif kind == EVALUATOR and get(_LATE) is True:
            # The microseconds of the call to `annotate` are no time of a reward.
            kind = 0
        if status == ERROR:
            self._add_error(span, start, short_name(name), KINDS[kind])
        position = self.names.get(name)
        self.rows += PACKED.pack(
            start // 1000,
            (end if end > start else start) // 1000,
            span_id & UINT64_MAX,
            0 if parent is None else parent.span_id & UINT64_MAX,
            record.content,
            record.call,
            asked,
            answered,
            self._position_of(name) if position is None else position,
            kind,
            status,
        )

    def _add_generation(self, span: ReadableSpan, attributes: Mapping[str, Any], *, is_failed: bool) -> SpanRecord:
        record: SpanRecord | None = getattr(span, "record", None)
        if record is None:
            record = generation_record(attributes, self.generations.open, is_failed=is_failed)
        self.generations.add(span, record)
        self.unread_answers += record.is_unread and not is_failed
        self.prefix_breaks += attributes.get(_PREFIX_BROKEN) is True
        if _MIN_WEIGHTS in attributes or _MAX_WEIGHTS in attributes:
            self._add_weights(attributes)
        return record

    def _add_call(self, span: ReadableSpan, name: Any, attributes: Mapping[str, Any], *, is_failed: bool) -> SpanRecord:
        record: SpanRecord | None = getattr(span, "record", None)
        if record is None:
            record = call_record(name, attributes, is_failed=is_failed)
        short = short_name(name)
        if record.is_odd and (short in self.odd_results or len(self.odd_results) < MAX_TOOLS):
            self.odd_results[short] = self.odd_results.get(short, 0) + 1
        if record.keys and (short in self.result_keys or len(self.result_keys) < MAX_TOOLS):
            known = self.result_keys.get(short, ())
            if new := [key for key in record.keys if key not in known]:
                self.result_keys[short] = (*known, *new)[:MAX_KEYS]
        if is_failed or _REQUESTED_TOOL in attributes:
            self.unknown_tool_calls += is_unknown_tool(span)
        return record

    def _add_identity(self, span: ReadableSpan, attributes: Mapping[str, Any], start: int, status: int) -> None:
        context, parent = span.context, span.parent
        is_root = parent is None
        has_no_step = attributes.get(semconv.STEP) is None
        main = (int(not is_root), int(has_no_step), start, context.span_id if context else 0)
        if main >= self.main:
            return
        before, self.main = self.main, main
        self.name = short_name(span.name)
        self.status_code = status if is_root else 0
        resource = span.resource.attributes
        self.project_name = text_of(resource.get(semconv.PROJECT_NAME))
        self.run_id = text_of(resource.get(semconv.RUN_ID))
        self.service_name = text_of(resource.get(semconv.SERVICE_NAME))
        if not is_root:
            self.attributes = scalars_of({key: attributes[key] for key in semconv.TAGS if key in attributes}, "")
            return
        tags = self.attributes
        self.attributes = scalars_of(attributes, f"{context.trace_id:032x}" if context else "")
        if has_no_step and before[:2] == (1, 0):
            self._add_tags(before[2:], tags)
        self.error_type = (error_type_of(span) or None) if status == ERROR else None
        self.root_prompt, self.root_answer = root_lines(attributes)
        self._add_weights(attributes)

    def _add_tags(self, at: tuple[int, int], attributes: Mapping[str, Any]) -> None:
        """Give a root without a step, of another program, the tags of its first span that has one."""
        if at < self._tagged:
            self._tagged = at
            self.attributes.update(scalars_of({key: attributes[key] for key in semconv.TAGS if key in attributes}, ""))

    def _add_facts(self, span: ReadableSpan, at: int) -> None:
        given = (span.attributes or {}).get(_REWARD)
        if type(given) is float and not isfinite(given):
            self.invalid_rewards += 1
        parts = {each.name if each.name in _NAMED else f".{each.name}": each.value for each in reward_parts_of(span)}
        for name, value in (*parts.items(), *measures_of(span).items()):
            if isinstance(value, str) is not (name in TEXTS):
                continue
            fact = Dated(at, value if isinstance(value, str) else float(value))
            if name in self.late_facts or len(self.late_facts) < _MAX_FACTS:
                self.late_facts[name] = max(self.late_facts.get(name, fact), fact)

    def _add_error(self, span: ReadableSpan, start: int, name: str, kind: str) -> None:
        span_id = span.context.span_id if span.context else 0
        self.errors.append((start // 1000, span_id, name, kind, error_type_of(span)))
        if len(self.errors) > 8 * MAX_ERRORS:
            self.errors = sorted(self.errors)[:MAX_ERRORS]

    def _add_weights(self, attributes: Mapping[str, Any]) -> None:
        oldest, newest = self.min_weights_version, self.max_weights_version
        low = integer_of(attributes.get(semconv.MIN_WEIGHTS_VERSION))
        high = integer_of(attributes.get(semconv.MAX_WEIGHTS_VERSION))
        if low is not None:
            self.min_weights_version = low if oldest is None else min(oldest, low)
        if high is not None:
            self.max_weights_version = high if newest is None else max(newest, high)

    def _position_of(self, name: Any) -> int:
        short = short_name(name)
        if short not in self.names and len(self.names) >= MAX_NAMES:
            short = "…"
        return self.names.setdefault(short, len(self.names))


def _tokens(count: Any) -> int:
    return count if type(count) is int and 0 <= count <= INT64_MAX else -1


class Collected:
    """The facts of a builder's spans, which the table's functions read.

    Args:
        trace: The builder.
        read: Returns the messages of its generations; without it, `is_exact` may be False.
    """

    __slots__ = (
        "_rows",
        "answer",
        "conversations",
        "figures",
        "finish_reason",
        "is_exact",
        "is_undecided",
        "lacks_users",
        "output_characters",
        "prompt",
        "root",
        "totals",
        "trace",
        "unparsed_tool_calls",
    )

    def __init__(self, trace: SummaryBuilder, read: Callable[[], Histories] | None = None) -> None:
        self.trace: SummaryBuilder = trace
        self.root: Mapping[str, Any] = trace.attributes if trace.has_root else {}
        """The root's scalar attributes; empty without a root."""
        self._rows = unpack(trace.rows)
        scopes = list(scopes_of(self._rows))
        turns = [Turn(row[2], row[0], row[1], row[10] == ERROR, scope, self._prompt(row)) for row, scope in scopes]
        known = find_sides(turns, trace.generations, read)
        self.is_exact: bool = known is not None
        """False if only the messages tell the conversations apart: there are no facts of these, then."""
        sides = known or marked_sides(turns, trace.generations)
        self.lacks_users: bool = sides is None
        """True if only the messages may show whose turns there are: nothing is a fact, then."""
        sides = sides or Sides([])
        self.is_undecided: bool = sides.is_undecided
        self.conversations: Counter[str] = Counter(each.kind for each in sides.found)
        """The number of conversations by kind, and of all."""
        for each in sides.found:
            self.conversations.update(each.others)
        root_id, users = trace.main[3] if trace.has_root else 0, {span_id & UINT64_MAX for span_id in sides.users}
        self.figures: Figures = figures_of(self._rows, list(trace.names), root_id, users)
        totals = Totals(*[count_of(self.root.get(key)) for key in _TOTALS])
        # The caller's side counts every turn that isn't marked.
        self.totals: Totals = self.figures.totals if sides.is_guessed or totals == (None, None, None) else totals
        own = [(len(scope), self._prompt(row)) for row, scope in scopes if row[2] not in users]
        self.output_characters: int = sum(prompt.record.characters for _, prompt in own)
        self.unparsed_tool_calls: int = sum(prompt.record.unparsed_calls for _, prompt in own)
        # The first and the last inside the least agents; of two with one start, the lesser text.
        asked = [(depth, it.start, it.record.prompt_line) for depth, it in own if it.record.prompt_line]
        answered = [(depth, -it.start, it.record.answer_line) for depth, it in own if it.record.answer_line]
        stopped = [(-it.start, it.finish_reason) for _, it in own if it.finish_reason]
        said = (min(asked)[-1] if asked else "", min(answered)[-1] if answered else "")
        # Unless the policy is marked, a root has the prompt and the answer of the first side.
        first = (trace.root_prompt, trace.root_answer)
        texts = zip(said, first, strict=True) if sides.is_guessed else zip(first, said, strict=True)
        self.prompt: str
        self.answer: str
        self.prompt, self.answer = (one or other for one, other in texts)
        last = min(stopped)[-1] if stopped else None
        self.finish_reason: str | None = text_of(self.root.get(semconv.FINISH_REASON)) or last

    def _prompt(self, row: SpanRow) -> Prompt:
        return self.trace.generations.of_span.get(row[2], UNKNOWN)

    @property
    def errors(self) -> tuple[SpanError, ...]:
        """The first spans that failed."""
        if not self.trace.errors:
            return ()
        rows = {row[2]: row for row in self._rows}
        first = next((row[0] for row in self._rows if row[9] == LLM), UINT64_MAX)
        return tuple(
            SpanError(
                name,
                kind,
                type_,
                is_mended(rows[span_id & UINT64_MAX], self._rows),
                rows[span_id & UINT64_MAX][1] <= first,
            )
            for _, span_id, name, kind, type_ in sorted(self.trace.errors)[:MAX_ERRORS]
        )
