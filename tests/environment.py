"""The variables of the test run: none of the project's, of its backends' or of what started it."""

from __future__ import annotations

import os

__all__ = ["clean", "without_settings"]

PREFIXES = ("OTEL_", "MLFLOW_", "PHOENIX_", "TRACKIO_", "WANDB_", "WEAVE_", "WF_TRACE_", "RAY_", "MAKE")
"""Settings of the project, the backends and make."""
NAMES = {"BROWSER", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "MFLAGS", "NO_COLOR", "PYTHONWARNINGS"}
"""What changes how programs print."""


def without_settings() -> dict[str, str]:
    """Return this process's variables without settings: what a test has set is not a server's that others share."""
    kept = {name: value for name, value in os.environ.items() if name not in NAMES and not name.startswith(PREFIXES)}
    # mlflow reports its use to its makers unless it is told not to, and reads this when it is imported.
    return {**kept, "MLFLOW_DISABLE_TELEMETRY": "true"}


def clean() -> None:
    """Take the settings away from this process, and so from the programs that it starts."""
    kept = without_settings()
    os.environ.clear()
    os.environ.update(kept)
