"""The figures as Markdown tables, which read as well in a terminal."""

from __future__ import annotations

from typing import Any

ROWS = (
    ("write, CPU µs per span", "cpu_us_per_span"),
    ("write, MB of payload per CPU second", "cpu_mb_per_s"),
    ("size on disk / payload", "size_to_payload"),
    ("roots of one step, ms", "roots_ms"),
    ("spans of one trajectory, ms", "trajectory_ms"),
    ("the same, all attributes, ms", "trajectory_attributes_ms"),
    ("all attributes of one step, ms", "spans_ms"),
    ("statistics of all groups, ms", "groups_ms"),
)

LEGEND = """\
In brackets: the ratio to the first column. Writing: CPU time of the process, kernel included, for all spans; reading:
medians, with the files in the page cache. The stores took turns, batch by batch and question by question."""


def as_text(result: dict[str, Any]) -> str:
    """Return a table for each load, and what they say."""
    parts = [_table(figures) for figures in result["loads"]]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    skipped = [f"skipped {name}: {reason}" for name, reason in result["skipped"].items()]
    return "\n\n".join([*parts, LEGEND, versions, *skipped])


def _table(figures: dict[str, Any]) -> str:
    load, stores = figures["load"], figures["stores"]
    title = (
        f"{load['title']}: {load['steps']} steps x {load['prompts']} prompts x {load['rollouts']} rollouts, "
        f"{load['spans']:,} spans, {load['payload_bytes'] / 1e6:,.0f} MB of payload"
    )
    lines = [["", *stores]]
    for name, key in ROWS:
        values = [figures[key] for figures in stores.values()]
        lines.append([name, *(_cell(value, values[0]) for value in values)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [f"| {' | '.join(_padded(line, widths))} |" for line in lines]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([title, "", rows[0], f"|{rule}|", *rows[1:]])


def _cell(value: float, first: float) -> str:
    return _number(value) if value is first else f"{_number(value)} ({_number(value / first)})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _padded(line: list[str], widths: list[int]) -> list[str]:
    first = line[0].ljust(widths[0])
    return [first, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
