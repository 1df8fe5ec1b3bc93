"""Trace folders that hypothesis makes up, and naive recomputations from all their spans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from tests.run.random_runs import plain_scale
from tests.trace_folder.recordings import make_span, trace_id_of, write_frames, write_lines


class Made(NamedTuple):
    """A trajectory's tags and outcome.

    Args:
        step: The step.
        sample: The prompt.
        rollout: The number of the rollout.
        validate: A validation pass.
        experiment: The experiment.
        reward: The reward.
        status: The status.
        turns: What the model said in each turn.
        failed_tools: The turns whose tool call fails.
        seconds: The duration.
        has_root: The root has ended.
        stored: The kind of file that it stands in.
    """

    step: int | None
    sample: int | str | None
    rollout: int
    validate: bool
    experiment: str
    reward: float | None
    status: str
    turns: tuple[str, ...]
    failed_tools: frozenset[int]
    seconds: float
    has_root: bool
    stored: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What is unique in a folder."""
        return self.step, str(self.sample), self.rollout, self.validate

    def spans(self) -> list[ReadableSpan]:
        """Return its spans, the root last."""
        trace_id = trace_id_of(self.step, f"{self.experiment}/{self.sample}", self.rollout, validate=self.validate)
        values = (self.step, self.sample, self.rollout, self.validate, self.experiment)
        tags = {key: value for key, value in zip(semconv.TAGS, values, strict=True) if value is not None}
        spans = []
        for number, said in enumerate(self.turns):
            times = (0.01 * number, 0.01 * number + 0.005)
            message = f'[{{"role":"assistant","parts":[{{"type":"text","content":"{said}"}}]}}]'
            generation = {semconv.SPAN_KIND: "LLM", semconv.OUTPUT_MESSAGES: message, **tags}
            spans.append(make_span("generate", 10 * number + 2, trace_id, attributes=generation, seconds=times))
            error = "no such page" if number in self.failed_tools else None
            tool = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "look_up", **tags}
            tool |= {} if error else {semconv.OUTPUT_VALUE: '"42"'}
            times = (0.01 * number + 0.006, 0.01 * number + 0.009)
            spans.append(make_span("look_up", 10 * number + 3, trace_id, attributes=tool, seconds=times, error=error))
        root = {
            semconv.SPAN_KIND: "AGENT",
            semconv.STATUS: self.status,
            semconv.TURNS: len(self.turns),
            semconv.OUTPUT_TOKENS: 10 * len(self.turns),
            **tags,
            **({} if self.reward is None else {semconv.REWARD: self.reward}),
        }
        times = (0.0, self.seconds)
        spans.append(make_span("rollout", 1, trace_id, parent=None, attributes=root, seconds=times))
        return spans if self.has_root else spans[:-1]


SAMPLES = st.sampled_from([0, 1, 2, "uid-7", None])
TRAJECTORIES = st.lists(
    st.builds(
        Made,
        step=st.sampled_from([1, 2, None]),
        sample=SAMPLES,
        rollout=st.integers(0, 3),
        validate=st.booleans(),
        experiment=st.sampled_from(["a", "b"]),
        reward=st.sampled_from([None, 0.0, 0.5, 1.0, -2.0]),
        status=st.sampled_from(["completed", "error", "truncated", "cancelled"]),
        turns=st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=3).map(tuple),
        failed_tools=st.frozensets(st.integers(0, 2)),
        seconds=st.sampled_from([1.0, 2.0, 30.0]),
        has_root=st.sampled_from([True, True, True, False]),
        stored=st.sampled_from(["written", "without an index", "lines"]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda made: (made.key, made.experiment),
)


def write(folder: Path, made: Sequence[Made]) -> None:
    """Write trajectories: with the writer, as frames without an index, and as lines of another program."""
    writer = FolderWriter(folder)
    for each in made:
        spans = each.spans()
        if each.stored == "lines":
            write_lines(folder / "other.jsonl", spans)
        elif each.stored == "without an index" and each.has_root:
            place = "no-step" if each.step is None else f"step={each.step:06d}"
            place = f"validate/{place}" if each.validate and each.step is not None else place
            write_frames(folder / place / "host-1-abcd.otlp.zst", spans)
        else:
            writer.write(spans)
    writer.close()


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return sum(values) / len(values) if values else None


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of all values."""
    middle = sum(values) / len(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / len(values))


def naive_group(rollouts: Sequence[Made], steps: Sequence[Sequence[Made]]) -> dict[str, Any]:
    """Return the figures of a group of a run, each computed on its own."""
    rewards = [each.reward for each in rollouts if each.has_root and each.reward is not None]
    of_steps = [[each.reward for each in step if each.has_root and each.reward is not None] for step in steps]
    scale = plain_scale([each for each in of_steps if each])
    ordered = sorted(rollouts, key=lambda each: each.rollout)
    variance = solved = None
    if rewards:
        assert scale is not None
        low, high = scale
        right = [reward > 0 if low == high else reward > (low + high) / 2 for reward in rewards]
        solved = sum(right) / len(right)
        if len(rewards) > 1 and len(set(rewards)) == 1:
            if low == high:
                variance = "best" if low > 0 else "worst"
            else:
                variance = "best" if rewards[0] >= high else "worst" if rewards[0] <= low else "other"
    said = [_said(each) for each in ordered]
    longest = max(map(len, said))
    divergence = next(
        (turn + 1 for turn in range(longest) if len({tuple(each[: turn + 1]) for each in said}) > 1),
        None,
    )
    duplicates = sum(said[number] in said[:number] for number in range(len(said)))
    return {
        "rollout_ns": tuple(each.rollout for each in ordered),
        "rewards": tuple(each.reward if each.has_root else None for each in ordered),
        "statuses": tuple(each.status if each.has_root else None for each in ordered),
        "solved": solved,
        "zero_variance": variance if rollouts[0].sample is not None else None,
        "duplicates": duplicates if rollouts[0].sample is not None else 0,
        "first_divergence": divergence if rollouts[0].sample is not None else None,
        "tool_calls": sum(len(each.turns) for each in rollouts),
        "tool_errors": sum(_failed_calls(each) for each in rollouts),
    }


def naive_step(step: Sequence[Made]) -> dict[str, Any]:
    """Return a step's figures, each computed on its own."""
    rewards = [each.reward for each in step if each.has_root and each.reward is not None]
    statuses = Counter(each.status for each in step if each.has_root)
    worst = min(rewards, default=None)
    groups: dict[str, list[Made]] = {}
    for each in step:
        if each.sample is not None:
            groups.setdefault(str(each.sample), []).append(each)
    of_groups = [
        [each.reward for each in group if each.has_root and each.reward is not None] for group in groups.values()
    ]
    return {
        "trajectories": len(step),
        "groups": len(groups),
        "rewarded": len(rewards),
        "reward_mean": mean(rewards),
        "reward_std": deviation(rewards) if rewards else None,
        "reward_lowest": worst,
        "reward_highest": max(rewards, default=None),
        "group_std": mean([deviation(each) for each in of_groups if len(each) > 1]),
        "comparable_groups": sum(len(each) > 1 for each in of_groups),
        "errors": statuses["error"],
        "truncated": statuses["truncated"],
        "cancelled": statuses["cancelled"],
        "rootless": sum(not each.has_root for each in step),
        "truncated_with_worst_reward": sum(
            each.has_root and each.status == "truncated" and each.reward is not None and each.reward == worst
            for each in step
        ),
        "spans": sum(len(each.spans()) for each in step),
    }


def _said(made: Made) -> list[tuple[str, bool]]:
    return [(said, number in made.failed_tools) for number, said in enumerate(made.turns)]


def _failed_calls(made: Made) -> int:
    return sum(number in made.failed_tools for number in range(len(made.turns)))
