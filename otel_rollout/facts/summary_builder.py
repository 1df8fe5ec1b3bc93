"""Collects a trajectory's summary span by span, in a few dozen bytes a span: many may be running."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.content_hash import call_hash, output_hash, result_hash
from otel_rollout.facts.first_lines import find_answer, find_prompt, line_of
from otel_rollout.facts.reward_parts import MAX_PARTS, OF_TRAINING, REWARD, reward_parts
from otel_rollout.facts.span_figures import (
    count_of,
    error_type_of,
    is_unknown_tool,
    kind_of,
    short_name,
    text_of,
    unparsed_calls_of,
)
from otel_rollout.facts.span_rows import ERROR, KINDS, LLM, PACKED, TOOL, figures_of, unpack
from otel_rollout.facts.span_shapes import shape_columns
from otel_rollout.facts.summary_values import integer_of, last_text, scalars_of, times_of
from otel_rollout.guard.log_once import internal_error
from otel_rollout.text.sanitize import INT64_MAX

__all__ = ["MAX_ERRORS", "SummaryBuilder"]

MAX_ERRORS: Final = 8
MAX_NAMES: Final = 1024
"""Later names of spans are an ellipsis."""

_NAMED: Final = (REWARD, *OF_TRAINING)
_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_SPAN_KIND: Final = semconv.SPAN_KIND
_REWARD, _REWARD_PARTS, _FATE, _ADVANTAGE = semconv.REWARD, semconv.REWARD_PARTS, semconv.FATE, semconv.ADVANTAGE
_OUTPUT_MESSAGES, _OUTPUT_VALUE, _INPUT_VALUE = semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE, semconv.INPUT_VALUE
_ASKED, _ANSWERED = semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS
_FINISH_REASONS, _PREFIX_BROKEN = semconv.FINISH_REASONS, semconv.PREFIX_BROKEN
_MIN_WEIGHTS, _MAX_WEIGHTS = semconv.MIN_WEIGHTS_VERSION, semconv.MAX_WEIGHTS_VERSION
_TOOL_NAME, _REQUESTED_TOOL = semconv.TOOL_NAME, semconv.REQUESTED_TOOL
_TOTALS: Final = (
    ("turns", semconv.TURNS),
    ("input_tokens", semconv.INPUT_TOKENS),
    ("output_tokens", semconv.OUTPUT_TOKENS),
)
UINT64_MAX: Final = 2**64 - 1
_UNSET, _ERROR = StatusCode.UNSET, StatusCode.ERROR
"""An enum's members take ten times as long to look up."""
_NOBODY: Final = (2, 1, 0, 0)
_BASE_BYTES: Final = 4096
_NAME_BYTES: Final = 256


class SummaryBuilder:
    """Collects what is said of the spans of one trace; texts and numbers in it are bounded.

    Args:
        trace_id: The trace.
    """

    def __init__(self, trace_id: int) -> None:
        self.trace_id = trace_id
        self.is_complete = True
        """False once a span could not be summarised."""
        self.spans = 0
        self.start_time = INT64_MAX
        self._last_end = self._root_end = 0
        self.main: tuple[int, int, int, int] = _NOBODY
        """The sort key of the span that has the identity; that of a root begins with 0."""
        self.name = ""
        self.status_code = 0
        """The root's: 0 unset, 1 ok, 2 error."""
        self.project_name: str | None = None
        self.run_id: str | None = None
        self.attributes: dict[str, Any] = {}
        """The root's scalar attributes without payload; without a root, the tags."""
        self._facts: dict[str, tuple[tuple[int, int], float | str]] = {}
        """The latest reward, advantage and fate, and the parts of the reward, with a dot before their names."""
        self._service_name: str | None = None
        self._rows = bytearray()
        self._names: dict[str, int] = {}
        self._errors: list[tuple[int, int, str, str, str]] = []
        self._error_type: str | None = None
        self._root_prompt = self._root_answer = ""
        self._prompt, self._prompt_at = "", INT64_MAX
        self._answer, self._answer_at = "", -1
        self._finish_reason: str | None = None
        self._finish_at = -1
        self._unknown_tool_calls = self._unparsed_tool_calls = self._prefix_breaks = 0
        self._weights: tuple[int | None, int | None] = (None, None)

    def copy(self) -> SummaryBuilder:
        """Return a copy, to which spans can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (bytearray, dict, list)):
                setattr(other, name, value.copy())
        return other

    @property
    def has_root(self) -> bool:
        """True if a root is among the spans."""
        return self.main[0] == 0

    @property
    def end_time(self) -> int:
        """The root's end; without a root, that of the last span. What comes after the root is not its time."""
        return self._root_end if self.has_root else self._last_end

    @property
    def reward(self) -> float | None:
        """The reward; a late one counts."""
        reward = self._fact(REWARD)
        return reward if isinstance(reward, float) else None

    def _fact(self, name: str) -> float | str | None:
        found = self._facts.get(name)
        return None if found is None else found[1]

    @property
    def step(self) -> int | None:
        """The training step, if it is an integer."""
        return integer_of(self.attributes.get(semconv.STEP))

    @property
    def validate(self) -> bool:
        """True if it is part of a validation pass."""
        return bool(self.attributes.get(semconv.VALIDATE))

    def set_place(self, step: int | None, *, validate: bool) -> None:
        """Give it the step of the trajectory that its spans belong to, if they have none themselves.

        Args:
            step: The training step.
            validate: Whether it is a validation pass.
        """
        if step is not None and self.attributes.get(semconv.STEP) is None:
            self.attributes[semconv.STEP] = step
            self.attributes[semconv.VALIDATE] = validate

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Add spans; none of them may have been added before.

        If one can't be summarised, which is counted as an internal error, the trajectory has a place alone: readers
        make its summary.
        """
        waiting = iter(spans)
        while True:
            try:
                if self.is_complete:
                    self._add(waiting)
                else:
                    self._add_places(waiting)
                return
            except Exception:  # noqa: PERF203 - at most once a span
                self.give_up()
                internal_error("summarising a span")

    def give_up(self) -> None:
        """Keep the place alone."""
        self.is_complete = False
        self._rows.clear()
        self._names.clear()
        self._errors.clear()

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, roughly."""
        return _BASE_BYTES + len(self._rows) + _NAME_BYTES * len(self._names)

    def _add_places(self, spans: Iterator[ReadableSpan]) -> None:
        for span in spans:
            self.spans += 1
            attributes: Mapping[str, Any] = span.attributes or {}
            start, end = times_of(span)
            self.start_time = min(self.start_time, start)
            self._last_end = max(self._last_end, end)
            if span.parent is None:
                self._root_end = end
            self._add_identity(span, attributes, start, 0)
            if _REWARD in attributes and span.context is not None:
                self._add_facts(span, (0 if span.parent is None else end, span.context.span_id))

    def _add(self, spans: Iterator[ReadableSpan]) -> None:  # noqa: PLR0915 - a call for each part would cost as much
        rows, names, pack = self._rows, self._names, PACKED.pack
        last: list[tuple[int, Mapping[str, Any]]] = []
        for span in spans:
            self.spans += 1
            attributes = span.attributes or {}
            context, parent = span.context, span.parent
            if context is None:
                self.spans -= 1
                continue
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
            get = attributes.get
            given = get(_SPAN_KIND)
            kind = _KIND_NUMBERS.get(given, 0) if type(given) is str and given else _KIND_NUMBERS[kind_of(attributes)]
            name = span.name
            content = call = 0
            asked = answered = -1
            if kind == LLM:
                messages, value = get(_OUTPUT_MESSAGES), get(_OUTPUT_VALUE)
                content = output_hash(messages, value)
                tokens = get(_ASKED)
                if type(tokens) is int and 0 <= tokens <= INT64_MAX:
                    asked = tokens
                tokens = get(_ANSWERED)
                if type(tokens) is int and 0 <= tokens <= INT64_MAX:
                    answered = tokens
                if start <= self._prompt_at:
                    prompt = find_prompt(attributes, is_root=False)
                    if prompt and (start < self._prompt_at or line_of(prompt) < line_of(self._prompt)):
                        self._prompt, self._prompt_at = prompt, start
                last.append((start, attributes))
                reasons = get(_FINISH_REASONS)
                if reasons and start >= self._finish_at:
                    reason = last_text(reasons)
                    if start > self._finish_at or (reason or "") < (self._finish_reason or ""):
                        self._finish_reason, self._finish_at = reason, start
                payload = messages or value
                if payload and type(payload) is str and "<" in payload:
                    self._unparsed_tool_calls += unparsed_calls_of(attributes)
                if get(_PREFIX_BROKEN) is True:
                    self._prefix_breaks += 1
                if _MIN_WEIGHTS in attributes or _MAX_WEIGHTS in attributes:
                    self._add_weights(attributes)
            elif kind == TOOL:
                tool = get(_TOOL_NAME)
                if type(tool) is str and tool:
                    name = tool
                content = result_hash(get(_OUTPUT_VALUE))
                call = call_hash(name, get(_INPUT_VALUE))
                if status == ERROR or _REQUESTED_TOOL in attributes:
                    self._unknown_tool_calls += is_unknown_tool(span)
            if status == ERROR:
                self._add_error(span, start, short_name(name), KINDS[kind])
            if _REWARD in attributes or _REWARD_PARTS in attributes or _FATE in attributes or _ADVANTAGE in attributes:
                self._add_facts(span, (0 if parent is None else end, context.span_id))
            position = names.get(name)
            rows += pack(
                start // 1000,
                (end if end > start else start) // 1000,
                context.span_id & UINT64_MAX,
                0 if parent is None else parent.span_id & UINT64_MAX,
                content,
                call,
                asked,
                answered,
                self._position_of(name) if position is None else position,
                kind,
                status,
            )
        if last and not self._root_answer:
            self._add_answer(last)

    def _add_answer(self, generations: list[tuple[int, Mapping[str, Any]]]) -> None:
        """Find the answer in the last of some generations that has one; of two that started at once, the lesser text.

        The lines of a trajectory may be joined in any order.
        """
        generations.sort(key=itemgetter(0), reverse=True)
        for start, attributes in generations:
            if start < self._answer_at:
                return
            answer = find_answer(attributes, is_root=False)
            if answer and (start > self._answer_at or line_of(answer) < line_of(self._answer)):
                self._answer, self._answer_at = answer, start

    def columns(self) -> dict[str, Any]:
        """Return the summary as the index has it, without what `IndexEntry` has; the numbers are those of JSON."""
        rows, names = unpack(self._rows), list(self._names)
        root_id = self.main[3] if self.has_root else 0
        figures = figures_of(rows, names, root_id)
        attributes = self.attributes if self.has_root else {}
        totals = [count_of(attributes.get(key)) for _, key in _TOTALS]
        has_totals = totals != [None, None, None]
        llm, tool, reward, waiting = figures.seconds
        prompt, prompt_at = (self._root_prompt, 0) if self._root_prompt else (self._prompt, self._prompt_at)
        answer, answer_at = (self._root_answer, 0) if self._root_answer else (self._answer, self._answer_at)
        finish_reason, finish_at = text_of(attributes.get(semconv.FINISH_REASON)), 0
        if finish_reason is None:
            finish_reason, finish_at = self._finish_reason, self._finish_at
        shape = shape_columns(rows, names, self.start_time // 1000)
        return {
            "service_name": self._service_name,
            "finish_reason": finish_reason,
            "reward_parts": {name[1:]: value for name, (_, value) in sorted(self._facts.items()) if name[0] == "."},
            "advantage": self._fact("advantage"),
            "fate": self._fact("fate"),
            "late": {name: at for name, ((at, _), _) in sorted(self._facts.items()) if at > 0},
            **dict(
                zip(("turns", "input_tokens", "output_tokens"), totals if has_totals else figures.totals, strict=True)
            ),
            "llm_seconds": llm,
            "tool_seconds": tool,
            "reward_seconds": reward,
            "waiting_seconds": waiting,
            "tools": {tool: tuple(counts) for tool, counts in figures.tools.items()},
            "repeated_calls": figures.repeated_calls,
            "unknown_tool_calls": self._unknown_tool_calls,
            "unparsed_tool_calls": self._unparsed_tool_calls,
            "errors": self._listed_errors(shape["ids"]) if self._errors else [],
            "error_type": self._error_type if self.has_root else None,
            "prefix_breaks": self._prefix_breaks,
            "min_weights_version": self._weights[0],
            "max_weights_version": self._weights[1],
            "staleness": integer_of(attributes.get(semconv.STALENESS)),
            "dropped_spans": count_of(attributes.get(semconv.DROPPED_SPANS)) or 0,
            "truncated_bytes": count_of(attributes.get(semconv.TRUNCATED_BYTES)) or 0,
            "redacted": count_of(attributes.get(semconv.REDACTED)) or 0,
            "prompt": line_of(prompt),
            "answer": line_of(answer),
            "turn_hashes": figures.turn_hashes,
            "shape": shape,
            "provenance": [
                *self.main,
                prompt_at if prompt else 0,
                answer_at if answer else 0,
                finish_at if finish_reason else 0,
                int(has_totals),
            ],
        }

    def _add_identity(self, span: ReadableSpan, attributes: Mapping[str, Any], start: int, status: int) -> None:
        context, parent = span.context, span.parent
        is_root = parent is None
        has_no_step = attributes.get(semconv.STEP) is None
        main = (int(not is_root), int(has_no_step), start, context.span_id if context else 0)
        if main >= self.main:
            return
        self.main = main
        self.name = short_name(span.name)
        self.status_code = status if is_root else 0
        resource = span.resource.attributes
        self.project_name = text_of(resource.get(semconv.PROJECT_NAME))
        self.run_id = text_of(resource.get(semconv.RUN_ID))
        self._service_name = text_of(resource.get(semconv.SERVICE_NAME))
        if not is_root:
            self.attributes = scalars_of({key: attributes[key] for key in semconv.TAGS if key in attributes}, "")
            return
        self.attributes = scalars_of(attributes, f"{context.trace_id:032x}" if context else "")
        self._error_type = (error_type_of(span) or None) if status == ERROR else None
        self._root_prompt = find_prompt(attributes, is_root=True)
        self._root_answer = find_answer(attributes, is_root=True)
        self._add_weights(attributes)

    def _add_facts(self, span: ReadableSpan, at: tuple[int, int]) -> None:
        for part in reward_parts(span):
            name = part.name if part.name in _NAMED else f".{part.name}"
            if isinstance(part.value, str) is not (name == "fate"):
                continue
            known = self._facts.get(name)
            if (known is None and len(self._facts) < MAX_PARTS + len(_NAMED)) or (known is not None and at > known[0]):
                self._facts[name] = (at, part.value if isinstance(part.value, str) else float(part.value))

    def _add_error(self, span: ReadableSpan, start: int, name: str, kind: str) -> None:
        span_id = span.context.span_id if span.context else 0
        self._errors.append((start // 1000, span_id, name, kind, error_type_of(span)))
        if len(self._errors) > 8 * MAX_ERRORS:
            self._errors = sorted(self._errors)[:MAX_ERRORS]

    def _listed_errors(self, ids: str) -> list[tuple[str, str, str, int]]:
        positions = {ids[at : at + 16]: at // 16 for at in range(0, len(ids), 16)}
        first = sorted(self._errors)[:MAX_ERRORS]
        return [(name, kind, type_, positions.get(f"{span_id:016x}", -1)) for _, span_id, name, kind, type_ in first]

    def _add_weights(self, attributes: Mapping[str, Any]) -> None:
        oldest, newest = self._weights
        low = integer_of(attributes.get(semconv.MIN_WEIGHTS_VERSION))
        high = integer_of(attributes.get(semconv.MAX_WEIGHTS_VERSION))
        if low is not None:
            oldest = low if oldest is None else min(oldest, low)
        if high is not None:
            newest = high if newest is None else max(newest, high)
        self._weights = (oldest, newest)

    def _position_of(self, name: Any) -> int:
        short = short_name(name)
        if short not in self._names and len(self._names) >= MAX_NAMES:
            short = "…"
        return self._names.setdefault(short, len(self._names))
