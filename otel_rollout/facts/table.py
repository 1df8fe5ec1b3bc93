"""The table of facts: everything about a trajectory but its payload, each fact in one row.

From the rows follow the columns of an index and their validation, the merging of a trajectory's lines, the types of the
viewer's pages, and the table in docs/reference/trace-folder.md.
"""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from otel_rollout import semconv
from otel_rollout.facts.packed_spans import SpanError, ToolCounts
from otel_rollout.facts.span_values import count_of, integer_of, text_of
from otel_rollout.text.sanitize import INT64_MAX

if TYPE_CHECKING:
    from otel_rollout.facts.builder import Collected

Count: TypeAlias = Annotated[int, (0, INT64_MAX)]
Seconds: TypeAlias = Annotated[float, (0, sys.float_info.max)]
"""Numbers with their bounds, which `json_types` checks."""
Merge: TypeAlias = Literal["main", "sum", "least", "latest"]
Shown: TypeAlias = Literal["row", "trajectory"]
Better: TypeAlias = Literal["higher", "lower", "neither"]
Sum: TypeAlias = Literal["mean", "percentiles", "sum", "above 0", "by value", "mean by name", "sum by name"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of the table.

    Args:
        name: The attribute of `TrajectorySummary`, which is the column's name too.
        meaning: A clause for the docs.
        unit: The unit of a number.
        of: Computes it from what is `Collected` of the spans; None if only the reader of a folder has it.
        is_listed: True if it is among the first fields of an index's line, which lists need.
        shown: `row` if each row of a step's page has it, `trajectory` if a trajectory's page and `ls --json` have it.
        merge: The rule that joins a trajectory's line with the lines of late annotations: by the value of the root's
            line (`main`), by `sum` or `least`, or by the `latest` value.
        better: The side of two runs that is better, if it is a number, or numbers by name; None if it is no figure that
            runs are compared by.
    """

    name: str
    meaning: str
    unit: str
    of: Callable[[Any], Any] | None
    is_listed: bool
    shown: Shown
    merge: Merge
    better: Better | None


def _fact(
    meaning: str,
    default: Any,
    of: Callable[[Collected], Any] | None = None,
    *,
    unit: str = "",
    merge: Merge = "main",
    is_listed: bool = False,
    shown: Shown = "trajectory",
    better: Better | None = "neither",
) -> Any:
    """Return the dataclass field of a fact; a default that is a type is called for each summary."""
    metadata = {"fact": Fact("", meaning, unit, of, is_listed, shown, merge, better)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _listed(
    meaning: str,
    default: Any,
    of: Callable[[Collected], Any],
    *,
    unit: str = "",
    merge: Merge = "main",
    shown: Shown = "trajectory",
    better: Better | None = None,
) -> Any:
    return _fact(meaning, default, of, unit=unit, merge=merge, is_listed=True, shown=shown, better=better)


# Not frozen, which would triple the time of making one: there are thousands in a step.
@dataclass(slots=True)
class TrajectorySummary:
    """A trajectory's identity, outcome and amounts; None is unknown."""

    trace_id: str = _listed("32 hexadecimal digits", "", lambda it: f"{it.trace.trace_id:032x}", shown="row")
    step: int | None = _listed("the training step, if it is an integer", None, lambda it: it.trace.step)
    sample_index: int | str | None = _listed(
        "the prompt in the dataset", None, lambda it: tag_of(it.trace.attributes.get(semconv.SAMPLE_INDEX)), shown="row"
    )
    rollout_n: int | str | None = _listed(
        "the number of the rollout of the prompt",
        None,
        lambda it: tag_of(it.trace.attributes.get(semconv.ROLLOUT_N)),
        shown="row",
    )
    validate: bool = _listed("true in a validation pass", False, lambda it: it.trace.validate)
    experiment_name: str | None = _listed(
        "the experiment given to `init`", None, lambda it: text_of(it.trace.attributes.get(semconv.EXPERIMENT_NAME))
    )
    project_name: str | None = _listed("the project given to `init`", None, lambda it: it.trace.project_name)
    run_id: str | None = _listed("the run of its process", None, lambda it: it.trace.run_id)
    worker: str = _fact("the process that wrote it: `<host>-<pid>-<4 hexadecimal digits>`", "")
    name: str = _listed("the root's name; without a root, one of its spans'", "", lambda it: it.trace.name)
    start_time: int = _listed(
        "the start of its first span, since 1970",
        0,
        lambda it: it.trace.start_time,
        unit="ns",
        merge="least",
        shown="row",
    )
    end_time: int = _listed(
        "the end of its root, since 1970; without a root, its last span's",
        0,
        lambda it: it.trace.end_time,
        unit="ns",
    )
    has_root: bool = _listed(
        "false while it is running, and if its process ended before it did",
        False,
        lambda it: it.trace.has_root,
        shown="row",
    )
    status: str | None = _listed(
        "`completed`, `error`, `cancelled` or `truncated`; null without a root",
        None,
        lambda it: it.trace.status,
        shown="row",
    )
    reward: float | None = _listed(
        "the reward; a late one counts", None, lambda it: it.trace.reward, merge="latest", shown="row", better="higher"
    )
    spans: Count = _listed(
        "the number of its spans", 0, lambda it: it.trace.spans, unit="spans", merge="sum", better="neither"
    )
    service_name: str | None = _fact(
        "`service.name` of the resource: what spans of other programs are known by",
        None,
        lambda it: it.trace.service_name,
    )
    finish_reason: str | None = _fact(
        "`rollout.finish_reason`, else the last generation's",
        None,
        lambda it: it.finish_reason,
        shown="row",
    )
    reward_parts: Mapping[str, float] = _fact(
        "the named parts of the reward that are numbers or booleans (as 0 and 1)",
        dict,
        lambda it: it.trace.reward_parts,
        merge="latest",
    )
    advantage: float | None = _fact(
        "the advantage in training", None, lambda it: it.trace.fact("advantage"), merge="latest", shown="row"
    )
    fate: str | None = _fact(
        "what training did with it", None, lambda it: it.trace.fact("fate"), merge="latest", shown="row"
    )
    fate_reason: str | None = _fact(
        "the reason of the fate", None, lambda it: it.trace.fact("fate_reason"), merge="latest"
    )
    log_prob_gap: float | None = _fact(
        "the mean distance of the trainer's log-probs from the engine's",
        None,
        lambda it: it.trace.fact("log_prob_gap"),
        merge="latest",
    )
    log_prob_gap_max: float | None = _fact(
        "the largest such distance", None, lambda it: it.trace.fact("log_prob_gap_max"), merge="latest"
    )
    entropy: float | None = _fact(
        "the mean entropy of its tokens, by the trainer", None, lambda it: it.trace.fact("entropy"), merge="latest"
    )
    importance_weight: float | None = _fact(
        "the mean importance weight of its tokens in training",
        None,
        lambda it: it.trace.fact("importance_weight"),
        merge="latest",
    )
    late: Mapping[str, Count] = _fact(
        "when a reward, facts of training and parts of the reward (with a dot before the name) were known that came "
        "after the root, since 1970; of several lines', the latest counts",
        dict,
        lambda it: it.trace.late,
        unit="ns",
        merge="latest",
        better=None,
    )
    turns: Count | None = _fact(
        "the root's `rollout.turns`, else the number of generations that are in no other one, nor a simulated user's",
        None,
        lambda it: it.totals.turns,
        shown="row",
    )
    input_tokens: Count | None = _fact(
        "the root's, else the sum over these generations",
        None,
        lambda it: it.totals.input_tokens,
        unit="tokens",
        shown="row",
    )
    output_tokens: Count | None = _fact(
        "the root's, else the sum over these generations",
        None,
        lambda it: it.totals.output_tokens,
        unit="tokens",
        shown="row",
    )
    output_characters: Count = _fact(
        "the characters of the generations' answers, but a simulated user's, without thoughts and tool calls",
        0,
        lambda it: it.output_characters,
        unit="characters",
    )
    user_turns: Count | None = _fact(
        "the turns of a simulated user, which none of the other figures has",
        None,
        lambda it: it.figures.of_user.turns,
        unit="turns",
    )
    user_input_tokens: Count | None = _fact(
        "the input tokens of a simulated user", None, lambda it: it.figures.of_user.input_tokens, unit="tokens"
    )
    user_output_tokens: Count | None = _fact(
        "the output tokens of a simulated user", None, lambda it: it.figures.of_user.output_tokens, unit="tokens"
    )
    user_seconds: Seconds = _fact(
        "the time in a simulated user's generations", 0.0, lambda it: it.figures.user_seconds, unit="s"
    )
    two_sides: bool = _fact(
        "true if two sides speak to each other, and nothing shows which one is the policy",
        False,
        lambda it: it.is_undecided,
        better=None,
    )
    conversations: Count = _fact(
        "the number of its conversations: one, and one more for each sub-agent, fork, compaction and simulated user",
        0,
        lambda it: it.conversations.total(),
        unit="conversations",
        shown="row",
    )
    subagents: Count = _fact(
        "the conversations of sub-agents",
        0,
        lambda it: it.conversations["subagent"],
        unit="conversations",
        shown="row",
    )
    forks: Count = _fact(
        "the conversations that begin inside another one, as of a second answer to one prompt",
        0,
        lambda it: it.conversations["fork"],
        unit="conversations",
        shown="row",
    )
    compactions: Count = _fact(
        "the conversations that replace another one, which was too long",
        0,
        lambda it: it.conversations["compacted"],
        unit="conversations",
        shown="row",
    )
    llm_seconds: Seconds = _fact(
        "the time in generations but a simulated user's; spans that overlap count once, and what begins after the "
        "root's end doesn't count",
        0.0,
        lambda it: it.figures.llm_seconds,
        unit="s",
        better="lower",
    )
    tool_seconds: Seconds = _fact(
        "the time in tools", 0.0, lambda it: it.figures.tool_seconds, unit="s", better="lower"
    )
    reward_seconds: Seconds = _fact(
        "the time in evaluators", 0.0, lambda it: it.figures.reward_seconds, unit="s", better="lower"
    )
    waiting_seconds: Seconds = _fact(
        "the time of the root in none of them",
        0.0,
        lambda it: it.figures.waiting_seconds,
        unit="s",
        better="lower",
    )
    tools: Mapping[str, ToolCounts] = _fact(
        'calls and failed calls by tool: `{"search":[3,1]}`; beyond 64 tools, the others as `…`',
        dict,
        lambda it: it.figures.tools,
        unit="calls",
        better="lower",
    )
    repeated_calls: Count = _fact(
        "the most calls of one tool with the same arguments",
        0,
        lambda it: it.figures.repeated_calls,
        unit="calls",
        better="lower",
    )
    unknown_tool_calls: Count = _fact(
        "the calls of tools that there are not",
        0,
        lambda it: it.trace.unknown_tool_calls,
        unit="calls",
        better="lower",
    )
    unparsed_tool_calls: Count = _fact(
        "the tool calls in the policy's text that are neither JSON nor the tags of Qwen3-Coder or GLM",
        0,
        lambda it: it.unparsed_tool_calls,
        unit="calls",
        better="lower",
    )
    odd_results: Mapping[str, Count] = _fact(
        "calls by tool whose result is nothing, or reads like an error, without an exception; of the first 64 tools",
        dict,
        lambda it: dict(it.trace.odd_results),
        unit="calls",
        better="lower",
    )
    result_keys: Mapping[str, tuple[str, ...]] = _fact(
        "the first 32 keys of the JSON objects that each of the first 64 tools returned",
        dict,
        lambda it: dict(it.trace.result_keys),
        better=None,
    )
    unread_answers: Count = _fact(
        "the generations in whose result no answer was recognised",
        0,
        lambda it: it.trace.unread_answers,
        unit="generations",
        better="lower",
    )
    invalid_rewards: Count = _fact(
        "the rewards that were NaN or infinite", 0, lambda it: it.trace.invalid_rewards, merge="sum", better="lower"
    )
    errors: tuple[SpanError, ...] = _fact(
        "the first 8 spans that failed: `[name, kind, exception's class, true if a later call succeeded, true if it "
        "ended before the first generation]`",
        (),
        lambda it: it.errors,
    )
    error_type: str | None = _fact(
        "the exception's class that the root ended with",
        None,
        lambda it: it.trace.error_type if it.trace.has_root else None,
        shown="row",
    )
    prefix_breaks: Count = _fact(
        "the turns whose prompt doesn't extend the turn before",
        0,
        lambda it: it.trace.prefix_breaks,
        unit="turns",
        shown="row",
        better="lower",
    )
    min_weights_version: int | None = _fact(
        "the oldest weights that generated it",
        None,
        lambda it: it.trace.min_weights_version,
        better=None,
    )
    max_weights_version: int | None = _fact(
        "the newest weights that generated it", None, lambda it: it.trace.max_weights_version, better=None
    )
    staleness: int | None = _fact(
        "the steps between the newest weights and the trainer's",
        None,
        lambda it: None if (steps := it.trace.fact("staleness")) is None else integer_of(int(steps)),
        unit="steps",
        merge="latest",
        better="lower",
    )
    dropped_spans: Count = _fact(
        "the spans that tracing dropped",
        0,
        lambda it: count_of(it.root.get(semconv.DROPPED_SPANS)) or 0,
        unit="spans",
        better="lower",
    )
    truncated_bytes: Count = _fact(
        "the payload that tracing cut",
        0,
        lambda it: count_of(it.root.get(semconv.TRUNCATED_BYTES)) or 0,
        unit="bytes",
        better="lower",
    )
    redacted: Count = _fact(
        "the secrets that redaction replaced",
        0,
        lambda it: count_of(it.root.get(semconv.REDACTED)) or 0,
        unit="secrets",
    )
    prompt: str = _fact(
        "the first line of what the user asked; longer than 200 characters, it is cut and ends in `…`",
        "",
        lambda it: it.prompt,
        shown="row",
    )
    answer: str = _fact("the first line of the last answer, cut the same way", "", lambda it: it.answer, shown="row")
    turn_hashes: tuple[str, ...] = _fact(
        "for each of the first 256 turns, 8 hexadecimal digits of the messages and the tools' results, equal for "
        "equal content whatever ids and times it has; empty if the turn's output isn't recorded",
        (),
        lambda it: it.figures.turn_hashes,
    )
    bytes: Count = _fact("its size as OTLP; 0 if it is unknown", 0, unit="bytes", merge="sum")
    stored_bytes: Count = _fact("its size on disk; 0 if it is unknown", 0, unit="bytes", merge="sum")

    @property
    def seconds(self) -> float:
        """The seconds from its start to its end."""
        return (self.end_time - self.start_time) / 1e9


FACTS: Final = tuple(replace(each.metadata["fact"], name=each.name) for each in fields(TrajectorySummary))
"""The table."""
COLUMNS: Final = tuple((each.name, each.of) for each in FACTS if each.of is not None and not each.is_listed)
"""The facts of an index's line that lists don't need."""
DEFAULTS: Final[Mapping[str, Any]] = {each.name: getattr(TrajectorySummary(""), each.name) for each in FACTS}
"""The value of each fact that a line leaves out."""
INFERRED: Final = ("two_sides", "conversations", "subagents", "forks", "compactions")
"""The facts that only messages show where scopes, marks and the texts of prompts don't: readers compute them."""
_LISTED: Final = tuple((each.name, each.of) for each in FACTS if each.of is not None and each.is_listed)
LISTED: Final = tuple(name for name, _ in _LISTED)
_NAMES: Final = tuple(each.name for each in FACTS)


def identity_of(collected: Collected) -> dict[str, Any]:
    """Return the facts that lists need."""
    return {name: of(collected) for name, of in _LISTED}


def columns_of(collected: Collected) -> dict[str, Any]:
    """Return the other facts of spans."""
    return {name: of(collected) for name, of in COLUMNS}


def shown_of(summary: TrajectorySummary) -> dict[str, Any]:
    """Return the facts of a summary that pages and `ls --json` show."""
    return {name: getattr(summary, name) for name in _NAMES}


def tag_of(value: Any) -> int | str | None:
    """Return a tag: an integer or a text; None if the value is neither."""
    return value if type(value) is int else text_of(value)


class Percentiles(NamedTuple):
    """The distribution of an amount over trajectories; percentiles are interpolated as in numpy.

    Args:
        mean: The mean.
        p50: The median.
        p99: The 99th percentile.
        highest: The highest.
    """

    mean: float
    p50: float
    p99: float
    highest: float


def _sum(fact: str, how: Sum) -> Any:
    return field(metadata={"fact": fact, "sum": how})


@dataclass(frozen=True, kw_only=True)
class StepSums:
    """The sums of facts over the trajectories of a step; None is unknown."""

    reward_mean: float | None = _sum("reward", "mean")
    reward_parts: Mapping[str, float] = _sum("reward_parts", "mean by name")
    tools: Mapping[str, ToolCounts] = _sum("tools", "sum by name")
    turns: Percentiles | None = _sum("turns", "percentiles")
    tokens: Percentiles | None = _sum("output_tokens", "percentiles")
    seconds: Percentiles | None = _sum("seconds", "percentiles")
    subagents: Count = _sum("subagents", "sum")
    forks: Count = _sum("forks", "sum")
    compactions: Count = _sum("compactions", "sum")
    two_sides: Count = _sum("two_sides", "above 0")
    unread_answers: Count = _sum("unread_answers", "above 0")
    prefix_breaks: Count = _sum("prefix_breaks", "above 0")
    staleness: Percentiles | None = _sum("staleness", "percentiles")
    fates: Mapping[str, Count] = _sum("fate", "by value")
    dropped_spans: Count = _sum("dropped_spans", "sum")
    truncated_bytes: Count = _sum("truncated_bytes", "sum")
    redacted: Count = _sum("redacted", "sum")
    spans: Count = _sum("spans", "sum")
    bytes: Count = _sum("bytes", "sum")
    stored_bytes: Count = _sum("stored_bytes", "sum")


SUMS: Final = tuple((each.name, each.metadata["fact"], each.metadata["sum"]) for each in fields(StepSums))
"""The name of each sum, its fact, and how it is summed."""
