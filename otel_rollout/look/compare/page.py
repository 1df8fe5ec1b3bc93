"""A comparison as a page of one file, which runs no script and loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final

from otel_rollout.catalog import StepSummary
from otel_rollout.look.compare.comparison import Comparison, Figure, Flip
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
from otel_rollout.text.plain_text import printable, shorten

MAX_FLIPS: Final = 200
_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2024; --weak: #5b636b; --line: #d9dde1; --back: #fff; --a: #5b636b;
  --b: #0b62c4; --worse: #b42318; --better: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7ea; --weak: #9ba3ab; --line: #363c42; --back: #15181b;
  --a: #9ba3ab; --b: #6cb0ff; --worse: #ff8a7a; --better: #66c97f; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 72rem; font: 14px/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--back); font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--weak); } th:first-child, td:first-child, .text { text-align: left; }
.text { white-space: normal; min-width: 16rem; }
.weak { color: var(--weak); } .worse { color: var(--worse); font-weight: 600; }
.better { color: var(--better); font-weight: 600; } .other { font-weight: 600; }
svg { display: block; } .zero { stroke: var(--weak); } .span { stroke: var(--b); stroke-width: 3; }
.span.worse { stroke: var(--worse); } .span.better { stroke: var(--better); } .dot { fill: var(--text); }
.line { fill: none; stroke-width: 2; } .line.a { stroke: var(--a); stroke-dasharray: 5 3; }
.line.b { stroke: var(--b); }
.key.a { color: var(--a); } .key.b { color: var(--b); } text { fill: var(--weak); font-size: 11px; }
"""
_BAR: Final = (120, 14)
_CHART: Final = (640, 160)


def page_of(comparison: Comparison, before: Sequence[StepSummary], after: Sequence[StepSummary]) -> str:
    """Return a comparison as HTML.

    Args:
        comparison: The comparison.
        before: The steps of the first run, for its chart.
        after: The steps of the second.
    """
    body = "".join(_body(comparison, before, after))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Two runs compared</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _body(comparison: Comparison, before: Sequence[StepSummary], after: Sequence[StepSummary]) -> Iterator[str]:
    yield "<h1>Two runs compared</h1>"
    for key, name in (("A", comparison.before), ("B", comparison.after)):
        yield f'<div><b class="key {key.lower()}">{key}</b> {_text(name)}</div>'
    yield f'<p class="{"worse" if comparison.worse else "other"}">{_text(verdict_text(comparison))}</p>'
    if comparison.left_out:
        yield f"<p class=weak>{_text(left_out_text(comparison))}</p>"
    for part in comparison.parts:
        yield f"<h2>{'Validation' if part.validate else 'Training'}</h2><p class=weak>{_text(over_text(part))}</p>"
        yield _chart(*([step for step in steps if step.validate == part.validate] for steps in (before, after)))
        yield f"{_wide('figures')}<table><thead><tr><th>figure<th>A<th>B<th>change<th>95% interval<th>"
        yield "<th>p, adjusted<th>of<th></tr></thead><tbody>"
        yield from map(_row, part.figures)
        yield "</tbody></table></div>"
        yield from (f"<p class=weak>Too few to tell: {_text(text)}</p>" for text in too_few_texts(part))
        if part.flip_p is not None:
            yield f"<h2>Prompts that flipped</h2><p>{_text(flips_text(part))}</p>"
            for title, flips in (("Mostly solved by A only", part.lost), ("Mostly solved by B only", part.gained)):
                yield from _flips(title, flips)
    for title, findings in (("Findings that are new", comparison.new), ("Findings that are gone", comparison.gone)):
        if findings:
            yield f"<h2>{title}</h2><ul>{''.join(map(_finding, findings))}</ul>"


def _row(figure: Figure) -> str:
    verdict = {"other": "changed"}.get(figure.verdict, figure.verdict)
    cells = (
        value_text(figure.before, figure.unit),
        value_text(figure.after, figure.unit),
        change_text(figure.change, figure.unit),
        interval_text(figure),
    )
    return (
        f"<tr><td>{_text(shorten(figure.title, 80))}"
        + "".join(f"<td>{_text(cell)}" for cell in cells)
        + f"<td>{_bar(figure)}<td>{figure.p:.2g}<td>{figure.units:,} {_text(figure.over)}"
        + f'<td class="{figure.verdict}">{verdict}</tr>'
    )


def _bar(figure: Figure) -> str:
    """Return the interval as a line, with a mark at 0."""
    width, height = _BAR
    most = max(abs(figure.low), abs(figure.high)) or 1.0
    low, high, at = (width / 2 + value / most * (width / 2 - 4) for value in (figure.low, figure.high, figure.change))
    middle = height / 2
    return (
        f'<svg width={width} height={height} role=img aria-label="{_text(interval_text(figure))}">'
        f"<line class=zero x1={width / 2} x2={width / 2} y1=0 y2={height} />"
        f'<line class="span {figure.verdict}" x1={low:.1f} x2={high:.1f} y1={middle} y2={middle} />'
        f"<circle class=dot cx={at:.1f} cy={middle} r=3 /></svg>"
    )


def _chart(before: Sequence[StepSummary], after: Sequence[StepSummary]) -> str:
    """Return the mean reward of both runs over their steps; nothing without two steps of one."""
    lines = [
        [(step.step, step.reward_mean) for step in steps if step.step is not None and step.reward_mean is not None]
        for steps in (before, after)
    ]
    points = [point for line in lines for point in line]
    if max(map(len, lines)) < 2:
        return ""
    (left, right), (low, high) = (
        (min(values), max(values)) for values in ([step for step, _ in points], [reward for _, reward in points])
    )
    width, height = _CHART
    room = (high - low) or 1.0

    def place(step: int, reward: float) -> str:
        x = 40 + (step - left) / (right - left or 1) * (width - 50)
        return f"{x:.1f},{height - 24 - (reward - low) / room * (height - 36):.1f}"

    drawn = "".join(
        f'<polyline class="line {name}" points="{" ".join(place(*point) for point in line)}" />'
        for name, line in zip("ab", lines, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width={width} style="max-width:100%" role=img '
        f'aria-label="Mean reward over steps, A dashed">{drawn}<text x=0 y=16>{high:.3g}</text>'
        f"<text x=0 y={height - 24}>{low:.3g}</text><text x=40 y={height - 4}>mean reward, step {left}</text>"
        f"<text x={width - 10} y={height - 4} text-anchor=end>step {right}</text></svg>"
    )


def _flips(title: str, flips: Sequence[Flip]) -> Iterator[str]:
    if not flips:
        return
    yield f"<h3>{title}</h3>{_wide(title)}<table><thead><tr><th>sample<th>A<th>B<th class=text>prompt"
    yield "</tr></thead><tbody>"
    for each in flips[:MAX_FLIPS]:
        cells = _text(str(each.sample_index)), *solved_text(each)
        yield f"<tr><td>{'<td>'.join(cells)}<td class=text>{_text(each.prompt)}</tr>"
    yield "</tbody></table></div>"
    if len(flips) > MAX_FLIPS:
        yield f"<p class=weak>and {len(flips) - MAX_FLIPS:,} more</p>"


def _finding(finding: Finding) -> str:
    where = " in validation" if finding.validate else ""
    return (
        f"<li><b>{_text(finding.title)}</b>{where}, {finding.severity.value}: {_text(finding.measured)}. "
        f"{_text(finding.meaning)}.</li>"
    )


def _wide(label: str) -> str:
    """Return the start of a region that scrolls, also by keys."""
    return f'<div class=wide tabindex=0 role=region aria-label="{label}">'


def _text(text: str) -> str:
    return html.escape(printable(text))
