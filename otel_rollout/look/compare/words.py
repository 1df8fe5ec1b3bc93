"""The words of a comparison, for the terminal and the page."""

from __future__ import annotations

from itertools import groupby

from otel_rollout.look.compare.comparison import Comparison, Figure, Flip, Part
from otel_rollout.look.compare.figures import REWARD, SHARE
from otel_rollout.text.plain_text import counted


def value_text(value: float, unit: str) -> str:
    """Return the value of a figure as text."""
    return f"{value:.1%}" if unit == SHARE else _number(value)


def change_text(change: float, unit: str) -> str:
    """Return the change of a figure as text, with its sign; of a share, in percentage points."""
    if unit == SHARE:
        return f"{100 * change:+.1f}" if change else "0"
    return ("-" if change < 0 else "+" if change else "") + _number(abs(change))


def interval_text(figure: Figure) -> str:
    """Return the interval of a figure's change."""
    return f"{change_text(figure.low, figure.unit)} to {change_text(figure.high, figure.unit)}"


def over_text(part: Part) -> str:
    """Return the steps and prompts that a part is compared over."""
    both, first, second = part.prompts
    numbers = [step for step in part.steps if step is not None]
    steps = f" ({numbers[0]} to {numbers[-1]})" if len(numbers) > 1 else f" ({numbers[0]})" if numbers else ""
    prompts = (
        f"{counted(both, 'prompt')} that both have"
        if part.is_paired
        else f"{counted(both + first, 'prompt')} of A, {both + second:,} of B, not in pairs"
    )
    left = f"; {first:,} are only in A, {second:,} only in B" if part.is_paired and (first or second) else ""
    return f"{counted(len(part.steps), 'step')}{steps}, {prompts}{left}"


def left_out_text(comparison: Comparison) -> str:
    """Return the steps that are not compared; empty without any."""
    steps = ", ".join(comparison.left_out)
    return f"not compared, as it is being written: {steps}" if steps else ""


def flips_text(part: Part) -> str:
    """Return the number of prompts that flipped, and the result of the sign test."""
    gained, lost = len(part.gained), len(part.lost)
    if not gained and not lost:
        return "no prompt flipped between solved and unsolved"
    p = f"; sign test, adjusted p {part.flip_p:.2g}" if part.flip_p is not None else ""
    return f"{counted(lost, 'prompt')} mostly solved by A only, {gained:,} by B only{p}"


def solved_text(flip: Flip) -> tuple[str, str]:
    """Return the solved rollouts of a prompt in each run, and all."""
    one, other = (
        f"{round(share * number):,} of {number:,}"
        for share, number in zip((flip.before, flip.after), flip.rollouts, strict=True)
    )
    return one, other


def too_few_texts(part: Part) -> list[str]:
    """Return the figures that are not compared, a text for each amount that they need."""
    in_order = sorted(part.too_few, key=lambda each: len(each.needs))
    return [
        f"fewer than {needs.replace(' and ', ' or ')}: {', '.join(each.title for each in found)}"
        for needs, found in groupby(in_order, lambda each: each.needs)
    ]


def verdict_text(comparison: Comparison) -> str:
    """Return the conclusion."""
    if comparison.worse:
        return f"B is worse: {', '.join(comparison.worse)}"
    figures = [
        (figure, " in validation" if part.validate else "") for part in comparison.parts for figure in part.figures
    ]
    small = [
        f"{each.title}{' in validation' if part.validate else ''}"
        for part in comparison.parts
        for each in part.too_few
        if each.name == REWARD.name
    ]
    if not figures and any(part.too_few for part in comparison.parts):
        return "too few to tell if B is worse"
    rewards = [
        f"{figure.title}{where} changes by {interval_text(figure)} (95%)"
        for figure, where in figures
        if figure.name == REWARD.name
    ]
    better = [f"{figure.title}{where}" for figure, where in figures if figure.verdict == "better"]
    return "; ".join(
        [
            "B is not shown to be worse",
            *([f"{counted(len(figures), 'figure')} compared"] if figures else []),
            *rewards,
            *([f"too few to tell: {', '.join(small)}"] if small else []),
            *([f"better: {', '.join(better)}"] if better else []),
        ]
    )


def _number(value: float) -> str:
    size = abs(value)
    if size >= 1e7:
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"
