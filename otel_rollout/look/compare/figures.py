"""The figures that runs are compared by: sums of each over prompts and over steps.

The figures of trajectories follow from the table of facts: a new fact that is a number, or numbers by name, is one.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_rollout.catalog import GroupSummary, StepSummary
from otel_rollout.catalog.reward_scale import Scale
from otel_rollout.catalog.step_figures import is_cut_off, prompt_key, speed_of, wall_seconds
from otel_rollout.facts.figures import ToolCounts
from otel_rollout.facts.table import FACTS, SUMS, Better, Fact, TrajectorySummary

MAX_NAMES: Final = 16
"""The most tools, parts of the reward and values of one fact: a model invents any number of tools."""
SHARE: Final = "share"
"""The unit of what is between 0 and 1."""
SECONDS: Final = "s"
"""The unit of durations, which the load of the machine makes alike in a step."""


@dataclass(frozen=True)
class FigureKind:
    """A figure, without its values.

    Args:
        name: Its name: a fact's, and the name of its part: `tools.search.calls`.
        title: Its name in words.
        unit: The unit of its mean.
        better: The side that is better.
        of_all: True if a trajectory without it counts as 0.
        family: The fact, if it has figures by name.
        member: The name of one of them, such as a tool.
    """

    name: str
    title: str
    unit: str
    better: Better
    of_all: bool = False
    family: str = ""
    member: str = ""


@dataclass
class Sums:
    """The sums of one figure.

    Args:
        units: For each prompt, by its position, the sum and the number of values.
        steps: The same for each step.
    """

    units: tuple[array[float], array[float]] = field(default_factory=lambda: (array("d"), array("d")))
    steps: dict[int | None, tuple[float, float]] = field(default_factory=dict)

    def add(self, step: int | None, values: Iterable[tuple[int, float]]) -> None:
        """Add the values of a step, each with the position of its prompt."""
        sums, counts = self.units
        total = number = 0.0
        for unit, value in values:
            if unit >= len(sums):
                missing = [0.0] * (unit + 1 - len(sums))
                sums.extend(missing)
                counts.extend(missing)
            sums[unit] += value
            counts[unit] += 1
            total += value
            number += 1
        if number:
            self.steps[step] = total, number


@dataclass(frozen=True)
class Prompt:
    """A prompt, with the last step that has it.

    Args:
        key: Its key, which is equal in both runs; of a trajectory without a number of the sample, its own id.
        sample_index: Its number in the dataset.
        text: Its first line.
        step: The step.
    """

    key: str
    sample_index: int | str | None
    text: str
    step: int | None


class Sample:
    """The figures of one run's training, or of its validation, as steps are added.

    Args:
        scale: The worst and the best reward of both runs; None if all rewards are the same.
        last: The last steps, whose rewards are figures of their own.
    """

    def __init__(self, scale: Scale | None, last: Collection[int | None] = ()) -> None:
        self._scale = scale
        self._last = last
        self.prompts: list[Prompt] = []
        self.steps: list[StepSummary] = []
        self.figures: dict[FigureKind, Sums] = defaultdict(Sums)
        self.step_figures: dict[FigureKind, dict[int | None, float]] = defaultdict(dict)
        self._positions: dict[str, int] = {}
        self._all = Sums()

    def add(self, step: StepSummary, trajectories: Sequence[TrajectorySummary], groups: Sequence[GroupSummary]) -> None:
        """Add a step."""
        self.steps.append(step)
        at = step.step
        units = list(map(self._position, trajectories))
        self._all.add(at, ((unit, 1.0) for unit in units))
        for fact in FACTS:
            if fact.better is not None or fact.name in _BY_VALUE:
                for kind, values in _values_of(fact, units, trajectories):
                    self.figures[kind].add(at, values)
        for kind, of in _OUTCOMES.items():
            self.figures[kind].add(at, zip(units, map(of, trajectories), strict=True))
        known = zip(units, (each.reward for each in trajectories), strict=True)
        rewards = [(unit, reward) for unit, reward in known if reward is not None]
        solved = [(unit, self._is_solved(reward)) for unit, reward in rewards]
        self.figures[SOLVED].add(at, solved)
        if at in self._last:
            self.figures[_LAST_REWARD].add(at, rewards)
            self.figures[_LAST_SOLVED].add(at, solved)
        by_trace_id = dict(zip((each.trace_id for each in trajectories), units, strict=True))
        placed = [(by_trace_id[each.trace_ids[0]], each) for each in groups if each.trace_ids[0] in by_trace_id]
        for kind, share in _OF_GROUPS.items():
            found = ((unit, share(each)) for unit, each in placed if each.sample_index is not None)
            self.figures[kind].add(at, ((unit, value) for unit, value in found if value is not None))
        for kind, number in _of_step(step, trajectories):
            self.step_figures[kind][at] = number

    def _is_solved(self, reward: float) -> float:
        return float(self._scale.is_solved(reward) if self._scale else reward > 0)

    def means(self, kind: FigureKind) -> dict[int, float]:
        """Return the mean of each prompt that has a figure, by the prompt's position."""
        values, counts = self.figures[kind].units
        if kind.of_all:
            counts = self._all.units[1]
            values = values + array("d", [0.0] * (len(counts) - len(values)))
        return {at: value / number for at, (value, number) in enumerate(zip(values, counts, strict=True)) if number}

    def step_means(self, kind: FigureKind) -> dict[int | None, float]:
        """Return the mean of each step that has a figure."""
        return {step: total / number for step, (total, number) in self.figures[kind].steps.items()}

    def _position(self, summary: TrajectorySummary) -> int:
        key = prompt_key(summary) or summary.trace_id
        at = self._positions.setdefault(key, len(self.prompts))
        prompt = Prompt(key, summary.sample_index, summary.prompt, summary.step)
        if at == len(self.prompts):
            self.prompts.append(prompt)
        else:
            self.prompts[at] = prompt
        return at


def _values_of(
    fact: Fact, units: Sequence[int], trajectories: Sequence[TrajectorySummary]
) -> Iterator[tuple[FigureKind, list[tuple[int, float]]]]:
    """Yield the figures of a fact, each with its values and the positions of their prompts."""
    found: dict[FigureKind, list[tuple[int, float]]] = defaultdict(list)
    better, words = fact.better or "neither", fact.name.replace("_", " ")
    number_kind = FigureKind(fact.name, words, fact.unit, better)
    for unit, each in zip(units, trajectories, strict=True):
        value = getattr(each, fact.name)
        if isinstance(value, (int, float)):
            found[number_kind].append((unit, value))
        elif isinstance(value, str) and fact.name in _BY_VALUE:
            kind = FigureKind(f"{fact.name}.{value}", f"{words} {value}", SHARE, "neither", True, fact.name, value)
            found[kind].append((unit, 1.0))
        elif isinstance(value, Mapping):
            for name, number in value.items():
                key, family = f"{fact.name}.{name}", (fact.name, name)
                if isinstance(number, ToolCounts):
                    calls = FigureKind(f"{key}.calls", f"calls of {name}", "calls", "neither", True, *family)
                    found[calls].append((unit, number.calls))
                    if number.calls:
                        errors = FigureKind(f"{key}.errors", f"errors of {name}", SHARE, "lower", False, *family)
                        found[errors].append((unit, number.errors / number.calls))
                else:
                    # A part that a reward lacks is unknown; a count, which has a unit, is 0.
                    kind = FigureKind(key, f"{words}: {name}", fact.unit, better, bool(fact.unit), *family)
                    found[kind].append((unit, number))
    yield from found.items()


_BY_VALUE: Final = frozenset(fact for _, fact, how in SUMS if how == "by value")
REWARD: Final = FigureKind("reward", "reward", "", "higher")
SOLVED: Final = FigureKind("solved", "solved", SHARE, "higher")
_LAST_REWARD: Final = FigureKind("reward.last", "reward in the last third of the steps", "", "higher")
_LAST_SOLVED: Final = FigureKind("solved.last", "solved in the last third of the steps", SHARE, "higher")
_OUTCOMES: Final[Mapping[FigureKind, Callable[[TrajectorySummary], float]]] = {
    FigureKind("errors", "ended in an error", SHARE, "lower"): lambda each: each.status == "error",
    FigureKind("truncated", "cut off", SHARE, "lower"): is_cut_off,
    FigureKind("cancelled", "cancelled", SHARE, "lower"): lambda each: each.status == "cancelled",
    FigureKind("rootless", "without a root", SHARE, "lower"): lambda each: not each.has_root,
    FigureKind("unrewarded", "without a reward", SHARE, "lower"): lambda each: each.reward is None,
    FigureKind("seconds", "seconds", "s", "lower"): lambda each: each.seconds,
}
_OF_GROUPS: Final[Mapping[FigureKind, Callable[[GroupSummary], float | None]]] = {
    FigureKind("zero_variance", "groups of one reward", SHARE, "lower"): lambda each: (
        float(each.zero_variance is not None) if sum(reward is not None for reward in each.rewards) > 1 else None
    ),
    FigureKind("duplicates", "equal rollouts", SHARE, "lower"): lambda each: each.duplicates / len(each.trace_ids),
}
_UNITS: Final[Mapping[str, tuple[str, Better]]] = {each.name: (each.unit, each.better or "neither") for each in FACTS}
_P99: Final = {
    name: FigureKind(f"{fact}.p99", f"p99 of {fact.replace('_', ' ')}", *_UNITS.get(fact, ("s", "lower")))
    for name, fact, how in SUMS
    if how == "percentiles"
}
_WALL: Final = FigureKind("wall_seconds", "wall time of a step", "s", "lower")
_SPEED: Final = FigureKind("tokens_a_second", "tokens a second of a trajectory", "tokens/s", "higher")
_LAST: Final = FigureKind("straggler_share", "wall time for the last 5 percent", SHARE, "lower")


def _of_step(step: StepSummary, trajectories: Sequence[TrajectorySummary]) -> Iterator[tuple[FigureKind, float]]:
    """Yield the figures that only a whole step has."""
    for name, kind in _P99.items():
        found = getattr(step, name)
        if found is not None:
            yield kind, found.p99
    wall, speed, last = wall_seconds(trajectories), speed_of(trajectories), step.last_5_percent_share
    if wall:
        yield _WALL, wall
    if speed.seconds:
        yield _SPEED, speed.tokens / speed.seconds
    if last is not None:
        yield _LAST, last


def compared_kinds(before: Sample, after: Sample) -> list[FigureKind]:
    """Return the figures to compare, without those that are 0 in both runs, and of each family the most frequent."""
    amounts: dict[FigureKind, float] = {}
    for kind in [*before.figures, *after.figures]:
        amounts[kind] = sum(sum(map(abs, sample.figures[kind].units[0])) for sample in (before, after))
    members: dict[str, dict[str, float]] = defaultdict(dict)
    for kind, amount in amounts.items():
        if kind.family:
            members[kind.family][kind.member] = max(amount, members[kind.family].get(kind.member, 0.0))
    kept = {
        (family, member)
        for family, found in members.items()
        for member in sorted(found, key=lambda name: -found[name])[:MAX_NAMES]
    }
    kinds = [
        kind for kind, amount in amounts.items() if amount and (not kind.family or (kind.family, kind.member) in kept)
    ]
    first = (REWARD, _LAST_REWARD, SOLVED, _LAST_SOLVED)
    return sorted(kinds, key=lambda kind: first.index(kind) if kind in first else len(first))
