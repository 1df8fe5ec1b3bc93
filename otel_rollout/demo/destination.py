"""The demo's backends, and where to look for its trajectories, which each exporter reports."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.environment_variables import OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout import backends
from otel_rollout.backends import requested_backend
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.exporter import OutcomeSpanExporter, destination_of

FOLDER: Final = "file"
"""The backend that the viewer reads."""
ON_SCREEN: Final = "console"
"""The report at the end takes this backend's place: nobody wants to read 144 trees."""

_COMMAND: Final = re.compile(r"((?:\w+=\S* )*)([\w.-]*)(.*)")


@runtime_checkable
class Explaining(Protocol):
    """An exporter that explains how to find trajectories in its backend."""

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text; commands and code are indented by four spaces.

        Args:
            project_name: The project of the trajectories.
            experiment_name: Their experiment.
        """


def choose_backends(argument: str | None, default: Sequence[str]) -> list[str]:
    """Return the names of the backends: the argument's, else the environment's, else the defaults or the screen.

    Args:
        argument: The value of `--backend`, if given: names with commas between them.
        default: The backends if nothing names one; those whose packages are not installed are left out.

    Raises:
        ConfigurationError: The names don't go together, or a default can't work as it is configured.
    """
    for asked in (argument, os.environ.get(OTEL_TRACES_EXPORTER)):
        if (asked or "").strip(" ,"):
            return [str(name) for name in requested_backend(asked)]
    if os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT):
        return ["otlp"]
    return [name for name in default if not _missing_extra(name)] or [ON_SCREEN]


def with_folder(backends: Sequence[str]) -> list[str]:
    """Return backends with the trace folder, for a look at it in the viewer.

    Raises:
        ConfigurationError: Tracing is off.
    """
    if not backends:
        raise ConfigurationError("--view shows what is traced, and tracing is off")
    sent_to = [name for name in backends if name != ON_SCREEN]
    return sent_to if FOLDER in sent_to else [*sent_to, FOLDER]


def describe(name: str, exporter: SpanExporter | None) -> str:
    """Return a backend's name with its destination."""
    destination = destination_of(exporter) if exporter is not None else None
    return "this screen" if name == ON_SCREEN else f"{name}, {destination}" if destination else name


def where_next(
    backends: Sequence[str],
    exporters: Mapping[str, SpanExporter],
    *,
    project_name: str,
    experiment_name: str,
    default: str,
    unreached: Sequence[str] = (),
) -> list[str]:
    """Return lines on where the trajectories are and how to find them.

    Args:
        backends: The names of the backends.
        exporters: Their exporters by name.
        project_name: The project that was given to `init`.
        experiment_name: The experiment that was given to `init`.
        default: The backend to recommend if the spans stayed here.
        unreached: Those backends that have got nothing.
    """
    lines: list[str] = []
    for name in backends:
        exporter = exporters.get(name)
        lines += [""] if lines else []
        if name in unreached:
            destination = destination_of(exporter) if exporter is not None else None
            is_server = destination is None or destination.startswith(("http://", "https://"))
            lines += [
                f"Nothing has arrived at {describe(name, exporter)}.",
                "Start it, or correct its address or credentials,"
                if is_server
                else "Correct the setting that names it,",
                f"and run the demo again; `--backend {ON_SCREEN}` needs none.",
            ]
        elif name == ON_SCREEN:
            lines += _on_screen(default)
        elif isinstance(exporter, OutcomeSpanExporter) and isinstance(exporter, Explaining):
            lines += exporter.where_to_look(project_name, experiment_name)
        else:
            lines += [f"The trajectories went to {describe(name, exporter)}, as project {project_name}."]
    return [f"    {_runnable(line.strip())}" if line.startswith("    ") else line for line in lines]


def _on_screen(default: str) -> list[str]:
    missing = _missing_extra(default)
    return [
        "The spans stayed in this process. To keep them, run one of",
        "",
        f"    otel-rollout demo --backend {default}",
        f"    {OTEL_EXPORTER_OTLP_ENDPOINT}=http://localhost:4318 otel-rollout demo --backend otlp",
        *(["", missing] if missing else []),
    ]


def _missing_extra(backend: str) -> str:
    try:
        backends.make_exporters([backend])
    except MissingExtraError as error:
        return str(error)
    return ""


def _runnable(command: str) -> str:
    """Return a command with the path of its program, if that is in this environment, which may not be activated."""
    variables, program, arguments = _COMMAND.fullmatch(command).groups()  # type: ignore[union-attr]
    path = Path(sys.executable).parent / program
    if path.is_file() and shutil.which(program) != str(path):
        program = os.path.relpath(path)
        program = str(path) if program.startswith("..") else program
    return f"{variables}{program}{arguments}"
