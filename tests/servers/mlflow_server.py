"""An MLflow tracking server for tests, with a database behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from .process import ServerProcess, answers_http, free_port

__all__ = ["Mlflow"]


class Mlflow:
    """One `mlflow server`.

    Args:
        environment: The virtual environment that mlflow is installed in.
        arguments: More arguments of the command.
        variables: More environment variables.
        scheme: `http` or `https`.
        healthy: Whether the server is up, asked in another way than by a plain GET of /health.
        store: The database that it keeps everything in.
        workers: How many processes answer.
        uncaptured: See `ServerProcess`.
    """

    def __init__(
        self,
        environment: Path,
        *,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        scheme: str = "http",
        healthy: Callable[[int], bool] | None = None,
        store: str = "sqlite:///mlflow.db",
        workers: int = 1,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        port = free_port()
        self.address = f"{scheme}://127.0.0.1:{port}"
        command = [str(environment / "bin" / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--workers", str(workers), "--backend-store-uri", store]
        self.process = ServerProcess(
            "MLflow",
            [*command, *arguments],
            lambda: healthy(port) if healthy else answers_http(f"{self.address}/health"),
            environment={
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_DISABLE_TELEMETRY": "true",
                # The server starts its workers by name.
                "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
                **(variables or {}),
            },
            uncaptured=uncaptured,
        )
        self.database = self.process.folder / "mlflow.db"

    def run_of_traces(self) -> dict[str, str]:
        """Return the run that each trace is associated with, from the database: old versions' clients don't show it."""
        with closing(sqlite3.connect(self.database, timeout=30)) as connection:
            rows = connection.execute(
                "select source_id, destination_id from entity_associations "
                "where source_type = 'trace' and destination_type = 'run'"
            )
            return dict(rows.fetchall())

    def __enter__(self) -> Mlflow:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()
