"""How to find trajectories in MLflow, for people."""

from __future__ import annotations

import sys
from importlib import metadata

from otel_rollout.export.http import without_userinfo

__all__ = ["where_to_look"]


def where_to_look(uri: str, project_name: str, experiment_name: str) -> list[str]:
    """Return a query for the trajectories of the first step, and how to open the UI; code is indented.

    Args:
        uri: The tracking URI.
        project_name: The project of the trajectories: MLflow's experiment.
        experiment_name: Their experiment: a tag in MLflow.
    """
    uri = without_userinfo(uri)
    query = f"tags.experiment_name = '{experiment_name}' AND tags.step = '1'"
    lines = [
        f"The trajectories are in MLflow, experiment {project_name}.",
        f"Find those of the first step in {sys.executable} with",
        "",
        "    import mlflow",
        f'    mlflow.set_tracking_uri("{uri}")',
        f'    mlflow.set_experiment("{project_name}")',
        f'    print(len(mlflow.search_traces(filter_string="{query}")), "trajectories")',
        "",
    ]
    if uri.startswith(("http://", "https://")):
        return [*lines, f"Open {uri} and choose the experiment {project_name}, tab Traces."]
    server = f"mlflow server --backend-store-uri {uri} --port 5000"
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
            f"    uvx --from mlflow{version} {server}",
        ]
    return [*lines, "Open the MLflow UI (http://127.0.0.1:5000) with", "", f"    {server}"]
