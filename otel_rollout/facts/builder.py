"""Collects a trajectory's facts span by span, with bounded texts and numbers: many may be running."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.compact_spans import (
    AGENT,
    ERROR,
    EVALUATOR,
    KINDS,
    LLM,
    NO_MARK,
    TOOL,
    Around,
    Mark,
    Prompt,
    SpanRow,
    turns_of,
)
from otel_rollout.facts.figures import errors_of, figures_of, results_of
from otel_rollout.facts.prompt_texts import OpenPrompts, text_of_prompt
from otel_rollout.facts.reward_parts import LATEST, MAX_PARTS, REWARD, TEXTS, Dated, measures_of, reward_parts_of
from otel_rollout.facts.sides import Sides, find_sides, marked_sides
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_record import SpanRecord, call_record, generation_record, root_lines
from otel_rollout.facts.span_values import (
    count_of,
    engine_of,
    error_type_of,
    integer_of,
    is_unknown_tool,
    last_text,
    scalars_of,
    short_name,
    tag_of,
    text_of,
    times_of,
)
from otel_rollout.guard.log_once import internal_error
from otel_rollout.text.sanitize import INT64_MAX

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_rollout.facts.histories import Histories

_KIND_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_SPAN_KIND: Final = semconv.SPAN_KIND
_STEP: Final = semconv.STEP
_REWARD, _PARTS, _LATE = semconv.REWARD, semconv.REWARD_PARTS, semconv.LATE
_TOOL_NAME, _REQUESTED_TOOL = semconv.TOOL_NAME, semconv.REQUESTED_TOOL
_TOTALS: Final = {
    "turns": semconv.TURNS,
    "input_tokens": semconv.INPUT_TOKENS,
    "output_tokens": semconv.OUTPUT_TOKENS,
}
_FIELDS: Final = r'(?:"(?:[^"\\]|\\.)*"|[^{}"])*'
_COMPACTION: Final = re.compile(rf'\{{{_FIELDS}?"type":\s?"compaction"{_FIELDS}\}}')
"""Matches the JSON of a message's part of that type, with any text in it."""
_IDS: Final = '_ids":'
_TOKEN_IDS: Final = tuple(f'"{name}_ids":' for name in ("token", "response", "output", "prompt", "input", "completion"))
_UNSET, _ERROR = StatusCode.UNSET, StatusCode.ERROR
"""An enum's members take ten times as long to look up."""
_NOBODY: Final = (2, 1, 0, 0)
_NO_RECORD: Final = SpanRecord()
_MAX_ID: Final = 256
_BASE_BYTES: Final = 4096
_ROW_BYTES: Final = 350
_RECORD_BYTES: Final = 900
"""The memory of a row with a record, roughly."""


class SummaryBuilder:
    """Collects the facts of the spans of one trace.

    Args:
        trace_id: The trace.
        takes_records: False leaves out what payloads show: conversations need none of it.
    """

    def __init__(self, trace_id: int, *, takes_records: bool = True) -> None:
        self.trace_id = trace_id
        self._takes_records = takes_records
        self.is_complete = True
        """False once a span could not be summarised."""
        self.size = _BASE_BYTES
        """The bytes that it takes in memory, roughly."""
        self.spans = 0
        self.start_time = INT64_MAX
        self._last_end = self._root_end = 0
        self.main: tuple[int, int, int, int] = _NOBODY
        """The sort key of the span that has the identity; a root's begins with 0."""
        self._tagged = (INT64_MAX, 0)
        """The start and the id of the span whose tags a root without a step has."""
        self.name = ""
        self.status_code = 0
        """The root's: 0 unset, 1 ok, 2 error."""
        self.project_name: str | None = None
        self.run_id: str | None = None
        self.attributes: dict[str, Any] = {}
        """The root's scalar attributes without payload; without a root, the tags."""
        self.late_facts: dict[str, Dated] = {}
        """The latest reward and facts of training, and the parts of the reward, with a dot before their names."""
        self.service_name: str | None = None
        self.host: str | None = None
        self.engines: dict[str, None] = {}
        """The first two engines of its generations."""
        self.rows: list[SpanRow] = []
        self._prompts = OpenPrompts()
        self._compactions: dict[int, None] = {}
        """The hashes of parts of type `compaction` in prompts."""
        self.error_type: str | None = None
        self.root_prompt = self.root_answer = ""
        self.unknown_tool_calls = self.prefix_breaks = self.invalid_rewards = 0
        self.min_weights_version: int | None = None
        self.max_weights_version: int | None = None

    def copy(self) -> SummaryBuilder:
        """Return a copy, to which spans can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list, OpenPrompts)):
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
        name, record, prompt, mark = span.name, _NO_RECORD, None, NO_MARK
        if kind == LLM:
            record, prompt = self._generation(span, attributes, is_failed=status == ERROR)
            mark = _mark_of(attributes)
        elif kind == TOOL:
            tool = get(_TOOL_NAME)
            name = tool if type(tool) is str and tool else name
            record = self._call(span, name, attributes, is_failed=status == ERROR)
        elif kind == AGENT:
            mark = _mark_of(attributes)
        elif kind == EVALUATOR and get(_LATE) is True:
            # The microseconds of the call to `annotate` are no time of a reward.
            kind = 0
        self.size += _ROW_BYTES if record is _NO_RECORD else _RECORD_BYTES
        self.rows.append(
            SpanRow(
                start,
                max(start, end),
                span_id,
                0 if parent is None else parent.span_id,
                short_name(name),
                kind,
                status,
                error_type_of(span) if status == ERROR else "",
                None if prompt is None else count_of(get(semconv.USAGE_INPUT_TOKENS)),
                None if prompt is None else count_of(get(semconv.USAGE_OUTPUT_TOKENS)),
                "" if prompt is None else last_text(get(semconv.FINISH_REASONS)) or "",
                record,
                mark,
                prompt,
            )
        )

    def _generation(
        self, span: ReadableSpan, attributes: Mapping[str, Any], *, is_failed: bool
    ) -> tuple[SpanRecord, Prompt]:
        record: SpanRecord | None = getattr(span, "record", None)
        if record is None and self._takes_records:
            record = generation_record(attributes, self._prompts, is_failed=is_failed)
        text = None if record is None else record.prompt
        if text is None:
            text = self._prompts.add(*text_of_prompt(attributes))
        self.prefix_breaks += attributes.get(semconv.PREFIX_BROKEN) is True
        self._add_weights(attributes)
        if len(self.engines) < 2 and (engine := engine_of(attributes)) is not None:
            self.engines[engine] = None
        conversation, request = attributes.get(semconv.CONVERSATION_ID), attributes.get(semconv.REQUEST_ID)
        return record or _NO_RECORD, Prompt(
            text,
            attributes.get(semconv.COMPACTED) is True or self._has_new_compaction(attributes),
            conversation[:_MAX_ID] if type(conversation) is str else "",
            request[:_MAX_ID] if type(request) is str else "",
        )

    def _has_new_compaction(self, attributes: Mapping[str, Any]) -> bool:
        for given in (attributes.get(semconv.INPUT_MESSAGES), attributes.get(semconv.INPUT_VALUE)):
            if type(given) is str and "compaction" in given:
                known = len(self._compactions)
                self._compactions.update(dict.fromkeys(map(hash, _COMPACTION.findall(given))))
                return len(self._compactions) > known
        return False

    def _call(self, span: ReadableSpan, name: Any, attributes: Mapping[str, Any], *, is_failed: bool) -> SpanRecord:
        if is_failed or _REQUESTED_TOOL in attributes:
            self.unknown_tool_calls += is_unknown_tool(span)
        record: SpanRecord | None = getattr(span, "record", None)
        if record is None and self._takes_records:
            record = call_record(name, attributes, is_failed=is_failed)
        return record or _NO_RECORD

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
        self.host = text_of(resource.get(semconv.HOST_NAME))
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
        parts = {each.name if each.name in LATEST else f".{each.name}": each.value for each in reward_parts_of(span)}
        for name, value in (*parts.items(), *measures_of(span).items()):
            if isinstance(value, str) is not (name in TEXTS):
                continue
            fact = Dated(at, value if isinstance(value, str) else float(value))
            if name in self.late_facts or len(self.late_facts) < MAX_PARTS + len(LATEST):
                self.late_facts[name] = max(self.late_facts.get(name, fact), fact)

    def sorted_rows(self) -> list[SpanRow]:
        """Return the rows, by start."""
        return sorted(self.rows, key=itemgetter(0, 1, 2))

    def _add_weights(self, attributes: Mapping[str, Any]) -> None:
        oldest, newest = self.min_weights_version, self.max_weights_version
        low = integer_of(attributes.get(semconv.MIN_WEIGHTS_VERSION))
        high = integer_of(attributes.get(semconv.MAX_WEIGHTS_VERSION))
        if low is not None:
            self.min_weights_version = low if oldest is None else min(oldest, low)
        if high is not None:
            self.max_weights_version = high if newest is None else max(newest, high)


def _mark_of(attributes: Mapping[str, Any]) -> Mark:
    role = attributes.get(semconv.ROLE)
    is_trained = attributes.get(semconv.TRAINED) is True or semconv.MAX_WEIGHTS_VERSION in attributes
    for key in () if is_trained else (semconv.OUTPUT_VALUE, semconv.INPUT_VALUE):
        value = attributes.get(key)
        if type(value) is str and _IDS in value and any(name in value for name in _TOKEN_IDS):
            is_trained = True
    return Mark(role, is_trained) if role in semconv.ROLES else Mark("", True) if is_trained else NO_MARK


class Collected:
    """The facts of a builder's spans.

    Args:
        trace: The builder.
        read: Returns the messages of its generations; without it, `is_exact` may be False.
    """

    def __init__(self, trace: SummaryBuilder, read: Callable[[], Histories] | None = None) -> None:
        rows = trace.sorted_rows()
        around = Around(rows)
        self._trace, self._turns = trace, turns_of(rows, around)
        known = find_sides(self._turns, read)
        self.is_exact = known is not None
        """False if only the messages tell the conversations apart: there are no facts of these, then."""
        sides = known or marked_sides(self._turns)
        self.lacks_users = sides is None
        """True if only the messages may show whose turns there are: nothing is a fact, then."""
        sides = sides or Sides([])
        self.conversations = Counter(each.kind for each in sides.found)
        """The number of conversations by kind, and of all."""
        for each in sides.found:
            self.conversations.update(each.others)
        odd_results, result_keys = results_of(rows)
        self.facts: dict[str, Any] = {
            **self._identity(),
            **figures_of(rows, around, trace.main[3] if trace.has_root else 0, sides.users),
            **self._of_turns(sides),
            **self._of_root(sides),
            "two_sides": sides.is_undecided,
            "conversations": self.conversations.total(),
            "subagents": self.conversations["subagent"],
            "forks": self.conversations["fork"],
            "compactions": self.conversations["compacted"],
            "unknown_tool_calls": trace.unknown_tool_calls,
            "odd_results": odd_results,
            "result_keys": result_keys,
            "unread_answers": sum(row.record.is_unread and row.status != ERROR for row in rows),
            "errors": errors_of(rows, around),
            "prefix_breaks": trace.prefix_breaks,
            "min_weights_version": trace.min_weights_version,
            "max_weights_version": trace.max_weights_version,
        }
        """The facts by name, but those that only the reader of a folder has."""

    def _identity(self) -> dict[str, Any]:
        trace, given = self._trace, self._trace.attributes.get
        staleness = trace.fact("staleness")
        return {
            "trace_id": f"{trace.trace_id:032x}",
            "step": trace.step,
            "sample_index": tag_of(given(semconv.SAMPLE_INDEX)),
            "rollout_n": tag_of(given(semconv.ROLLOUT_N)),
            "validate": trace.validate,
            "experiment_name": text_of(given(semconv.EXPERIMENT_NAME)),
            "project_name": trace.project_name,
            "run_id": trace.run_id,
            "name": trace.name,
            "start_time": trace.start_time,
            "end_time": trace.end_time,
            "has_root": trace.has_root,
            "status": trace.status,
            "spans": trace.spans,
            "service_name": trace.service_name,
            "host": trace.host,
            "engine": next(iter(trace.engines)) if len(trace.engines) == 1 else None,
            **{name: trace.fact(name) for name in LATEST},
            "staleness": None if staleness is None else integer_of(int(staleness)),
            "reward_parts": trace.reward_parts,
            "late": trace.late,
            "invalid_rewards": trace.invalid_rewards,
        }

    def _of_root(self, sides: Sides) -> dict[str, Any]:
        """Return the facts that the root's attributes have."""
        root = self._trace.attributes if self._trace.has_root else {}
        totals = {name: count_of(root.get(key)) for name, key in _TOTALS.items()}
        # The caller's side counts every turn that isn't marked.
        is_counted = not sides.is_guessed and any(total is not None for total in totals.values())
        reason = text_of(root.get(semconv.FINISH_REASON))
        return {
            **(totals if is_counted else {}),
            **({} if reason is None else {"finish_reason": reason}),
            "error_type": self._trace.error_type if root else None,
            "dropped_spans": count_of(root.get(semconv.DROPPED_SPANS)) or 0,
            "truncated_bytes": count_of(root.get(semconv.TRUNCATED_BYTES)) or 0,
            "redacted": count_of(root.get(semconv.REDACTED)) or 0,
        }

    def _of_turns(self, sides: Sides) -> dict[str, Any]:
        """Return the facts of the policy's turns: its first prompt, its last answer, and what is between them."""
        own = [turn for turn in self._turns if turn.row.span_id not in sides.users]
        # The first and the last inside the least agents; of two with one start, the lesser text.
        asked = [(len(each.scope), each.row.start, each.row.record.prompt_line) for each in own]
        answered = [(len(each.scope), -each.row.start, each.row.record.answer_line) for each in own]
        stopped = [(-each.row.start, each.row.finish_reason) for each in own if each.row.finish_reason]
        said = [min(filter(itemgetter(-1), lines), default=("",))[-1] for lines in (asked, answered)]
        # Unless the policy is marked, a root has the prompt and the answer of the first side.
        first = [self._trace.root_prompt, self._trace.root_answer]
        prompt, answer = map(_either, *((said, first) if sides.is_guessed else (first, said)))
        return {
            "prompt": prompt,
            "answer": answer,
            "finish_reason": min(stopped)[-1] if stopped else None,
            "output_characters": sum(turn.row.record.characters for turn in own),
            "unparsed_tool_calls": sum(turn.row.record.unparsed_calls for turn in own),
        }


def _either(one: str, other: str) -> str:
    return one or other
