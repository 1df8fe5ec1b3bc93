"""The whole examination: installation, environment, and each backend that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from otel_rollout.backends import requested_backend
from otel_rollout.delivery.spool import open_spool
from otel_rollout.doctor.environment import UNSET, EnvironmentReport, read_environment
from otel_rollout.doctor.installation import InstallationReport, read_installation
from otel_rollout.doctor.probe import BackendReport, probe_backend
from otel_rollout.errors import ConfigurationError

__all__ = ["Examination", "examine"]


@dataclass(frozen=True)
class Examination:
    """What was found.

    Args:
        installation: What is installed.
        environment: What the environment says.
        asked: The backends that are asked for.
        asked_fault: What is wrong with how they are asked for, or with their spool, if something is.
        backends: What came of trying them, or of making their exporters alone; None where the settings are at fault.
    """

    installation: InstallationReport
    environment: EnvironmentReport
    asked: list[str] = field(default_factory=list)
    asked_fault: str = ""
    backends: list[BackendReport] | None = None

    @property
    def exit_code(self) -> int:
        """0 where all is well, 1 where a backend failed, 2 where the settings need a change."""
        results = {backend.result for backend in self.backends or ()}
        if self.asked_fault or not self.environment.is_sound or "misconfigured" in results:
            return 2
        return 1 if "failed" in results else 0

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**asdict(self), "exit_code": self.exit_code}


def examine(
    backend: str | None = None,
    *,
    project: str,
    timeout: float,
    is_offline: bool = False,
    on_backend: Callable[[str], None] = lambda name: None,
) -> Examination:
    """Find out what the tracer would do here.

    Args:
        backend: The backends to try, names separated by commas; where None, `OTEL_TRACES_EXPORTER`.
        project: The project that the trajectories are filed under.
        timeout: Seconds for each backend to take a trajectory, and as many to give it back.
        is_offline: Leave the backends alone, and look only whether their exporters can be made.
        on_backend: Told of each backend before it is tried.
    """
    installation = read_installation()
    environment = read_environment(installation.variables)
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
    """Return why the backends' spans can't wait on disk, as `init` would say it; nothing where they can."""
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
        # Whether folders can be made is found out by making them; none is left behind.
        for one in missing:
            with suppress(OSError):
                one.rmdir()
    return ""
