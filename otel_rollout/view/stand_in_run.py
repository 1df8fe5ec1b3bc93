"""A run read from the trajectories themselves, with the interface of `otel_rollout.run`, until that is here."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from otel_rollout import semconv
from otel_rollout.analysis.group_summary import GroupSummary, Spread
from otel_rollout.analysis.rollouts import prompt_of, rollout_of
from otel_rollout.analysis.step_summary import Percentiles, StepSummary
from otel_rollout.analysis.trace_tree import place_of
from otel_rollout.analysis.trajectory_summary import SpanError, SpanShape, ToolCounts, TrajectorySummary
from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory, read

__all__ = ["Run"]


class Run:
    """The trajectories of folders."""

    def __init__(
        self,
        folders: Sequence[Path],
        on_problem: Callable[[ReadProblem], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._folders = folders
        self._on_problem = on_problem or (lambda problem: None)
        self._cache: tuple[str, list[TrajectorySummary], dict[str, RecordedTrajectory]] | None = None
        self._summaries: dict[tuple[str, int], TrajectorySummary] = {}

    def version(self) -> str:
        """Return a text that changes when the folders' files do."""
        sizes = 0
        for folder in self._folders:
            sizes += sum(1 + path.stat().st_size for path in folder.rglob("*.index.jsonl"))
        return f"{sizes:x}"

    def steps(self) -> list[StepSummary]:
        """Return all steps."""
        found: dict[Any, list[TrajectorySummary]] = defaultdict(list)
        for each in self._load()[1]:
            found[each.step, each.validate, each.experiment_name].append(each)
        return [_step(each) for each in found.values()]

    def summaries(
        self, step: int | None, validate: bool, experiment: str | None = None, run_id: str | None = None
    ) -> list[TrajectorySummary]:
        """Return the trajectories of a step."""
        return [
            each
            for each in self._load()[1]
            if each.step == step
            and each.validate == validate
            and (experiment is None or each.experiment_name == experiment)
        ]

    def groups(
        self, step: int | None, validate: bool, experiment: str | None = None, run_id: str | None = None
    ) -> list[GroupSummary]:
        """Return the groups of a step."""
        found: dict[str, list[TrajectorySummary]] = defaultdict(list)
        for each in self.summaries(step, validate, experiment, run_id):
            found[str(each.sample_index)].append(each)
        return [_group(each) for each in found.values()]

    def group(
        self,
        step: int | None,
        validate: bool,
        sample_index: int | str | None,
        experiment: str | None = None,
        run_id: str | None = None,
    ) -> tuple[GroupSummary, list[TrajectorySummary]]:
        """Return a group and its trajectories."""
        own = [
            each
            for each in self.summaries(step, validate, experiment, run_id)
            if str(each.sample_index) == str(sample_index)
        ]
        if not own:
            raise KeyError(sample_index)
        return _group(own), own

    def same_prompt(
        self, sample_index: int | str | None, validate: bool, experiment: str | None = None
    ) -> list[GroupSummary]:
        """Return the groups of a prompt at all steps."""
        steps = dict.fromkeys(each.step for each in self._load()[1] if each.validate == validate)
        groups = (group for step in steps for group in self.groups(step, validate, experiment))
        return [group for group in groups if str(group.sample_index) == str(sample_index)]

    def trajectory(self, trace_id: str) -> RecordedTrajectory:
        """Return a trajectory."""
        return self._load()[2][trace_id]

    def summary(self, trace_id: str) -> TrajectorySummary:
        """Return a trajectory's summary."""
        return next(each for each in self._load()[1] if each.trace_id == trace_id)

    def search(self, query: Any) -> Iterator[Any]:
        """Return nothing yet."""
        return iter(())

    def _load(self) -> tuple[str, list[TrajectorySummary], dict[str, RecordedTrajectory]]:
        version = self.version()
        if self._cache is None or self._cache[0] != version:
            recorded: dict[str, RecordedTrajectory] = {}
            for folder in self._folders:
                if folder.exists():
                    recorded |= {each.trace_id: each for each in read(folder, on_problem=self._on_problem)}
            summaries = [self._summary(each) for each in recorded.values()]
            summaries.sort(key=lambda each: (each.step is None, each.step, each.validate, _key(each)))
            self._cache = version, summaries, recorded
        return self._cache

    def _summary(self, each: RecordedTrajectory) -> TrajectorySummary:
        key = each.trace_id, each.stored_bytes
        if key not in self._summaries:
            self._summaries[key] = _summarise(each)
        return self._summaries[key]


def _key(each: TrajectorySummary) -> tuple[Any, ...]:
    return tuple((isinstance(value, str), value or 0) for value in (each.sample_index, each.rollout_n))


def _summarise(each: RecordedTrajectory) -> TrajectorySummary:
    spans = sorted(each.spans, key=lambda span: span.start_time or 0)
    at = {place_of(span).span_id: number for number, span in enumerate(spans)}
    kinds = [str((span.attributes or {}).get(semconv.SPAN_KIND) or "") for span in spans]
    shape = tuple(
        SpanShape(
            span.name,
            kind,
            ((span.start_time or 0) - each.start_time) // 1000,
            ((span.end_time or 0) - (span.start_time or 0)) // 1000,
            span.status.status_code.value,
            at.get(place_of(span).parent_id or 0, -1),
        )
        for span, kind in zip(spans, kinds, strict=True)
    )
    tools: dict[str, ToolCounts] = {}
    for one in shape:
        if one.kind == "TOOL":
            calls, errors = tools.get(one.name, ToolCounts(0, 0))
            tools[one.name] = ToolCounts(calls + 1, errors + (one.status == 2))
    rollout = rollout_of(spans)

    def seconds(kind: str) -> float:
        return sum(one.duration for one in shape if one.kind == kind) / 1e6

    return TrajectorySummary(
        each.trace_id,
        step=each.step,
        sample_index=each.sample_index,
        rollout_n=each.rollout_n,
        validate=each.validate,
        experiment_name=each.experiment_name,
        project_name=each.project_name,
        run_id=each.run_id,
        name=each.name,
        start_time=each.start_time,
        end_time=each.end_time,
        has_root=each.has_root,
        status=each.status,
        reward=each.reward,
        turns=sum(kind == "LLM" for kind in kinds),
        input_tokens=rollout.input_tokens,
        output_tokens=rollout.output_tokens,
        llm_seconds=seconds("LLM"),
        tool_seconds=seconds("TOOL"),
        reward_seconds=seconds("EVALUATOR"),
        tools=tools,
        errors=tuple(SpanError(one.name, one.kind, "", at) for at, one in enumerate(shape) if one.status == 2),
        prompt=prompt_of(spans)[:200].split("\n")[0],
        answer=rollout.answer[:200].split("\n")[0],
        shape=shape,
        spans=len(spans),
        bytes=each.size_bytes,
        stored_bytes=each.stored_bytes,
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(min(known), sum(known) / len(known), max(known)) if known else None


def _percentiles(values: Iterable[float | None]) -> Percentiles | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Percentiles(
        sum(known) / len(known), known[len(known) // 2], known[min(len(known) - 1, int(len(known) * 0.99))], known[-1]
    )


def _group(own: Sequence[TrajectorySummary]) -> GroupSummary:
    rewards = tuple(each.reward for each in own)
    known = [reward for reward in rewards if reward is not None]
    first = own[0]
    zero = None
    if len(known) > 1 and len(set(known)) == 1:
        zero = "best" if known[0] >= 1 else "worst" if known[0] <= 0 else "other"
    return GroupSummary(
        step=first.step,
        validate=first.validate,
        experiment_name=first.experiment_name,
        run_id=None,
        sample_index=first.sample_index,
        prompt=first.prompt,
        trace_ids=tuple(each.trace_id for each in own),
        rollout_ns=tuple(each.rollout_n for each in own),
        rewards=rewards,
        statuses=tuple(each.status for each in own),
        solved=sum(reward > 0.5 for reward in known) / len(known) if known else None,
        zero_variance=zero,
        tokens=_spread(each.output_tokens for each in own),
        turns=_spread(each.turns for each in own),
        seconds=_spread((each.end_time - each.start_time) / 1e9 for each in own),
        duplicates=0,
        first_divergence=1,
        tool_calls=sum(count.calls for each in own for count in each.tools.values()),
        tool_errors=sum(count.errors for each in own for count in each.tools.values()),
        end_time=max(each.end_time for each in own),
    )


def _step(own: Sequence[TrajectorySummary]) -> StepSummary:
    rewards = [each.reward for each in own if each.reward is not None]
    mean = sum(rewards) / len(rewards) if rewards else None
    by_group: dict[str, list[TrajectorySummary]] = defaultdict(list)
    for each in own:
        by_group[str(each.sample_index)].append(each)
    groups = [_group(each) for each in by_group.values()]
    first = own[0]
    tools: dict[str, ToolCounts] = {}
    for each in own:
        for name, count in each.tools.items():
            calls, errors = tools.get(name, ToolCounts(0, 0))
            tools[name] = ToolCounts(calls + count.calls, errors + count.errors)
    ends = sorted(each.end_time for each in own)
    start, end = min(each.start_time for each in own), ends[-1]
    return StepSummary(
        step=first.step,
        validate=first.validate,
        experiment_name=first.experiment_name,
        run_id=None,
        trajectories=len(own),
        groups=len(groups),
        start_time=start,
        end_time=end,
        rewarded=len(rewards),
        reward_mean=mean,
        reward_std=math.sqrt(sum((each - (mean or 0)) ** 2 for each in rewards) / len(rewards)) if rewards else None,
        reward_lowest=min(rewards, default=None),
        reward_highest=max(rewards, default=None),
        group_std=None,
        solved=sum(reward > 0.5 for reward in rewards) / len(rewards) if rewards else None,
        comparable_groups=sum(len(group.rewards) > 1 for group in groups),
        zero_variance=Counter(group.zero_variance for group in groups if group.zero_variance),
        reward_parts={},
        errors=sum(each.status == "error" for each in own),
        truncated=sum(each.status == "truncated" for each in own),
        cancelled=sum(each.status == "cancelled" for each in own),
        rootless=sum(not each.has_root for each in own),
        truncated_with_worst_reward=0,
        error_types=Counter(each.error_type for each in own if each.error_type),
        tools=tools,
        turns=_percentiles(each.turns for each in own),
        tokens=_percentiles(each.output_tokens for each in own),
        seconds=_percentiles((each.end_time - each.start_time) / 1e9 for each in own),
        last_5_percent_share=(end - ends[int(len(ends) * 0.95)]) / max(1, end - start) if len(ends) > 1 else None,
        duplicates=0,
        prefix_breaks=0,
        staleness=None,
        fates={},
        dropped_spans=0,
        truncated_bytes=0,
        spans=sum(each.spans for each in own),
        bytes=sum(each.bytes for each in own),
        stored_bytes=sum(each.stored_bytes for each in own),
    )
