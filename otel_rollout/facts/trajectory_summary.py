"""The summary of a trajectory: lists, groups, steps, findings and timelines read it instead of the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Provenance", "SpanError", "SpanShape", "ToolCounts", "TrajectorySummary"]


class SpanShape(NamedTuple):
    """A span's place on a timeline.

    Args:
        name: Its name; of a tool call, the tool's.
        kind: Its OpenInference kind: AGENT, CHAIN, EVALUATOR, LLM or TOOL; empty if it has none.
        offset: Microseconds from the trajectory's start to its own.
        duration: Its microseconds.
        status: 0 unset, 1 ok, 2 error.
        parent: The position of its parent among the trajectory's shapes; -1 if it has none there.
        span_id: Its id, 16 hexadecimal digits.
        parent_id: Its parent's id; empty if it is a root.
        content: A hash of what a generation said or a tool returned; empty if that is not recorded.
        call: A hash of a tool's name and arguments; empty if it is no tool call or they are not recorded.
        input_tokens: A generation's input tokens; None if they are unknown.
        output_tokens: Its output tokens.
    """

    name: str
    kind: str
    offset: int
    duration: int
    status: int
    parent: int
    span_id: str = ""
    parent_id: str = ""
    content: str = ""
    call: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


class Provenance(NamedTuple):
    """The spans that a summary's values came from; merging the summaries of a trajectory's lines needs them.

    Times are in nanoseconds since 1970, or 0.

    Args:
        main: The sort key of the span that has the identity, which the lowest one has: 0 if it is a root, 0 if it has
            a step, its start, its id.
        start_of_prompt: The start of the generation that the prompt came from; 0 if that is the root.
        start_of_answer: The start of the generation that the answer came from; 0 if that is the root.
        start_of_finish: The start of the generation that the finish reason came from; 0 if that is the root.
        has_totals: True if the turns and tokens are those that the root has, not sums over spans.
    """

    main: tuple[int, int, int, int] = (2, 1, 0, 0)
    start_of_prompt: int = 0
    start_of_answer: int = 0
    start_of_finish: int = 0
    has_totals: bool = False


class ToolCounts(NamedTuple):
    """The calls of one tool.

    Args:
        calls: Their number.
        errors: The number of those that failed.
    """

    calls: int
    errors: int


class SpanError(NamedTuple):
    """A span that failed.

    Args:
        name: Its name; of a tool call, the tool's.
        kind: Its OpenInference kind; empty if it has none.
        type: The exception's class or `error.type`; empty if it is unknown.
        shape: Its position among the trajectory's shapes; -1 beyond the bound on them.
    """

    name: str
    kind: str
    type: str
    shape: int


# Not frozen, which would triple the time of making one: there are thousands in a step.
@dataclass(slots=True)
class TrajectorySummary:
    """A trajectory's identity, outcome, amounts and shape; None is unknown.

    Args:
        trace_id: 32 hexadecimal digits.
        step: The training step, if it is an integer.
        sample_index: The prompt in the dataset.
        rollout_n: The number of the rollout of the prompt.
        validate: True if it is part of a validation pass.
        experiment_name: The experiment given to `init`.
        project_name: The project given to `init`.
        run_id: The run of its process.
        worker: The process that wrote it: `<host>-<pid>-<4 hexadecimal digits>`; empty if it is unknown.
        service_name: The `service.name` of its resource; what spans of other programs are known by.
        name: The root's name; without a root, that of one of its spans.
        start_time: The start of its first span, in nanoseconds since 1970.
        end_time: The end of its root, in nanoseconds since 1970; without a root, that of its last span.
        has_root: False while it is running, and if its process ended before it did.
        status: `completed`, `error`, `cancelled` or `truncated`; None without a root.
        finish_reason: `rollout.finish_reason`, else that of its last generation.
        reward: The reward; a late one counts.
        reward_parts: The named parts of the reward that are numbers or booleans (as 0 and 1).
        advantage: The advantage in training.
        fate: What training did with it.
        late: When a reward, an advantage, a fate and parts of the reward (with a dot before the name) were known that
            came after the root; nanoseconds since 1970.
        turns: The number of generations, except nested ones.
        input_tokens: The sum of the generations' input tokens.
        output_tokens: The sum of the generations' output tokens.
        llm_seconds: The time in generations; overlapping spans count once.
        tool_seconds: The time in tools.
        reward_seconds: The time in evaluators.
        waiting_seconds: The time of the root in none of them.
        tools: The calls by tool name.
        repeated_calls: The most calls of one tool with the same arguments.
        unknown_tool_calls: The calls of tools that there are not.
        unparsed_tool_calls: The tool calls of the model that could not be parsed.
        errors: The spans that failed, the first ones by time.
        error_type: The exception's class that the root ended with.
        prefix_breaks: The number of turns whose prompt doesn't extend the turn before.
        min_weights_version: The oldest weights that generated it.
        max_weights_version: The newest weights that generated it.
        staleness: Steps between the newest weights and the trainer's.
        dropped_spans: The spans that tracing dropped.
        truncated_bytes: The payload bytes that tracing cut.
        redacted: The secrets that redaction replaced.
        prompt: The first line of what the user asked, shortened.
        answer: The first line of the last answer, shortened.
        turn_hashes: A short hash of each turn's output and of the results of its tools; equal for equal content,
            whatever ids and times it has. Empty if the turn's output is not recorded.
        shape: The spans by start, the first ones up to a bound.
        spans: The number of its spans.
        bytes: Its size as OTLP; 0 if it is unknown.
        stored_bytes: Its size on disk; 0 if it is unknown.
        provenance: The spans that values came from.
    """

    trace_id: str
    step: int | None = None
    sample_index: int | str | None = None
    rollout_n: int | str | None = None
    validate: bool = False
    experiment_name: str | None = None
    project_name: str | None = None
    run_id: str | None = None
    worker: str = ""
    service_name: str | None = None
    name: str = ""
    start_time: int = 0
    end_time: int = 0
    has_root: bool = False
    status: str | None = None
    finish_reason: str | None = None
    reward: float | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    fate: str | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    llm_seconds: float = 0.0
    tool_seconds: float = 0.0
    reward_seconds: float = 0.0
    waiting_seconds: float = 0.0
    tools: Mapping[str, ToolCounts] = field(default_factory=dict)
    repeated_calls: int = 0
    unknown_tool_calls: int = 0
    unparsed_tool_calls: int = 0
    errors: tuple[SpanError, ...] = ()
    error_type: str | None = None
    prefix_breaks: int = 0
    min_weights_version: int | None = None
    max_weights_version: int | None = None
    staleness: int | None = None
    dropped_spans: int = 0
    truncated_bytes: int = 0
    redacted: int = 0
    prompt: str = ""
    answer: str = ""
    turn_hashes: tuple[str, ...] = ()
    shape: Sequence[SpanShape] = ()
    spans: int = 0
    bytes: int = 0
    stored_bytes: int = 0
    provenance: Provenance = field(default_factory=Provenance)

    def shape_of(self, error: SpanError) -> SpanShape | None:
        """Return the shape of a span that failed; None if it is beyond the bound, or the index is damaged."""
        return self.shape[error.shape] if 0 <= error.shape < len(self.shape) else None
