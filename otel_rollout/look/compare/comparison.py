"""Compares two runs: each figure with its interval, the prompts that flipped, the findings that are gone and new."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_rollout.catalog import Run, StepSummary
from otel_rollout.facts.amounts import mean_of
from otel_rollout.look.compare.figures import REWARD, SECONDS, SHARE, SOLVED, FigureKind, Sample, compared_kinds
from otel_rollout.look.compare.statistics import (
    LEAST_STEPS,
    LEAST_UNITS,
    LEVEL,
    Estimate,
    holm,
    paired,
    sign_test,
    unpaired,
)
from otel_rollout.look.findings import Finding, Severity, diagnose_run, running_steps
from otel_rollout.look.findings.reward_level import scale_of

DEFAULT_MARGIN: Final = 0.02
_MATCHED: Final = 0.5
"""The part of the smaller run's prompts that both must have, so that prompts are compared in pairs."""
_HALF: Final = 0.5
_FLIPS: Final = "flips"
_OF_PROMPTS: Final = f"{LEAST_UNITS} prompts"
_OF_BOTH: Final = f"{LEAST_UNITS} prompts and {LEAST_STEPS} steps"
_LEAST_FOR_END: Final = 6
"""The fewest steps whose last third is compared too."""


@dataclass(frozen=True)
class Side:
    """One of the two runs.

    Args:
        run: The folders that have it.
        steps: Its steps, of one experiment and one run.
        folder: The folder's name, as it was given.
    """

    run: Run
    steps: Sequence[StepSummary]
    folder: str

    @property
    def experiment(self) -> str | None:
        """Its experiment."""
        return self.steps[0].experiment_name if self.steps else None

    @property
    def run_id(self) -> str | None:
        """Its run, if several runs of the experiment have the same steps."""
        return self.steps[0].run_id if self.steps else None

    @property
    def name(self) -> str:
        """The folder, the experiment and the run, as far as they are known."""
        return " · ".join(filter(None, (self.folder, self.experiment, self.run_id and f"run {self.run_id[:8]}")))


@dataclass(frozen=True)
class Figure:
    """The change of a figure.

    Args:
        name: Its name: a fact's, and the name of its part, such as `tools.search.errors`.
        title: Its name in words.
        unit: Its unit; `share` is between 0 and 1.
        better: The side that is better: `higher`, `lower` or `neither`.
        before: The mean of the first run.
        after: The mean of the second.
        change: The second minus the first.
        low: The lower end of the change's 95% interval.
        high: The upper end.
        p: The probability of such a change without a cause, adjusted for the number of figures that are judged.
        units: The number of prompts, or steps, that it is a mean of; without pairs the lower one.
        over: `prompts that both have`, `prompts`, or `steps`.
        verdict: `better`, `worse` or `other` for a change that is significant and above the margin; else empty.
    """

    name: str
    title: str
    unit: str
    better: str
    before: float
    after: float
    change: float
    low: float
    high: float
    p: float
    units: int
    over: str
    verdict: str = ""


@dataclass(frozen=True)
class TooSmall:
    """A figure that is not compared, as there is too little of it.

    Args:
        name: Its name.
        title: Its name in words.
        needs: The least amount of it that both runs must have.
    """

    name: str
    title: str
    needs: str


@dataclass(frozen=True)
class Flip:
    """A prompt that is solved in one run and not in the other; solved: more than half of its rollouts are.

    Args:
        sample_index: The prompt's number in the dataset.
        prompt: Its first line.
        before: The share of solved rollouts in the first run.
        after: The same in the second.
        rollouts: The number of rollouts with a reward of the first and the second.
        steps: The last step of each run that has it.
    """

    sample_index: int | str | None
    prompt: str
    before: float
    after: float
    rollouts: tuple[int, int]
    steps: tuple[int | None, int | None]


@dataclass(frozen=True)
class Part:
    """The comparison of training, or of validation.

    Args:
        validate: True for validation.
        steps: The steps that are compared.
        prompts: The number of prompts that both have, that only the first has, and that only the second has.
        is_paired: True if figures are compared on prompts that both have.
        figures: The figures.
        gained: The prompts that only the second run solves, the clearest first.
        lost: Those that only the first solves.
        flip_p: The probability of counts as uneven as these; None without prompts in pairs.
        too_few: The figures that are not compared, as there is too little of them.
    """

    validate: bool
    steps: tuple[int | None, ...]
    prompts: tuple[int, int, int]
    is_paired: bool
    figures: tuple[Figure, ...]
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]
    flip_p: float | None
    too_few: tuple[TooSmall, ...]


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs.

    Args:
        before: The first run's name.
        after: The second run's.
        parts: Training and validation, as far as both have them.
        gone: The findings that only the first run has.
        new: Those that only the second has.
        worse: The reasons for which the second run is worse; none if nothing shows it.
        left_out: The steps that are being written, and so not compared, in words.
    """

    before: str
    after: str
    parts: tuple[Part, ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    worse: tuple[str, ...]
    left_out: tuple[str, ...]


def compare_runs(
    before: Side,
    after: Side,
    *,
    all_steps: bool = False,
    margin: float = DEFAULT_MARGIN,
    judged: Collection[str] = (),
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Compare two runs.

    Args:
        before: The first.
        after: The second.
        all_steps: Compare all steps of both, not only those that both have.
        margin: The least change that counts: of a reward by its scale, of a share by 1, of another figure by the mean
            of the first run.
        judged: The names of the only figures and findings that make the second run worse; by default all figures, and
            findings that are errors.
        on_step: Called with the number of steps that are read, and of all.
    """
    sides = before, after
    wanted = [_chosen(own.steps, other.steps, all_steps=all_steps) for own, other in (sides, sides[::-1])]
    running = [{each.identity for each in running_steps(side.run, side.run.steps())} for side in sides]
    ended = [[step for step in side.steps if step.identity not in running[at]] for at, side in enumerate(sides)]
    left_out = [
        f"{'validation of ' if step.validate else ''}step {step.step} of {'AB'[at]}"
        for at in range(2)
        for step in wanted[at]
        if step.identity in running[at]
    ]
    chosen = [_chosen(own, other, all_steps=all_steps) for own, other in (ended, ended[::-1])]
    scale = scale_of([*chosen[0], *chosen[1]])
    total, done = sum(map(len, chosen)), 0
    samples: dict[tuple[int, bool], Sample] = {}
    for at, side in enumerate(sides):
        for step in chosen[at]:
            on_step(done, total)
            sample = samples.setdefault((at, step.validate), Sample(scale, _last_steps(chosen, validate=step.validate)))
            sample.add(step, side.run.summaries(step), side.run.groups(step))
            done += 1
    on_step(total, total)
    parts = [
        _part(validate, samples[0, validate], samples[1, validate])
        for validate in (False, True)
        if (0, validate) in samples and (1, validate) in samples
    ]
    parts = _judged(parts, scale.size if scale else 1.0, margin, judged)
    gone, new = _findings(before, after, *chosen)
    worse = tuple(_reasons(parts, new, judged))
    return Comparison(before.name, after.name, tuple(parts), gone, new, worse, tuple(left_out))


def narrowed(comparison: Comparison, names: Collection[str]) -> Comparison:
    """Return a comparison with only the figures and findings of these names; prompts that flipped are of `solved`."""
    parts = [
        replace(
            part,
            figures=tuple(each for each in part.figures if each.name in names),
            too_few=tuple(each for each in part.too_few if each.name in names),
        )
        for part in comparison.parts
    ]
    if SOLVED.name not in names:
        parts = [replace(part, gained=(), lost=(), flip_p=None) for part in parts]
    gone, new = (tuple(each for each in found if each.check in names) for found in (comparison.gone, comparison.new))
    return replace(comparison, parts=tuple(parts), gone=gone, new=new)


def sides_of(run: Run, folder: str, steps: Iterable[StepSummary] | None = None) -> list[Side]:
    """Return each experiment and run of folders, in the order of their starts.

    Args:
        run: The folders.
        folder: Their name.
        steps: The steps to compare; None for all.
    """
    found: dict[tuple[str | None, str | None], list[StepSummary]] = {}
    for step in run.steps() if steps is None else steps:
        found.setdefault((step.experiment_name, step.run_id), []).append(step)
    return [
        Side(run, own, folder) for own in sorted(found.values(), key=lambda own: min(step.start_time for step in own))
    ]


def _chosen(own: Sequence[StepSummary], other: Sequence[StepSummary], *, all_steps: bool) -> list[StepSummary]:
    theirs = {(step.step, step.validate) for step in other}
    return [step for step in own if all_steps or (step.step, step.validate) in theirs]


def _last_steps(chosen: Sequence[Sequence[StepSummary]], *, validate: bool) -> frozenset[int | None]:
    """Return the last third of the steps that both have; nothing of few steps."""
    one, other = ({step.step for step in steps if step.validate == validate} for steps in chosen)
    common = sorted(step for step in one & other if step is not None)
    return frozenset(common[-(len(common) // 3) :] if len(common) >= _LEAST_FOR_END else ())


def _part(validate: bool, before: Sample, after: Sample) -> Part:
    places = {prompt.key: at for at, prompt in enumerate(after.prompts) if prompt.sample_index is not None}
    pairs = {at: places[prompt.key] for at, prompt in enumerate(before.prompts) if prompt.key in places}
    least = min(len(before.prompts), len(after.prompts))
    is_paired = len(pairs) >= max(LEAST_UNITS, _MATCHED * least)
    figures: list[Figure] = []
    too_few: list[TooSmall] = []
    for kind in compared_kinds(before, after):
        figure = _figure(kind, before, after, pairs if is_paired else None)
        if figure is not None:
            figures.append(figure)
        elif before.means(kind) or after.means(kind):
            too_few.append(TooSmall(kind.name, kind.title, _OF_BOTH if kind.unit == SECONDS else _OF_PROMPTS))
    of_steps = []
    for kind in dict.fromkeys([*before.step_figures, *after.step_figures]):
        one, other = before.step_figures[kind], after.step_figures[kind]
        common = [step for step in one if step in other]
        estimate = paired([(one[step], other[step]) for step in common], LEAST_STEPS)
        if estimate is None:
            too_few.append(TooSmall(kind.name, kind.title, _OF_BOTH))
        elif any(one[step] or other[step] for step in common):
            means = [mean_of([steps[step] for step in common]) for steps in (one, other)]
            of_steps.append(_as_figure(kind, means, estimate, len(common), "steps"))
    gained, lost = _flips(before, after, pairs) if is_paired else ([], [])
    steps = {step.step for step in before.steps} | {step.step for step in after.steps}
    return Part(
        validate=validate,
        steps=tuple(sorted(steps, key=lambda step: (step is None, step or 0))),
        prompts=(len(pairs), len(before.prompts) - len(pairs), len(after.prompts) - len(pairs)),
        is_paired=is_paired,
        figures=(*figures, *of_steps),
        gained=tuple(gained),
        lost=tuple(lost),
        flip_p=sign_test(len(gained), len(lost)) if is_paired else None,
        too_few=tuple(too_few),
    )


def _figure(kind: FigureKind, before: Sample, after: Sample, pairs: Mapping[int, int] | None) -> Figure | None:
    one, other = before.means(kind), after.means(kind)
    if pairs is not None:
        both = [(one[at], other[place]) for at, place in pairs.items() if at in one and place in other]
        estimate = paired(both, LEAST_UNITS)
        units, over = len(both), "prompts that both have"
        means = [mean_of(values) for values in zip(*both, strict=True)]
    else:
        values = [*one.values()], [*other.values()]
        estimate = unpaired(*values, LEAST_UNITS)
        units, over = min(map(len, values)), "prompts"
        means = [mean_of(found) for found in values if found]
    if estimate is None:
        return None
    if kind.unit == SECONDS:
        one_step, other_step = before.step_means(kind), after.step_means(kind)
        of_steps = paired(
            [(mean, other_step[step]) for step, mean in one_step.items() if step in other_step], LEAST_STEPS
        )
        if of_steps is None:
            return None
        estimate = estimate.with_error_of(of_steps)
    return _as_figure(kind, means, estimate, units, over)


def _as_figure(kind: FigureKind, means: Sequence[float], estimate: Estimate, units: int, over: str) -> Figure:
    before, after = means
    return Figure(
        kind.name,
        kind.title,
        kind.unit,
        kind.better,
        before,
        after,
        estimate.change,
        estimate.low,
        estimate.high,
        estimate.p,
        units,
        over,
    )


def _flips(before: Sample, after: Sample, pairs: Mapping[int, int]) -> tuple[list[Flip], list[Flip]]:
    one, other = before.means(SOLVED), after.means(SOLVED)
    rollouts = [sample.figures[SOLVED].units[1] for sample in (before, after)]
    gained: list[Flip] = []
    lost: list[Flip] = []
    for at, place in pairs.items():
        if at in one and place in other and (one[at] > _HALF) != (other[place] > _HALF):
            prompt, now = before.prompts[at], after.prompts[place]
            counts = int(rollouts[0][at]), int(rollouts[1][place])
            flip = Flip(now.sample_index, now.text, one[at], other[place], counts, (prompt.step, now.step))
            (gained if flip.after > flip.before else lost).append(flip)
    return sorted(gained, key=_size), sorted(lost, key=_size)


def _size(flip: Flip) -> float:
    return -abs(flip.after - flip.before)


def _judged(parts: Sequence[Part], scale: float, margin: float, judged: Collection[str]) -> list[Part]:
    """Return the parts with adjusted probabilities and verdicts."""
    adjusted = _adjusted(parts, judged)
    return [
        replace(
            part,
            figures=tuple(
                _with_verdict(each, adjusted[key], scale, margin)
                if (key := (part.validate, each.name)) in adjusted
                else each
                for each in part.figures
            ),
            flip_p=adjusted.get((part.validate, _FLIPS)),
        )
        for part in parts
    ]


def _adjusted(parts: Sequence[Part], judged: Collection[str]) -> dict[tuple[bool, str], float]:
    """Return p-values adjusted for their number: rewards have half of the chance of an error, all others the rest."""
    outcomes: dict[tuple[bool, str], float] = {}
    others: dict[tuple[bool, str], float] = {}
    for part in parts:
        for each in part.figures:
            if judged and each.name not in judged:
                continue
            family = outcomes if each.name.partition(".")[0] in (REWARD.name, SOLVED.name) else others
            family[part.validate, each.name] = each.p
        if part.flip_p is not None and (not judged or SOLVED.name in judged):
            outcomes[part.validate, _FLIPS] = part.flip_p
    families = [family for family in (outcomes, others) if family]
    return {
        key: min(1.0, len(families) * p)
        for family in families
        for key, p in zip(family, holm([*family.values()]), strict=True)
    }


def _with_verdict(figure: Figure, p: float, scale: float, margin: float) -> Figure:
    sizes = {REWARD.name: scale, SHARE: 1.0}
    size = sizes.get(figure.name, sizes.get(figure.unit, abs(figure.before)))
    if p >= 1 - LEVEL or abs(figure.change) < margin * size:
        return replace(figure, p=p)
    if figure.better == "neither":
        return replace(figure, p=p, verdict="other")
    return replace(figure, p=p, verdict="better" if (figure.change > 0) == (figure.better == "higher") else "worse")


def _findings(
    before: Side, after: Side, earlier: Sequence[StepSummary], later: Sequence[StepSummary]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that are gone and those that are new."""
    old = diagnose_run(before.run, earlier, folder=before.folder)
    new = diagnose_run(after.run, later, against=before.run.judged(earlier), folder=after.folder)
    known = {_key(each) for each in old.findings}
    found = {_key(each) for each in new.findings}
    gone = (each for each in old.findings if _key(each) not in found)
    return tuple(gone), tuple(each for each in new.findings if _key(each) not in known)


def _key(finding: Finding) -> tuple[str, str, bool]:
    return finding.check, finding.subject, finding.validate


def _reasons(parts: Iterable[Part], new: Iterable[Finding], judged: Collection[str]) -> Iterator[str]:
    for part in parts:
        where = " in validation" if part.validate else ""
        for figure in part.figures:
            if figure.verdict == "worse" and (not judged or figure.name in judged):
                yield f"{figure.title}{where}"
        is_uneven = part.flip_p is not None and part.flip_p < 1 - LEVEL and len(part.lost) > len(part.gained)
        if is_uneven and (not judged or SOLVED.name in judged):
            yield f"prompts that are no longer solved{where}"
    for finding in new:
        if finding.check in judged if judged else finding.severity is Severity.ERROR:
            yield f"finding: {finding.title}"
