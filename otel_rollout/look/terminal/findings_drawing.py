"""Findings as text: what was found, above which threshold, what it means, what proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.text import Text

from otel_rollout.catalog import StepSummary
from otel_rollout.look.findings import Diagnosis, Finding, Severity, TooFew
from otel_rollout.look.terminal.hints import command_lines
from otel_rollout.look.terminal.screen import wrapped
from otel_rollout.text.plain_text import counted, printable, shorten

MARGIN: Final = "  "
MAX_SUBJECT: Final = 80
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def print_diagnosis(console: Console, diagnosis: Diagnosis, rewards: str = "") -> None:
    """Print a diagnosis; on a terminal wrapped to its width, in a pipe a line for each sentence.

    Args:
        console: The console.
        diagnosis: The diagnosis.
        rewards: The rewards that it compares, as `rewards_text` has them.
    """
    width = console.width if console.is_terminal else None
    for line in _lines(diagnosis, width, rewards):
        console.print(line, soft_wrap=True)


def rewards_text(before: Sequence[StepSummary], after: Sequence[StepSummary]) -> str:
    """Return the mean rewards of steps that are compared; empty if none of them has both."""
    texts = []
    for validate in (False, True):
        sides = [
            [(step.reward_mean, step.rewarded) for step in steps if step.validate == validate]
            for steps in (before, after)
        ]
        counts = [sum(rewarded for _, rewarded in side) for side in sides]
        if all(counts):
            means = [
                sum((mean or 0.0) * rewarded for mean, rewarded in side) / count
                for side, count in zip(sides, counts, strict=True)
            ]
            of = " and ".join(f"{count:,}" for count in counts)
            where = " in validation" if validate else ""
            texts.append(f"mean reward{where} {means[0]:.3f} before, {means[1]:.3f} now, of {of} trajectories")
    return "; ".join(texts)


def _lines(diagnosis: Diagnosis, width: int | None, rewards: str) -> Iterator[Text]:
    found = diagnosis.findings
    checked = f"{counted(diagnosis.steps, 'step')}  {counted(diagnosis.trajectories, 'trajectory')}"
    yield Text(f"{checked}  {counted(len(found), 'finding') if found else 'nothing above its threshold'}")
    if rewards:
        yield from (Text(line) for line in wrapped(rewards, width, ""))
    if diagnosis.failures:
        classes = ", ".join(f"{name} {number:,}" for name, number in diagnosis.failures.items())
        blames = ", ".join(f"{name} {number:,}" for name, number in diagnosis.blames.items())
        total = sum(diagnosis.failures.values())
        unknown = diagnosis.unknown_share or 0.0
        text = (
            f"{total:,} failed or have the worst reward, by class: {classes}; to blame: {blames}; unknown {unknown:.0%}"
        )
        yield from (Text(line, style="dim") for line in wrapped(text, width, ""))
    if diagnosis.too_few:
        small = "; ".join(map(_too_few, diagnosis.too_few))
        yield from (Text(line, style="dim") for line in wrapped(f"too few to tell: {small}", width, ""))
    if note := diagnosis.looked_at_note:
        yield from (Text(line, style="dim") for line in wrapped(note, width, ""))
    has_several = len({(finding.experiment_name, finding.run_id) for finding in found}) > 1
    for finding in found:
        yield Text()
        yield from _finding_lines(finding, width, has_run=has_several)
    if diagnosis.gone:
        yield Text()
        yield Text("no longer above its threshold", style="bold")
        for finding in diagnosis.gone:
            yield from _wrapped(f"{finding.title} ({finding.measured})", width)


def _too_few(each: TooFew) -> str:
    where = " in validation" if each.validate else ""
    return printable(f"{each.title}{where} {each.measured}, of {each.total:,} (it needs {each.least:,})")


def _finding_lines(finding: Finding, width: int | None, *, has_run: bool) -> Iterator[Text]:
    title = printable(shorten(finding.title, MAX_SUBJECT))
    yield Text.assemble(
        (finding.severity.value, _STYLES[finding.severity]), "  ", (title, "bold"), f"  {finding.measured}"
    )
    yield from _wrapped(f"{_place(finding, has_run=has_run)}: {finding.meaning}.", width)
    end = "" if finding.advice.endswith("?") else "."
    yield from _wrapped(f"try: {finding.advice}{end}", width, style="dim")
    for each in finding.evidence:
        yield from (Text(line, style="cyan") for line in command_lines(printable(each.command), width, MARGIN))
        yield Text(f"{MARGIN}{MARGIN}in view: {printable(each.address)}", style="dim")


def _place(finding: Finding, *, has_run: bool) -> str:
    """Return the steps of a finding; its experiment and run too, if there are several."""
    names = [
        *([str(finding.experiment_name)] if has_run and finding.experiment_name is not None else []),
        *([f"run {finding.run_id}"] if has_run and finding.run_id is not None else []),
        f"{'validation of ' if finding.validate else ''}{_steps(finding)}",
    ]
    return ", ".join(names)


def _steps(finding: Finding) -> str:
    steps = finding.steps
    if finding.compares_steps:
        return f"from step {steps[0]} to {steps[-1]}"
    known = [step for step in steps if step is not None]
    runs = [[step for _, step in run] for _, run in groupby(enumerate(known), lambda each: each[1] - each[0])]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    texts += ["no step"] if None in steps else []
    return ("step " if len(known) == 1 else "steps " if known else "") + ", ".join(texts)


def _wrapped(text: str, width: int | None, style: str = "") -> Iterator[Text]:
    for line in wrapped(text, width, MARGIN):
        yield Text(f"{MARGIN}{line}", style=style)
