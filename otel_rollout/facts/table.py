"""The table of facts: everything about a trajectory but its payload, each fact in one row.

From the rows follow the columns of an index and their validation, the merging of a trajectory's lines, the types of the
viewer's pages, and the table in docs/reference/trace-folder.md.
"""

# ruff: noqa: RUF009 - each default is a row of the table

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from otel_rollout.facts.figures import SpanError, ToolCounts
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
        shown: `row` if each row of a step's page has it, `trajectory` if a trajectory's page and `ls --json` have it.
        merge: The rule that joins a trajectory's line with the lines of late annotations: by the value of the root's
            line (`main`), by `sum` or `least`, or by the `latest` value.
        better: The side of two runs that is better, if it is a number, or numbers by name; None if it is no figure that
            runs are compared by.
    """

    name: str
    meaning: str
    unit: str = ""
    shown: Shown = "trajectory"
    merge: Merge = "main"
    better: Better | None = "neither"


def _fact(meaning: str, default: Any, **more: str | None) -> Any:
    """Return the dataclass field of a fact; a default that is a type is called for each summary."""
    metadata = {"meaning": meaning, **more}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


# Not frozen, which would triple the time of making one: there are thousands in a step.
@dataclass(slots=True)
class TrajectorySummary:
    """A trajectory's identity, outcome and amounts; None is unknown."""

    trace_id: str = _fact("32 hexadecimal digits", "", shown="row", better=None)
    step: int | None = _fact("the training step, if it is an integer", None, better=None)
    sample_index: int | str | None = _fact("the prompt in the dataset", None, shown="row", better=None)
    rollout_n: int | str | None = _fact("the number of the rollout of the prompt", None, shown="row", better=None)
    validate: bool = _fact("true in a validation pass", False, better=None)
    experiment_name: str | None = _fact("the experiment given to `init`", None, better=None)
    project_name: str | None = _fact("the project given to `init`", None, better=None)
    run_id: str | None = _fact("the run of its process", None, better=None)
    worker: str = _fact("the process that wrote it: `<host>-<pid>-<4 hexadecimal digits>`", "")
    name: str = _fact("the root's name; without a root, one of its spans'", "", better=None)
    start_time: int = _fact(
        "the start of its first span, since 1970", 0, unit="ns", merge="least", shown="row", better=None
    )
    end_time: int = _fact("the end of its root, since 1970; without a root, its last span's", 0, unit="ns", better=None)
    has_root: bool = _fact(
        "false while it is running, and if its process ended before it did", False, shown="row", better=None
    )
    status: str | None = _fact(
        "`completed`, `error`, `cancelled` or `truncated`; null without a root", None, shown="row", better=None
    )
    reward: float | None = _fact("the reward; a late one counts", None, merge="latest", shown="row", better="higher")
    spans: Count = _fact("the number of its spans", 0, unit="spans", merge="sum", better="neither")
    service_name: str | None = _fact("`service.name` of the resource: what spans of other programs are known by", None)
    host: str | None = _fact("the host of its process: `host.name` of the resource", None)
    engine: str | None = _fact(
        "the engine of its generations: `server.address`, with `server.port`; null if they have none, or several", None
    )
    finish_reason: str | None = _fact("`rollout.finish_reason`, else the last generation's", None, shown="row")
    reward_parts: Mapping[str, float] = _fact(
        "the named parts of the reward that are numbers or booleans (as 0 and 1)", dict, merge="latest"
    )
    advantage: float | None = _fact("the advantage in training", None, merge="latest", shown="row")
    fate: str | None = _fact("what training did with it", None, merge="latest", shown="row")
    fate_reason: str | None = _fact("the reason of the fate", None, merge="latest")
    log_prob_gap: float | None = _fact(
        "the mean distance of the trainer's log-probs from the engine's", None, merge="latest"
    )
    log_prob_gap_max: float | None = _fact("the largest such distance", None, merge="latest")
    entropy: float | None = _fact("the mean entropy of its tokens, by the trainer", None, merge="latest")
    importance_weight: float | None = _fact(
        "the mean importance weight of its tokens in training", None, merge="latest"
    )
    late: Mapping[str, Count] = _fact(
        "when a reward, facts of training and parts of the reward (with a dot before the name) were known that came "
        "after the root, since 1970; of several lines', the latest counts",
        dict,
        unit="ns",
        merge="latest",
        better=None,
    )
    turns: Count | None = _fact(
        "the root's `rollout.turns`, else the number of generations that are in no other one, nor a simulated user's",
        None,
        shown="row",
    )
    input_tokens: Count | None = _fact(
        "the root's, else the sum over these generations", None, unit="tokens", shown="row"
    )
    output_tokens: Count | None = _fact(
        "the root's, else the sum over these generations", None, unit="tokens", shown="row"
    )
    output_characters: Count = _fact(
        "the characters of the generations' answers, but a simulated user's, without thoughts and tool calls",
        0,
        unit="characters",
    )
    user_turns: Count | None = _fact(
        "the turns of a simulated user, which none of the other figures has", None, unit="turns"
    )
    user_input_tokens: Count | None = _fact("the input tokens of a simulated user", None, unit="tokens")
    user_output_tokens: Count | None = _fact("the output tokens of a simulated user", None, unit="tokens")
    user_seconds: Seconds = _fact("the time in a simulated user's generations", 0.0, unit="s")
    two_sides: bool = _fact(
        "true if two sides speak to each other, and nothing shows which one is the policy", False, better=None
    )
    conversations: Count = _fact(
        "the number of its conversations: one, and one more for each sub-agent, fork, compaction and simulated user",
        0,
        unit="conversations",
        shown="row",
    )
    subagents: Count = _fact("the conversations of sub-agents", 0, unit="conversations", shown="row")
    forks: Count = _fact(
        "the conversations that begin inside another one, as of a second answer to one prompt",
        0,
        unit="conversations",
        shown="row",
    )
    compactions: Count = _fact(
        "the conversations that replace another one, which was too long", 0, unit="conversations", shown="row"
    )
    llm_seconds: Seconds = _fact(
        "the time in generations but a simulated user's; spans that overlap count once, and what begins after the "
        "root's end doesn't count",
        0.0,
        unit="s",
        better="lower",
    )
    tool_seconds: Seconds = _fact("the time in tools", 0.0, unit="s", better="lower")
    reward_seconds: Seconds = _fact("the time in evaluators", 0.0, unit="s", better="lower")
    waiting_seconds: Seconds = _fact("the time of the root in none of them", 0.0, unit="s", better="lower")
    tools: Mapping[str, ToolCounts] = _fact(
        'calls and failed calls by tool: `{"search":[3,1]}`; beyond 64 tools, the others as `…`',
        dict,
        unit="calls",
        better="lower",
    )
    repeated_calls: Count = _fact("the most calls of one tool with the same arguments", 0, unit="calls", better="lower")
    unknown_tool_calls: Count = _fact("the calls of tools that there are not", 0, unit="calls", better="lower")
    unparsed_tool_calls: Count = _fact(
        "the tool calls in the policy's text that are neither JSON nor the tags of Qwen3-Coder or GLM",
        0,
        unit="calls",
        better="lower",
    )
    odd_results: Mapping[str, Count] = _fact(
        "calls by tool whose result is nothing, or reads like an error, without an exception; of the first 64 tools",
        dict,
        unit="calls",
        better="lower",
    )
    result_keys: Mapping[str, tuple[str, ...]] = _fact(
        "the first 32 keys of the JSON objects that each of the first 64 tools returned", dict, better=None
    )
    unread_answers: Count = _fact(
        "the generations in whose result no answer was recognised", 0, unit="generations", better="lower"
    )
    invalid_rewards: Count = _fact("the rewards that were NaN or infinite", 0, merge="sum", better="lower")
    errors: tuple[SpanError, ...] = _fact(
        "the first 8 spans that failed: `[name, kind, exception's class, true if a later call succeeded, true if it "
        "ended before the first generation]`",
        (),
    )
    error_type: str | None = _fact("the exception's class that the root ended with", None, shown="row")
    prefix_breaks: Count = _fact(
        "the turns whose prompt doesn't extend the turn before", 0, unit="turns", shown="row", better="lower"
    )
    min_weights_version: int | None = _fact("the oldest weights that generated it", None, better=None)
    max_weights_version: int | None = _fact("the newest weights that generated it", None, better=None)
    staleness: int | None = _fact(
        "the steps between the newest weights and the trainer's", None, unit="steps", merge="latest", better="lower"
    )
    dropped_spans: Count = _fact("the spans that tracing dropped", 0, unit="spans", better="lower")
    truncated_bytes: Count = _fact("the payload that tracing cut", 0, unit="bytes", better="lower")
    redacted: Count = _fact("the secrets that redaction replaced", 0, unit="secrets")
    prompt: str = _fact(
        "the first line of what the user asked; longer than 200 characters, it is cut and ends in `…`", "", shown="row"
    )
    answer: str = _fact("the first line of the last answer, cut the same way", "", shown="row")
    turn_hashes: tuple[str, ...] = _fact(
        "for each of the first 256 turns, 8 hexadecimal digits of the messages and the tools' results, equal for "
        "equal content whatever ids and times it has; empty if the turn's output isn't recorded",
        (),
    )
    bytes: Count = _fact("its size as OTLP; 0 if it is unknown", 0, unit="bytes", merge="sum")
    stored_bytes: Count = _fact("its size on disk; 0 if it is unknown", 0, unit="bytes", merge="sum")

    @property
    def seconds(self) -> float:
        """The seconds from its start to its end."""
        return (self.end_time - self.start_time) / 1e9


FACTS: Final = tuple(Fact(each.name, **each.metadata) for each in fields(TrajectorySummary))
"""The table."""
OF_FILES: Final = ("worker", "bytes", "stored_bytes")
"""The facts that only the reader of a folder has."""
_NAMES: Final = [each.name for each in FACTS if each.name not in OF_FILES]
LISTED: Final = tuple(_NAMES[: _NAMES.index("service_name")])
"""The first fields of an index's line, which lists need."""
COLUMNS: Final = tuple(_NAMES[len(LISTED) :])
"""The facts of an index's line that lists don't need."""
DEFAULTS: Final[Mapping[str, Any]] = {each.name: getattr(TrajectorySummary(""), each.name) for each in FACTS}
"""The value of each fact that a line leaves out."""
INFERRED: Final = ("two_sides", "conversations", "subagents", "forks", "compactions")
"""The facts that only messages show where scopes, marks and the texts of prompts don't: readers compute them."""


def columns_of(collected: Collected) -> dict[str, Any]:
    """Return the facts of spans that lists don't need."""
    return {name: collected.facts[name] for name in COLUMNS}


def shown_of(summary: TrajectorySummary) -> dict[str, Any]:
    """Return the facts of a summary that pages and `ls --json` show."""
    return {each.name: getattr(summary, each.name) for each in FACTS}


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
