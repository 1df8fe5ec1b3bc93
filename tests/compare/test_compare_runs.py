"""Two runs compared: how often equal ones seem to differ, and that a worse one is seen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from otel_rollout.facts import TrajectorySummary
from otel_rollout.look.compare import Comparison, Side, compare_runs
from tests.compare.made import MadeRun, Shape, made_run

SEEDS = 40


def side(summaries: list[TrajectorySummary], name: str = "run") -> Side:
    run: Any = MadeRun(summaries)
    return Side(run, run.steps(), name)


@cache
def compared(
    seed: int, *, other_data: bool = False, before: Shape | None = None, after: Shape | None = None, **options: Any
) -> Comparison:
    """Compare two runs of other seeds, on the same prompts unless `other_data`."""
    first = made_run(seed, 1, before)
    second = made_run(seed + 10_000, 2, after, 1000) if other_data else made_run(seed, 2, after)
    return compare_runs(side(first), side(second), **options)


def figure(comparison: Comparison, name: str) -> Any:
    return next(each for part in comparison.parts for each in part.figures if each.name == name)


class TestEqualRuns:
    """Two runs of the same policy."""

    @pytest.mark.slow
    @pytest.mark.parametrize("other_data", [False, True])
    def test_rarely_seem_to_differ(self, other_data):
        """Of 40 pairs at most 5 have a figure that seems changed: at 5% more do in one of 70 trials."""
        alarms = [
            seed
            for seed in range(SEEDS)
            if any(each.verdict for part in compared(seed, other_data=other_data).parts for each in part.figures)
        ]
        assert len(alarms) <= 5

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["reward", "output_tokens", "seconds", "tools.search.errors", "zero_variance"])
    def test_have_intervals_that_hold_0(self, name):
        """Of 40 intervals at 95% 33 or more hold no change: fewer do in one of 300 trials."""
        found = [figure(compared(seed, other_data=False), name) for seed in range(SEEDS)]
        assert sum(each.low <= 0 <= each.high for each in found) >= 33

    def test_of_one_seed_have_no_change_at_all(self):
        """Each change of a copied run is 0, and its p is 1."""
        summaries = made_run(1, 1)
        comparison = compare_runs(side(summaries), side(summaries))
        assert {(each.change, each.p) for part in comparison.parts for each in part.figures} == {(0.0, 1.0)}
        assert comparison.worse == comparison.gone == comparison.new == ()


class TestWorseRun:
    """A run that is worse."""

    @pytest.mark.parametrize(
        ("after", "name"),
        [
            (Shape(gain=-1.0), "reward"),
            (Shape(gain=-1.0), "solved"),
            (Shape(failures=0.25), "tools.search.errors"),
            (Shape(slow=2.0), "seconds"),
            (Shape(slow=2.0), "wall_seconds"),
        ],
    )
    def test_is_seen_on_the_same_prompts(self, after, name):
        """The figure is worse, and the run with it, for four of five seeds or more."""
        comparisons = [compared(seed, after=after) for seed in range(5)]
        assert sum(figure(each, name).verdict == "worse" for each in comparisons) >= 4
        assert sum(bool(each.worse) for each in comparisons) >= 4

    def test_is_seen_on_other_prompts(self):
        """Without pairs, a fall of the reward by half is seen."""
        comparison = compared(1, other_data=True, after=Shape(gain=-2.5))
        (part,) = comparison.parts
        assert (part.is_paired, part.flip_p, part.gained, part.lost) == (False, None, (), ())
        assert figure(comparison, "reward").verdict == "worse"

    def test_is_seen_with_huge_rewards(self):
        """A fall is seen, also if no double holds the squares of the rewards."""
        before, after = (
            [replace(each, reward=factor * (each.reward or 0.0)) for each in made_run(seed, seed, None, 1000 * seed)]
            for seed, factor in ((1, 1e300), (2, -1e300))
        )
        assert figure(compare_runs(side(before), side(after)), "reward").verdict == "worse"

    def test_that_falls_at_the_end_is_seen(self):
        """The last third of the steps has figures of its own."""
        fallen = [replace(each, reward=0.0) if each.step > 6 else each for each in made_run(1, 2)]
        comparison = compare_runs(side(made_run(1, 1)), side(fallen))
        assert figure(comparison, "reward.last").verdict == "worse"
        assert figure(comparison, "reward.last").after == 0.0

    def test_is_not_worse_within_the_margin(self):
        """A significant change below the margin doesn't count."""
        assert compared(1, after=Shape(failures=0.25), margin=0.02).worse == ("errors of search",)
        assert compared(1, after=Shape(failures=0.25), margin=0.5).worse == ()

    def test_one_figure_is_not_adjusted_for_the_others(self):
        """The probability of the only judged figure is its own: each of the others would have made it larger."""
        name = "tools.search.errors"
        shape = Shape(failures=0.04)
        alone, among = (figure(compared(3, after=shape, judged=names), name) for names in ((name,), ()))
        assert 0 < alone.p < among.p
        assert (alone.change, alone.low, alone.high) == (among.change, among.low, among.high)


class TestFlips:
    """Prompts that one run solves and the other doesn't."""

    def test_are_named_with_their_counts(self):
        """A prompt that fails in the second run is lost, with the rollouts and the last step of each run."""
        failing = [replace(each, reward=0.0) if each.sample_index < 24 else each for each in made_run(1, 1)]
        comparison = compare_runs(side(made_run(1, 1)), side(failing))
        (part,) = comparison.parts
        assert part.lost
        assert not part.gained
        flip = part.lost[0]
        assert flip.sample_index < 24
        assert (flip.prompt, flip.after) == (f"task {flip.sample_index}", 0.0)
        assert flip.before > 0.5
        assert flip.rollouts[0] == flip.rollouts[1]
        assert flip.steps[0] == flip.steps[1]
        assert part.flip_p < 0.05
        assert "prompts that are no longer solved" in comparison.worse

    def test_have_the_exact_probability(self):
        """Six that are lost of six have a probability of 2/64; half of the chance of an error is for rewards."""
        low = [replace(each, reward=float(each.sample_index < 6)) for each in made_run(1, 1)]
        none = [replace(each, reward=float(each.sample_index == 40)) for each in low]
        (part,) = compare_runs(side(low), side(none)).parts
        assert (len(part.lost), len(part.gained)) == (6, 1)
        p = 2 * sum([1, 7]) / 2**7
        assert part.flip_p >= min(1.0, 2 * p)


class TestFigures:
    """Which figures are compared."""

    def test_follow_from_the_table_of_facts(self):
        """Numbers are figures, and so are numbers by name: parts of the reward, tools, odd results."""
        told = [
            replace(each, reward_parts={"format": 0.5}, odd_results={"search": 1}, fate="stale", input_tokens=9)
            for each in made_run(1, 1)
        ]
        comparison = compare_runs(side(told), side(told))
        names = {each.name for each in comparison.parts[0].figures}
        assert names >= {
            "reward",
            "reward.last",
            "solved",
            "reward_parts.format",
            "tools.search.calls",
            "tools.search.errors",
            "odd_results.search",
            "fate.stale",
            "input_tokens",
            "output_tokens.p99",
            "wall_seconds",
        }
        assert not names & {"step", "start_time", "late", "min_weights_version", "repeated_calls"}

    def test_that_no_run_has_are_left_out(self):
        """What is 0 in both runs is no figure."""
        assert "cancelled" not in {each.name for each in compared(1).parts[0].figures}

    def test_of_very_many_tools_are_the_most_called(self):
        """A model that invents tools doesn't add a figure with each."""
        told = [
            replace(each, tools={**each.tools, f"tool{number % 40}": next(iter(each.tools.values()))})
            for number, each in enumerate(made_run(1, 1))
        ]
        comparison = compare_runs(side(told), side(told))
        calls = [each.name for each in comparison.parts[0].figures if each.name.endswith(".calls")]
        assert len(calls) == 16
        assert "tools.search.calls" in calls

    @pytest.mark.parametrize(("steps", "has"), [(5, False), (6, True)])
    def test_of_the_last_steps_need_six(self, steps, has):
        """With fewer there is no end of its own."""
        shape = Shape(steps=steps)
        names = {each.name for each in compared(1, before=shape, after=shape).parts[0].figures}
        assert ("reward.last" in names) == has


class TestTooFew:
    """Runs that are too small to tell."""

    def test_prompts_are_named(self):
        """Fewer than eight prompts have no interval, and a line says so."""
        tiny = Shape(steps=2, prompts=4, pool=4)
        (part,) = compared(1, before=tiny, after=tiny).parts
        assert part.figures == ()
        needs = {each.title: each.needs for each in part.too_few}
        assert needs["reward"] == needs["solved"] == "8 prompts"
        assert needs["p99 of turns"] == needs["wall time of a step"] == "8 prompts and 4 steps"

    def test_durations_need_four_steps(self):
        """The trajectories of a step share its machine: three steps say nothing of how steps differ."""
        short = Shape(steps=3)
        (part,) = compared(1, before=short, after=short).parts
        assert not {"seconds", "llm_seconds", "wall_seconds"} & {each.name for each in part.figures}
        assert "reward" in {each.name for each in part.figures}


class TestSteps:
    """The steps that are compared."""

    def test_are_those_of_both(self):
        """A longer run is compared as far as the other one goes."""
        (part,) = compared(1, after=Shape(steps=5)).parts
        assert part.steps == (1, 2, 3, 4, 5)

    def test_are_all_if_asked_for(self):
        """`all_steps` takes the rest too."""
        (part,) = compared(1, after=Shape(steps=5), all_steps=True).parts
        assert part.steps == tuple(range(1, 9))

    def test_of_validation_are_a_part_of_their_own(self):
        """Training is not mixed with validation."""

        def make(seed: int) -> list[TrajectorySummary]:
            found = made_run(1, seed)
            return [replace(each, validate=each.step % 2 == 0, trace_id=f"{seed}{each.trace_id[1:]}") for each in found]

        comparison = compare_runs(side(make(1)), side(make(2)))
        assert [(part.validate, part.steps) for part in comparison.parts] == [
            (False, (1, 3, 5, 7)),
            (True, (2, 4, 6, 8)),
        ]
