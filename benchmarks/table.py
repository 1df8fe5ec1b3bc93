"""The samples as one table of ratios, for people and as JSON."""

from __future__ import annotations

import platform
import statistics
from typing import Any

from benchmarks.pool import Subject
from benchmarks.run import OFF_WORKLOADS, Samples
from benchmarks.tracers import BASELINE, TITLES
from benchmarks.workloads import WORKLOADS

_BASELINE = Subject(BASELINE, "on")


class Row:
    """One line of the table.

    Args:
        title: What is measured.
        measure: Under which name the samples are.
        switch: Whether the tracers are on or off; what they're compared to is always on.
        scale: What turns a sample into `unit`.
        unit: The unit that the baseline is shown in.
    """

    def __init__(self, title: str, measure: str, switch: str = "on", scale: float = 1e6, unit: str = "µs") -> None:
        self.title = title
        self.measure = measure
        self.switch = switch
        self.scale = scale
        self.unit = unit

    def ratios(self, samples: Samples, tracer: str) -> list[float]:
        """Return the tracer's samples over the baseline's of the same round."""
        measured = samples.values[self.measure]
        own = measured.get(Subject(tracer, self.switch), [])
        return [value / base for value, base in zip(own, measured.get(_BASELINE, []), strict=False) if base > 0]


ROWS = [
    *(Row(f"caller, {workload.title}", f"caller {name}") for name, workload in WORKLOADS.items()),
    *(Row(f"caller, off, {WORKLOADS[name].title}", f"caller {name}", "off") for name in OFF_WORKLOADS),
    *(
        Row(f"process, {workload.title}", f"process {name}")
        for name, workload in WORKLOADS.items()
        if not workload.is_async
    ),
    Row("event loop's longest stall", "stall cpu", scale=1e3, unit="ms"),
    Row("memory, exporter blocked", "memory", scale=1e-6, unit="MB"),
]

LEGEND = """\
Ratios to a plain OpenTelemetry span with json.dumps (1.0): medians over rounds in which all took turns; less is better.
caller: CPU time of the calling thread, per call. process: CPU time of all threads, per call, OTLP encoding included.
stall: the most CPU time an exporter takes between two turns of an event loop while 512 spans of 50 KB are encoded."""


def as_text(samples: Samples) -> str:
    """Return the table in Markdown, which reads as well in a terminal."""
    tracers = [name for name in TITLES if any(row.ratios(samples, name) for row in ROWS)]
    lines = [["", *(TITLES[name] for name in tracers), "1.0 is"]]
    for row in ROWS:
        cells = [_ratio_text(row.ratios(samples, name)) for name in tracers]
        base = samples.values[row.measure].get(_BASELINE, [])
        shown = f"{statistics.median(base) * row.scale:,.0f} {row.unit}" if base else "-"
        lines.append([row.title, *cells, shown])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [f"| {' | '.join(_padded(line, widths))} |" for line in lines]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    parts = ["\n".join([rows[0], f"|{rule}|", *rows[1:]]), LEGEND]
    floor = [value for values in samples.values["stall floor"].values() for value in values]
    if floor:
        parts.append(f"       A thread that runs nothing but Python comes to {statistics.median(floor) * 1e3:.0f} ms.")
    parts += [f"skipped {name}: {reason}" for name, reason in samples.skipped.items()]
    return "\n".join(parts)


def as_data(samples: Samples) -> dict[str, Any]:
    """Return everything that was measured, and the ratios, in plain types."""
    table: list[dict[str, Any]] = []
    for row in ROWS:
        for name in TITLES:
            ratios = row.ratios(samples, name)
            if ratios:
                own = samples.values[row.measure][Subject(name, row.switch)]
                base = samples.values[row.measure][_BASELINE]
                spread = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
                table.append(
                    {
                        "measure": row.title,
                        "tracer": name,
                        "ratio": statistics.median(ratios),
                        "ratio_quartiles": [spread[0], spread[2]],
                        "ratio_of_minima": min(own) / min(base) if min(base) else None,
                        "median": statistics.median(own) * row.scale,
                        "minimum": min(own) * row.scale,
                        "unit": row.unit,
                        "rounds": len(ratios),
                    }
                )
    return {
        "table": table,
        "stall_wall_ms": _stall_milliseconds(samples, "stall wall"),
        "stall_floor_ms": _stall_milliseconds(samples, "stall floor"),
        "skipped": samples.skipped,
        "versions": samples.versions,
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "python": platform.python_version(),
        },
    }


def _stall_milliseconds(samples: Samples, measure: str) -> dict[str, list[float]]:
    return {subject.tracer: [value * 1e3 for value in values] for subject, values in samples.values[measure].items()}


def _ratio_text(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    ratio = statistics.median(ratios)
    return f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def _padded(line: list[str], widths: list[int]) -> list[str]:
    first = line[0].ljust(widths[0])
    return [first, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
