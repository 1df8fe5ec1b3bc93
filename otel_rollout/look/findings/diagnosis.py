"""Runs all checks over step summaries, and takes evidence from the steps that need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from otel_rollout.catalog.failure_class import BLAMES, FAILURE_CLASSES
from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.step_figures import prompt_key
from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.catalog.step_summary import StepIdentity, StepSummary
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents
from otel_rollout.look.findings.finding import Evidence, Finding, TooFew, evidence_of
from otel_rollout.look.findings.over_steps import LEAST_STEPS, comparable_steps
from otel_rollout.look.findings.registry import CHECKS, default_thresholds

MAX_EVIDENCE: Final = 5
_MAX_PROOFS: Final = 1024
MAX_SUBJECTS: Final = 5
"""The most findings of one check in one run: a model invents any number of tools."""

Load = Callable[[JudgedStep], Sequence[TrajectorySummary]]
_Measures = Sequence[tuple[JudgedStep, Measure]]
Step = TypeVar("Step", bound=StepIdentity)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of all checks.

    Args:
        steps: The number of steps that were checked, validation passes included.
        trajectories: The number of their trajectories.
        looked_at: Those that `two_sides` looked at; it needs more than the index of some, and reads 2,048 at most.
        findings: The checks that are above their threshold, the gravest first.
        gone: The findings of the step or folder that this is compared with, if they are not among these.
        too_few: The checks that are above their threshold, in steps too small to be sure.
        failures: The trajectories that failed, by class of failure.
        thresholds: All thresholds.
    """

    steps: int
    trajectories: int
    looked_at: int
    findings: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    too_few: tuple[TooFew, ...]
    failures: Mapping[str, int]
    thresholds: Mapping[str, float]

    @property
    def blames(self) -> dict[str, int]:
        """The failed trajectories by who is to blame: `model`, `environment`, or `unresolved`."""
        sums = {blame: sum(self.failures.get(name, 0) for name in names) for blame, names in BLAMES.items()}
        return {blame: number for blame, number in sums.items() if number}

    @property
    def looked_at_note(self) -> str:
        """A sentence on the trajectories that were looked at; empty if all were."""
        if self.looked_at == self.trajectories:
            return ""
        return f"two_sides looked at {self.looked_at:,} of {self.trajectories:,} trajectories, spread over the steps"

    @property
    def unknown_share(self) -> float | None:
        """The share of failures without a known cause; None without failures."""
        total = sum(self.failures.values())
        return self.failures.get("unknown", 0) / total if total else None


class _Found(NamedTuple):
    """The measurements of one check and subject in one run, by step."""

    check: Check
    run: Sequence[JudgedStep]
    measures: _Measures
    onset: int | None

    @property
    def worst(self) -> tuple[JudgedStep, Measure]:
        """The step with the highest value, and its measurement."""
        return max(self.measures, key=lambda each: each[1].value)


def diagnose(
    steps: Sequence[JudgedStep],
    load: Load,
    *,
    thresholds: Mapping[str, float] | None = None,
    against: Sequence[JudgedStep] | None = None,
    folder: str | None = None,
    running: Iterable[StepIdentity] = (),
) -> Diagnosis:
    """Run all checks.

    Args:
        steps: The steps; each experiment and run is checked separately.
        load: Returns the trajectories of a step; called for the steps that evidence is taken from.
        thresholds: Thresholds other than the defaults.
        against: The steps to compare with.
        folder: The folder for the commands of evidence; None for the default one.
        running: The steps that are being written: their trajectories without a root may be running.
    """
    limits = {**default_thresholds(), **(thresholds or {})}
    is_running = {each.identity for each in running}
    before = _highest(against) if against is not None else None
    found = list(_find(steps, limits, is_running))
    evidence = _evidence(found, load, folder)
    findings = [
        _finding(each, limits, before, proofs)
        for each, proofs in zip(found, evidence, strict=True)
        if proofs is not None
    ]
    keys = {_key(each) for each in findings}
    earlier = [
        _finding(each, limits, None, ())
        for each in _find(against or (), limits)
        if _can_tell(steps, each.check, each.run)
    ]
    return Diagnosis(
        steps=len(steps),
        trajectories=sum(step.trajectories for step in steps),
        looked_at=sum(step.looked_at for step in steps),
        findings=tuple(sorted(findings, key=lambda each: each.severity.value)),
        gone=tuple(each for each in earlier if _key(each) not in keys),
        too_few=_too_few(steps, limits, is_running, keys),
        failures={
            name: count
            for name in FAILURE_CLASSES
            if (count := sum(step.signals.failures.get(name, 0) for step in steps))
        },
        thresholds=limits,
    )


def last_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the last step of each run, and its last validation: those that a live run writes."""
    return [run[-1] for run in _runs(steps)]


def _find(steps: Sequence[JudgedStep], limits: Mapping[str, float], running: Container[Any] = ()) -> Iterator[_Found]:
    for check, run, values in _by_subject(steps, running):
        above = {
            subject: proven
            for subject, measures in values.items()
            if (proven := _proven(check, measures, limits[check.name]))
        }
        subjects = sorted(above, key=lambda name: (-sum(each.number for _, each in above[name]), name))
        for subject in subjects[:MAX_SUBJECTS]:
            yield _Found(check, run, above[subject], _onset(values[subject], above[subject]))


def _by_subject(
    steps: Sequence[JudgedStep], running: Container[Any] = ()
) -> Iterator[tuple[Check, Sequence[JudgedStep], Mapping[str, _Measures]]]:
    """Yield the measurements of each check in each run, by subject."""
    for run in _runs(steps):
        for check in CHECKS:
            values: dict[str, list[tuple[JudgedStep, Measure]]] = {}
            for step, measure in _measure(check, run, running):
                values.setdefault(measure.subject, []).append((step, measure))
            yield check, run, values


def _proven(check: Check, measures: _Measures, limit: float) -> _Measures:
    """Return the measurements above a threshold; none if neither a step nor the run is large enough to be sure."""
    above = [each for each in measures if each[1].value > limit]
    large = [each for each in above if each[1].total >= check.least]
    if any(measure.is_sure(limit) for _, measure in large):
        return large
    pooled = Measure.pooled([measure for _, measure in measures])
    is_sure = pooled.value > limit and pooled.total >= check.least and pooled.is_sure(limit)
    return (large or above) if is_sure else []


def _onset(values: _Measures, above: _Measures) -> int | None:
    """Return the first step of a finding; steps before it that have half as much or more belong to it."""
    first = above[0]
    if first[1].compared:
        return first[1].onset
    near = sum(measure.value for _, measure in above) / len(above) / 2
    at = next(place for place, (step, _) in enumerate(values) if step is first[0])
    while at and values[at - 1][1].value > near:
        at -= 1
    return values[at][0].step


def _too_few(
    steps: Sequence[JudgedStep],
    limits: Mapping[str, float],
    running: Container[Any],
    found: Container[tuple[str, str, bool]],
) -> tuple[TooFew, ...]:
    largest: dict[tuple[str, str, bool], tuple[Check, Measure]] = {}
    for check, run, values in _by_subject(steps, running):
        for subject, measures in values.items():
            key = (check.name, subject, run[0].validate)
            above = [measure for _, measure in measures if measure.value > limits[check.name]]
            most = max(above, key=lambda each: each.total, default=None)
            if most and key not in found and (key not in largest or most.total > largest[key][1].total):
                largest[key] = check, most
    counts: Counter[str] = Counter()
    kept = []
    for (name, _, validate), (check, measure) in sorted(largest.items(), key=lambda each: -each[1][1].number):
        counts[name] += 1
        if counts[name] <= MAX_SUBJECTS:
            value, text = measure.value, check.threshold.text(measure.value)
            least = max(check.least, measure.needed(limits[name]))
            kept.append(TooFew(name, _title(check, measure), validate, value, text, measure.total, least))
    return tuple(kept)


def _title(check: Check, measure: Measure) -> str:
    return check.name.replace("_", " ") + (f": {measure.name}" if measure.subject else "")


def _runs(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps of each run of each experiment, training and validation apart, in order."""
    runs: dict[tuple[str | None, str | None, bool], list[Step]] = {}
    for step in steps:
        runs.setdefault((step.experiment_name, step.run_id, step.validate), []).append(step)
    return [sorted(run, key=lambda step: (step.step is None, step.step or 0)) for run in runs.values()]


def _measure(
    check: Check, run: Sequence[JudgedStep], running: Container[Any] = ()
) -> Iterator[tuple[JudgedStep, Measure]]:
    if run[0].validate and not check.in_validation:
        return
    if check.is_final:
        run = [step for step in run if step.identity not in running]
    if check.in_run is not None:
        yield from check.in_run(run)
    elif check.in_step is not None:
        for step in run:
            for measure in check.in_step(step):
                yield step, measure
    elif check.over_steps is not None and not run[0].validate:
        for measure in check.over_steps(comparable_steps(run)):
            yield measure.compared[-1], measure


def _highest(steps: Sequence[JudgedStep]) -> dict[tuple[str, str, bool], float]:
    """Return the highest value of each check and subject, whether it is above the threshold or not."""
    highest: dict[tuple[str, str, bool], float] = {}
    for check, run, values in _by_subject(steps):
        for subject, measures in values.items():
            key = (check.name, subject, run[0].validate)
            known = [highest[key]] if key in highest else []
            highest[key] = max([*known, *(measure.value for _, measure in measures)])
    return highest


def _evidence(found: Sequence[_Found], load: Load, folder: str | None) -> list[tuple[Evidence, ...] | None]:
    """Return the evidence of each, from its worst step, or None if that refutes it; one step at a time is loaded."""
    by_step: dict[int, list[int]] = {}
    for position, each in enumerate(found):
        by_step.setdefault(id(each.worst[0]), []).append(position)
    evidence: list[tuple[Evidence, ...] | None] = [None] * len(found)
    for positions in by_step.values():
        step = found[positions[0]].worst[0]
        contents = StepContents(step, load(step))
        for position in positions:
            check, (_, measure) = found[position].check, found[position].worst
            if check.is_confirmed(contents, measure):
                proofs = _of_many_prompts(
                    each
                    for each in check.evidence(contents, measure.subject)
                    if not measure.prompts or prompt_key(each) in measure.prompts
                )
                evidence[position] = tuple(evidence_of(each, folder=folder, run_id=step.run_id) for each in proofs)
    return evidence


def _of_many_prompts(proofs: Iterable[TrajectorySummary]) -> list[TrajectorySummary]:
    """Return the first proofs, of as many prompts as there are."""
    first: dict[object, TrajectorySummary] = {}
    others: list[TrajectorySummary] = []
    for each in islice(proofs, _MAX_PROOFS):
        if first.setdefault(each.sample_index, each) is not each and len(others) < MAX_EVIDENCE:
            others.append(each)
        if len(first) == MAX_EVIDENCE:
            break
    return [*first.values(), *others][:MAX_EVIDENCE]


def _finding(
    found: _Found,
    limits: Mapping[str, float],
    before: Mapping[tuple[str, str, bool], float] | None,
    evidence: tuple[Evidence, ...],
) -> Finding:
    check, run, measures, onset = found
    worst_step, worst = found.worst
    number, total = sum(each.number for _, each in measures), sum(each.total for _, each in measures)
    subject, first = worst.subject, run[0]
    earlier = None if before is None else _value_before(before, check, subject, validate=first.validate)
    detail = worst.detail
    if detail and any(each.detail != detail for _, each in measures):
        detail = f"in step {worst_step.step}, {detail}"
    return Finding(
        check=check.name,
        title=_title(check, worst),
        subject=subject,
        severity=check.severity,
        experiment_name=first.experiment_name,
        run_id=first.run_id,
        validate=first.validate,
        steps=(worst.compared[0].step, worst.compared[-1].step)
        if worst.compared
        else tuple(step.step for step, _ in measures),
        onset=onset,
        compares_steps=check.over_steps is not None,
        number=number,
        total=total,
        share=number / total if total else 0.0,
        value=worst.value,
        threshold=limits[check.name],
        before=earlier,
        measured=("up to " if any(each.value < worst.value for _, each in measures) else "")
        + _measured(check, worst.value, limits[check.name], earlier),
        meaning=check.sentence(worst._replace(number=number, total=total, detail=detail)),
        advice=check.advice,
        evidence=evidence,
    )


def _can_tell(steps: Sequence[JudgedStep], check: Check, other: Sequence[JudgedStep]) -> bool:
    """Return True if a check that another run was found by looks at these steps, too."""
    runs = [run for run in _runs(steps) if run[0].validate == other[0].validate]
    if check.over_steps is None:
        return bool(runs)
    return any(len(comparable_steps(run)) >= LEAST_STEPS for run in runs)


def _value_before(
    before: Mapping[tuple[str, str, bool], float], check: Check, subject: str, *, validate: bool
) -> float | None:
    """Return a check's value in the steps to compare with; None if they have none: one step has no change."""
    if check.over_steps is not None or not any(key[2] == validate for key in before):
        return before.get((check.name, subject, validate))
    # A tool that was not called there had no errors.
    return before.get((check.name, subject, validate), 0.0)


def _measured(check: Check, value: float, limit: float, before: float | None) -> str:
    text = check.threshold.text
    known = "" if before is None else f", before {text(before)}"
    return f"{text(value)}, threshold {text(limit)}{known}"


def _key(finding: Finding) -> tuple[str, str, bool]:
    return finding.check, finding.subject, finding.validate


def running_steps(run: Run, known: Sequence[StepSummary]) -> list[StepSummary]:
    """Return the steps that a living process writes: its runs' last ones, and those that have open spans.

    Args:
        run: The run.
        known: All of its steps.
    """
    is_open = run.open_steps()
    last = run.of_living(last_steps(known))
    return [step for step in known if step in last or (step.step, step.validate) in is_open]


def diagnose_run(
    run: Run,
    steps: Sequence[StepSummary],
    *,
    thresholds: Mapping[str, float] | None = None,
    against: Sequence[JudgedStep] | None = None,
    folder: str | None = None,
    running: Iterable[StepIdentity] = (),
) -> Diagnosis:
    """Run all checks over steps of a run; the other arguments are the same as for `diagnose`."""
    judged = run.judged(steps)
    return diagnose(judged, run.listed, thresholds=thresholds, against=against, folder=folder, running=running)
