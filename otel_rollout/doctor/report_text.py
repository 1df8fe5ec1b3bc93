"""The examination as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from otel_rollout.doctor.environment import DEFAULT, EnvironmentReport
from otel_rollout.doctor.examination import Examination
from otel_rollout.doctor.installation import InstallationReport
from otel_rollout.doctor.probe import BackendReport
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import printable

_WIDEST_COLUMN: Final = 44
_CONTINUED: Final = "    "
_MARKS: Final = {"ok": ("✓", "good"), "untried": ("-", "plain")}


class Line(NamedTuple):
    """A line of the report; its tone is `heading`, `plain`, `dim`, `good` or `bad`."""

    text: str
    tone: str = "plain"


def describe(examination: Examination, width: int | None = None) -> Iterator[Line]:
    """Yield the lines of the report on an examination.

    Args:
        examination: The examination.
        width: The screen's columns; None for programs, which get whole lines.
    """
    for line in (
        *_describe_installation(examination.installation),
        *_describe_environment(examination.environment),
        *_describe_backends(examination),
    ):
        yield from [line] if width is None or len(line.text) <= width else _wrapped(line, width)


def _wrapped(line: Line, width: int) -> Iterator[Line]:
    indentation = line.text[: len(line.text) - len(line.text.lstrip(" "))] + _CONTINUED
    # Commands and names are copied: no word is broken.
    for text in textwrap.wrap(
        printable(line.text), width, subsequent_indent=indentation, break_long_words=False, break_on_hyphens=False
    ):
        yield Line(text, line.tone)


def _describe_installation(installation: InstallationReport) -> Iterator[Line]:
    yield Line(", ".join(f"{name} {version}" for name, version in installation.versions.items()), "heading")
    yield Line("")
    yield Line("Exporters", "heading")
    names = _columns((one.name, one.source) for one in installation.exporters)
    for (name, source), exporter in zip(names, installation.exporters, strict=True):
        fault = f"  can't be loaded: {exporter.fault}" if exporter.fault else ""
        yield Line(f"  {name}  {source}{fault}", "bad" if fault else "plain")
    for extra in installation.extras:
        if extra.missing:
            yield Line(f"  without extra {extra.name} ({', '.join(extra.missing)}): {install_line(extra.name)}", "dim")


def _describe_environment(environment: EnvironmentReport) -> Iterator[Line]:
    yield Line("")
    yield Line("Settings", "heading")
    rows = _columns((one.name, one.value, one.origin) for one in environment.settings)
    for row, setting in zip(rows, environment.settings, strict=True):
        yield Line(f"  {'  '.join(row)}".rstrip(), "dim" if setting.origin == DEFAULT else "plain")
        if setting.fault:
            yield Line(f"  ✗ {setting.fault}", "bad")
    yield Line("")
    yield Line("Variables of OpenTelemetry and of the exporters that are set", "heading")
    for row in _columns((one.name, one.value, one.meaning) for one in environment.variables):
        yield Line(f"  {'  '.join(row)}".rstrip())
    if not environment.variables:
        yield Line("  none", "dim")
    if environment.is_disabled:
        yield Line("  ✗ OTEL_SDK_DISABLED is true: tracing is off, whatever else is set", "bad")
    for fault in environment.faults:
        yield Line(f"  ✗ {fault}", "bad")


def _describe_backends(examination: Examination) -> Iterator[Line]:
    yield Line("")
    yield Line("Backends", "heading")
    if examination.asked_fault:
        yield Line(f"  ✗ {examination.asked_fault}", "bad")
    elif not examination.asked:
        yield Line("  none: tracing is off unless `init` is given a backend; set OTEL_TRACES_EXPORTER, or --backend")
    for backend in examination.backends or ():
        yield from _describe_backend(backend)


def _describe_backend(backend: BackendReport) -> Iterator[Line]:
    mark, tone = _MARKS.get(backend.result, ("✗", "bad"))
    where = f", {backend.destination}" if backend.destination else ""
    yield Line(f"  {mark} {backend.name}{where}", tone)
    yield Line(f"      {backend.sent}")
    if backend.read_back:
        yield Line(f"      {backend.read_back}")
    if backend.trace_id:
        yield Line(f"      trace {backend.trace_id}, {backend.seconds:.1f} s", "dim")


def _columns(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Pad each column but the last to its widest cell, within a bound."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [min(_WIDEST_COLUMN, max(map(len, column))) for column in zip(*shown, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(row, [*widths[:-1], 0], strict=True)] for row in shown]
