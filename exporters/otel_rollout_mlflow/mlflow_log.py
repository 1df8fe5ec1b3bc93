"""MLflow's log lines in the process that writes to its database, kept from the terminal.

In an outage MLflow logs each statement with its parameters, hundreds of lines in a few seconds. The failures are
reported by delivery; of anything else the first line is handed to the trainer's process.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LogCatcher"]

MAX_LINES: Final = 20
MAX_CHARACTERS: Final = 300
_LOGGERS: Final = ("mlflow", "alembic", "sqlalchemy", "otel_rollout")


class LogCatcher(logging.Handler):
    """Keeps one line per cause, of warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: dict[tuple[str, str], str] = {}
        self._seen: set[tuple[str, str]] = set()

    def install(self) -> None:
        """Take the place of the handlers of MLflow, alembic and SQLAlchemy; MLflow must be imported already."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("mlflow."):
                logging.getLogger(name).handlers.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the beginning of a record, if it is the first of its cause."""
        try:
            lines = record.getMessage().strip().splitlines()
        except Exception:
            lines = [str(record.msg)]
        # MLflow's "The following exception is caught." has it in the next line; statements begin with a bracket.
        shown = lines[:2] if len(lines) > 1 and not lines[1].startswith("[") else lines[:1]
        line = f"{record.name}: {' '.join(shown)[:MAX_CHARACTERS]}"
        # One place in the code is one cause, whatever the names and parameters in the message; ours are all one place.
        cause = record.name, line if record.name == "otel_rollout" else f"{record.pathname}:{record.lineno}"
        if cause not in self._seen and len(self._seen) < MAX_LINES:
            self._seen.add(cause)
            self._lines[cause] = line

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines = list(self._lines.values())
        self._lines.clear()
        return lines
