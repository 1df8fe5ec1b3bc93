"""The installed exporters, and the packages that extras would add."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Final

from otel_rollout.backends import DISTRIBUTION, GROUP, factory_of
from otel_rollout.export.exporter import settings_of
from otel_rollout.settings import Setting
from otel_rollout.version import __version__

# `all` is the others together; `dev` is for contributors.
_NOT_FOR_USERS: Final = ("all", "dev")
# Known without an entry point; another package's exporter of that name is ignored.
_BUILT_IN: Final = ("console", "otlp")
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+).*;.*extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True)
class ExporterReport:
    """One exporter.

    Args:
        name: Its name in `backend=` and OTEL_TRACES_EXPORTER.
        source: Its distribution.
        fault: The reason why it can't be loaded, if it can't.
        settings: The settings that it reads from the environment.
    """

    name: str
    source: str
    fault: str = ""
    settings: Sequence[Setting] = ()


@dataclass(frozen=True)
class ExtraReport:
    """An extra of otel-rollout, and its own distributions that are not installed."""

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class InstallationReport:
    """The installation.

    Args:
        versions: The versions that matter here, by distribution.
        exporters: The exporters.
        extras: The extras.
    """

    versions: Mapping[str, str]
    exporters: list[ExporterReport]
    extras: list[ExtraReport]

    @property
    def settings(self) -> list[Setting]:
        """The settings that the exporters read from the environment."""
        return [row for exporter in self.exporters for row in exporter.settings]


def read_installation() -> InstallationReport:
    """Read the installation; no backend's package is imported."""
    versions = {
        "python": platform.python_version(),
        DISTRIBUTION: __version__,
        "opentelemetry-sdk": metadata.version("opentelemetry-sdk"),
    }
    exporters = [_report_exporter(name, DISTRIBUTION, partial(factory_of, name)) for name in _BUILT_IN]
    exporters += [
        _report_exporter(point.name, point.dist.name if point.dist is not None else "", point.load)
        for point in metadata.entry_points(group=GROUP)
        if point.name not in _BUILT_IN
    ]
    return InstallationReport(versions, sorted(exporters, key=lambda one: one.name), _read_extras())


def _report_exporter(name: str, source: str, load: Callable[[], object]) -> ExporterReport:
    try:
        return ExporterReport(name, source, settings=settings_of(load()))
    except Exception as error:  # another package may raise anything
        return ExporterReport(name, source, f"{type(error).__name__}: {error}")


def _read_extras() -> list[ExtraReport]:
    if not _is_installed(DISTRIBUTION):
        # Package folders without metadata don't name the extras.
        return []
    wanted: dict[str, set[str]] = {
        name: set() for name in metadata.metadata(DISTRIBUTION).get_all("Provides-Extra", [])
    }
    for line in metadata.requires(DISTRIBUTION) or ():
        match = _REQUIREMENT.match(line)
        if match is None:
            continue
        name, extra = match.groups()
        # An extra that another one includes reports its packages itself.
        if name != DISTRIBUTION:
            wanted[extra].add(name)
    return [
        ExtraReport(name, tuple(package for package in sorted(wanted[name]) if not _is_installed(package)))
        for name in sorted(wanted)
        if name not in _NOT_FOR_USERS
    ]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
