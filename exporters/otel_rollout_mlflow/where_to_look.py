"""Explain to people how to find trajectories in MLflow."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Final

from otel_rollout.export.http import without_userinfo

DRIVERS: Final = {
    "postgresql://": "psycopg[binary]",
    "postgresql+psycopg://": "psycopg[binary]",
    "mysql+pymysql://": "pymysql",
}
"""The driver that a server needs besides MLflow, by how its database's address begins."""


def where_to_look(uri: str, project_name: str, experiment_name: str) -> list[str]:
    """Return a query for the trajectories of the first step, and how to open the UI; code is indented."""
    shown = without_userinfo(uri)
    # A password isn't shown, and without it the address leads nowhere.
    is_secret, uri = uri != shown, shown
    tracking_uri = 'os.environ["MLFLOW_TRACKING_URI"]' if is_secret else f'"{uri}"'
    lines = [
        f"The trajectories are in MLflow, experiment {project_name}.",
        f"Find those of the first step in {sys.executable} with",
        "",
        "    import os, mlflow" if is_secret else "    import mlflow",
        f"    mlflow.set_tracking_uri({tracking_uri})",
        f'    mlflow.set_experiment("{project_name}")',
        f"    run = \"tags.experiment_name = '{experiment_name}'\"",
        "    found = mlflow.search_traces(filter_string=f\"{run} AND tags.step = '1'\")",
        '    print(len(found), "trajectories")',
        "",
    ]
    if uri.startswith(("http://", "https://")):
        return [*lines, f"Open {uri} and choose the experiment {project_name}, tab Traces."]
    store = '"$MLFLOW_TRACKING_URI"' if is_secret else uri
    server = f"mlflow server --backend-store-uri {store} --port 5000"
    driver = next((f" --with '{package}'" for scheme, package in DRIVERS.items() if uri.startswith(scheme)), "")
    try:
        metadata.version("mlflow")
    except metadata.PackageNotFoundError:
        # mlflow-skinny has no server; another version of mlflow may refuse the store's tables.
        try:
            version = f"=={metadata.version('mlflow-skinny')}"
        except metadata.PackageNotFoundError:
            version = ""
        return [
            *lines,
            "Open the MLflow UI (http://127.0.0.1:5000) with the following (`pip install uv` brings uvx)",
            "",
            f"    uvx --from mlflow{version}{driver} {server}",
        ]
    return [*lines, "Open the MLflow UI (http://127.0.0.1:5000) with", "", f"    {server}"]
