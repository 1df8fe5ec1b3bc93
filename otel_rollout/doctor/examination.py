"""The whole examination: installation, environment, and each requested backend; and its lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_rollout.backends import requested_backend
from otel_rollout.deliver.spool import open_spool
from otel_rollout.doctor.environment import DEFAULT, UNSET, EnvironmentReport, read_environment
from otel_rollout.doctor.installation import InstallationReport, read_installation
from otel_rollout.doctor.probe import BackendReport, probe_backend
from otel_rollout.errors import ConfigurationError
from otel_rollout.installing import install_line
from otel_rollout.text.plain_text import printable


@dataclass(frozen=True)
class Examination:
    """The findings.

    Args:
        installation: The installed versions, exporters and extras.
        environment: The environment.
        asked: The requested backends.
        asked_fault: The fault of the request, or of the backends' spool, if there is one.
        backends: The result for each backend; None if the settings are at fault.
    """

    installation: InstallationReport
    environment: EnvironmentReport
    asked: list[str] = field(default_factory=list)
    asked_fault: str = ""
    backends: list[BackendReport] | None = None

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 if a backend failed, 2 if a setting needs a change."""
        results = {backend.result for backend in self.backends or ()}
        if self.asked_fault or not self.environment.is_sound or "misconfigured" in results:
            return 2
        return 1 if "failed" in results else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        plain = {**asdict(self), "exit_code": self.exit_code}
        for exporter in plain["installation"]["exporters"]:
            rows = exporter.pop("settings")
            exporter["variables"] = {variable: row.meaning for row in rows for variable in row.variables}
        return plain


def examine(
    backend: str | None = None,
    *,
    project: str,
    timeout: float,
    is_offline: bool = False,
    on_backend: Callable[[str], None] = lambda name: None,
) -> Examination:
    """Examine the tracer's settings and backends.

    Args:
        backend: The backends, names separated by commas; `OTEL_TRACES_EXPORTER` if None.
        project: The project of the trajectories.
        timeout: Seconds for each backend to take a trajectory, and as many to give it back.
        is_offline: Only make the exporters; send nothing.
        on_backend: Called with each backend before it is tried.
    """
    installation = read_installation()
    environment = read_environment(installation.settings)
    try:
        asked = [entry for entry in requested_backend(backend) if isinstance(entry, str)]
    except ConfigurationError as error:
        return Examination(installation, environment, asked_fault=str(error))
    values = {one.name: one.value for one in environment.settings if not one.fault}
    fault = _spool_fault(values.get("spool", UNSET), asked)
    if fault:
        return Examination(installation, environment, asked, fault)
    reports = []
    for name in asked:
        on_backend(name)
        reports.append(probe_backend(name, project=project, timeout=timeout, is_offline=is_offline))
    return Examination(installation, environment, asked, backends=reports)


def _spool_fault(folder: str, asked: list[str]) -> str:
    """Return the reason why the backends' spools can't be opened, as `init` gives it; empty if they can."""
    if folder == UNSET:
        return ""
    path = Path(folder)
    missing: list[Path] = []
    try:
        missing += [one for one in (path, *path.parents) if not one.exists()]
        known = set(path.iterdir()) if path.is_dir() else set()
        for name in asked:
            made = open_spool(folder, name, 1).folder
            if made not in known:
                missing.insert(0, made)
    except (ConfigurationError, OSError) as error:
        return str(error)
    finally:
        # Only making folders shows if they can be made; they are removed again.
        for one in missing:
            with suppress(OSError):
                one.rmdir()
    return ""


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
