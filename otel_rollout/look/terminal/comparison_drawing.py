"""A comparison of two runs as text: a table of figures, the prompts that flipped, the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from otel_rollout.look.compare import Comparison, Figure, Flip, Part
from otel_rollout.look.compare.words import (
    change_text,
    flips_text,
    interval_text,
    left_out_text,
    over_text,
    solved_text,
    too_few_texts,
    value_text,
    verdict_text,
)
from otel_rollout.look.findings import Finding
from otel_rollout.look.terminal.screen import wrapped
from otel_rollout.look.terminal.table import Cell, Column, Table, print_lines
from otel_rollout.text.plain_text import printable, shorten

MAX_FLIPS: Final = 10
"""The most prompts of each kind in a list."""
_COLUMNS: Final = (
    Column("", is_text=True, narrowest=12),
    Column("A"),
    Column("B"),
    Column("change"),
    Column("95% interval", rank=2),
    Column("of", rank=3),
    Column("", is_text=True),
)
_STYLES: Final = {"worse": "bold red", "better": "bold green", "other": "bold"}


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a comparison; on a terminal wrapped to its width."""
    width = console.width if console.is_terminal else None

    def say(text: str, style: str = "", margin: str = "") -> None:
        for line in wrapped(text, width, margin):
            console.print(Text(f"{margin}{line}", style=style), soft_wrap=True)

    say(f"A  {comparison.before}")
    say(f"B  {comparison.after}")
    if comparison.left_out:
        say(left_out_text(comparison), "dim")
    for part in comparison.parts:
        say("")
        say(f"{'validation' if part.validate else 'training'}  {over_text(part)}", "bold")
        if part.figures:
            print_lines(console, _table(part.figures))
        for text in too_few_texts(part):
            say(f"too few to tell: {text}", "dim")
        if part.flip_p is not None:
            for text, style in _flip_lines(part):
                say(text, style)
    for title, findings in (("findings that are new", comparison.new), ("findings that are gone", comparison.gone)):
        if findings:
            say("")
            say(title, "bold")
            for text in map(_finding_text, findings):
                say(text, margin="  ")
    say("")
    say(verdict_text(comparison), "bold red" if comparison.worse else "bold")


def _table(figures: Iterable[Figure]) -> Table:
    table = Table(_COLUMNS)
    for each in figures:
        table.add_row(
            printable(shorten(each.title, 40)),
            value_text(each.before, each.unit),
            value_text(each.after, each.unit),
            change_text(each.change, each.unit),
            interval_text(each),
            f"{each.units:,}",
            Cell({"other": "changed"}.get(each.verdict, each.verdict), _STYLES.get(each.verdict, "")),
        )
    return table


def _flip_lines(part: Part) -> Iterator[tuple[str, str]]:
    yield flips_text(part), ""
    for title, flips in (("A only", part.lost), ("B only", part.gained)):
        yield from ((f"  {title}  {text}", "dim") for text in _flip_texts(flips))


def _flip_texts(flips: Sequence[Flip]) -> Iterator[str]:
    for each in flips[:MAX_FLIPS]:
        solved = "A {}, B {} rollouts solved".format(*solved_text(each))
        yield f"sample {printable(str(each.sample_index))}  {solved}  {printable(shorten(each.prompt, 60))}"
    if len(flips) > MAX_FLIPS:
        yield f"and {len(flips) - MAX_FLIPS:,} more"


def _finding_text(finding: Finding) -> str:
    where = " in validation" if finding.validate else ""
    return f"{finding.severity.value}  {printable(shorten(finding.title, 80))}{where}  {finding.measured}"
