"""Where the demo's spans go, and where to look for them afterwards."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

__all__ = ["choose_backends", "describe", "where_next"]

DEFAULT_TRACKING_URI = "sqlite:///mlruns.db"
DEFAULT_FOLDER = "rollout-traces"
OTLP_NAMES = ("otlp", "otlp_proto_http", "otlp_proto_grpc")
SQL_STORE_PACKAGES = ("mlflow", "sqlalchemy", "alembic")


def choose_backends(argument: str | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the backends: the argument's, else what the environment says, else a local one.

    Args:
        argument: The value of `--backend`, if given: names with commas between them.
        environ: The environment.
    """
    for asked in (argument, environ.get("OTEL_TRACES_EXPORTER")):
        names = [name.strip() for name in (asked or "").split(",") if name.strip()]
        if names:
            return names
    if environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return ["otlp"]
    if _is_server(environ) or _has_sql_store():
        return ["mlflow"]
    return ["console"]


def describe(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a backend's name with its address."""
    if name == "mlflow":
        return f"mlflow, {_tracking_uri(environ)}"
    if name in OTLP_NAMES:
        return f"{name}, {_otlp_endpoint(environ)}"
    if name == "file":
        return f"file, the folder {_folder(environ)}"
    return "this screen" if name == "console" else name


def where_next(
    backends: Sequence[str],
    *,
    project: str,
    experiment: str,
    unreached: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> list[str]:
    """Return the lines that say where the trajectories are and how to find them.

    Args:
        backends: The names of the backends.
        project: The project that was given to `init`.
        experiment: The experiment that was given to `init`.
        unreached: Those backends that have got nothing.
        environ: The environment.
    """
    lines: list[str] = []
    for name in backends:
        lines += [""] if lines else []
        if name in unreached:
            lines += _unreached(describe(name, environ))
        elif name == "mlflow":
            lines += _in_mlflow(project, experiment, _tracking_uri(environ))
        elif name in OTLP_NAMES:
            lines += _in_otlp(project, _otlp_endpoint(environ))
        elif name == "weave":
            lines += _in_weave(project, environ)
        elif name == "file":
            lines += _in_folder(_folder(environ), experiment)
        elif name == "console":
            lines += _on_console()
        elif name != "none":
            lines += [f"The trajectories went to the exporter {name}."]
    return lines


def _in_mlflow(project: str, experiment: str, uri: str) -> list[str]:
    if uri.startswith(("http://", "https://")):
        opening = [f"Open {uri} and choose the experiment {project}, tab Traces."]
    else:
        opening = [
            "Open the MLflow UI (http://127.0.0.1:5000) with",
            "",
            f"    {_mlflow_command()} server --backend-store-uri {uri} --port 5000",
        ]
    query = f"tags.experiment_name = '{experiment}' AND tags.step = '1'"
    return [
        f"The trajectories are in MLflow, experiment {project}. Find those of the first step in {_python()} with",
        "",
        "    import mlflow",
        f'    mlflow.set_tracking_uri("{uri}")',
        f'    mlflow.set_experiment("{project}")',
        f'    print(len(mlflow.search_traces(filter_string="{query}")), "trajectories")',
        "",
        *opening,
    ]


def _in_otlp(project: str, endpoint: str) -> list[str]:
    return [
        f"The trajectories went to {endpoint} as project {project}.",
        "The root spans are named agent_loop and carry rollout.step, rollout.sample_index, rollout.reward",
        "and session.id, the same for all rollouts of one prompt. In Phoenix, filter the traces with",
        "",
        "    metadata['step'] == 1",
    ]


def _in_weave(project: str, environ: Mapping[str, str]) -> list[str]:
    base = environ.get("WANDB_BASE_URL", "https://api.wandb.ai").replace("://api.wandb.ai", "://wandb.ai")
    return [
        f"The trajectories are in Weave: {base}, project {project}, tab Traces.",
        "Filter them by attributes.step = 1.",
    ]


def _in_folder(folder: str, experiment: str) -> list[str]:
    command = _command("")
    # A validation pass of the same step has the same prompts, and an earlier demo has the same steps.
    one = f"--experiment {experiment} --step 1 --train --sample 0 --rollout 0"
    return [
        f"The trajectories are in the folder {folder}. List them, look at one, or send them to a backend with",
        "",
        f"    {command}ls {folder} --step 1",
        f"    {command}show {folder} {one}",
        f"    {command}replay {folder} --backend mlflow",
    ]


def _on_console() -> list[str]:
    command = _command("demo")
    to_mlflow = f"{command} --backend mlflow"
    if not _has_sql_store():
        to_mlflow = f"pip install 'otel-rollout[mlflow,demo]' && {to_mlflow}"
    return [
        "The spans stayed in this process. To keep them, run one of",
        "",
        f"    {to_mlflow}",
        f"    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 {command} --backend otlp",
    ]


def _has_sql_store() -> bool:
    return all(importlib.util.find_spec(package) for package in SQL_STORE_PACKAGES)


def _command(name: str) -> str:
    """Return how a command is called from here: the program may stand in an environment that is not activated."""
    program = Path(sys.argv[0])
    if program.name != "otel-rollout" or shutil.which("otel-rollout") == str(program):
        return f"otel-rollout {name}"
    return f"{os.path.relpath(program)} {name}"


def _python() -> str:
    """Return how this Python is called from here."""
    if shutil.which("python") == sys.executable:
        return "python"
    path = os.path.relpath(sys.executable)
    return sys.executable if path.startswith("..") else path


def _unreached(backend: str) -> list[str]:
    return [
        f"Nothing has arrived at {backend}.",
        "Start it, or correct its address or credentials, and run the demo again; `--backend console` needs none.",
    ]


def _tracking_uri(environ: Mapping[str, str]) -> str:
    return _without_password(environ.get("MLFLOW_TRACKING_URI") or DEFAULT_TRACKING_URI)


def _folder(environ: Mapping[str, str]) -> str:
    return environ.get("OTEL_ROLLOUT_DIR") or DEFAULT_FOLDER


def _is_server(environ: Mapping[str, str]) -> bool:
    return _tracking_uri(environ).startswith(("http://", "https://"))


def _otlp_endpoint(environ: Mapping[str, str]) -> str:
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if environ.get(variable):
            return _without_password(environ[variable])
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    return "http://localhost:4317" if protocol == "grpc" else "http://localhost:4318"


def _without_password(uri: str) -> str:
    return re.sub(r"(://[^/:@]*):[^/@]*@", r"\1:***@", uri)


def _mlflow_command() -> str:
    """Return what runs the whole of mlflow, in the version that made the store: others may refuse its tables."""
    if _version("mlflow"):
        return _program("mlflow") or "mlflow"
    version = _version("mlflow-skinny")
    uvx = _program("uvx") or f"{_python()} -m pip install uv && {_python()} -m uv tool run"
    return f"{uvx} --from mlflow{'==' + version if version else ''} mlflow"


def _program(name: str) -> str | None:
    """Return how a program is called from here: by its name, else by its path beside this Python; None if neither."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return os.path.relpath(beside) if beside.exists() else None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
