"""The whole examination: installation, environment, and each requested backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from otel_rollout.backends import requested_backend
from otel_rollout.deliver.spool import open_spool
from otel_rollout.doctor.environment import UNSET, EnvironmentReport, read_environment
from otel_rollout.doctor.installation import InstallationReport, read_installation
from otel_rollout.doctor.probe import BackendReport, probe_backend
from otel_rollout.errors import ConfigurationError


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
        return {**asdict(self), "exit_code": self.exit_code}


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
