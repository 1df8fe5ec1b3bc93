"""A logger whose handlers and filters, which are the application's, can't raise into the traced program."""

from __future__ import annotations

import logging
import sys

from otel_rollout.guard.provenance import is_programs


class SafeLogger:
    """Logs in place; what a handler raises is dropped."""

    def __init__(self, name: str = "otel_rollout") -> None:
        self._name = name

    def log(self, level: int, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log a message."""
        try:
            logging.getLogger(self._name).log(level, message, *arguments, exc_info=error)
        except BaseException as raised:
            if is_programs(raised):
                raise

    def info(self, message: str, *arguments: object) -> None:
        """Log what may interest someone."""
        self.log(logging.INFO, message, *arguments)

    def warning(self, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log a warning."""
        self.log(logging.WARNING, message, *arguments, error=error)

    def error(self, message: str, *arguments: object) -> None:
        """Log an error."""
        self.log(logging.ERROR, message, *arguments)

    def exception(self, message: str, *arguments: object) -> None:
        """Log an error with the exception that is being handled."""
        self.log(logging.ERROR, message, *arguments, error=sys.exc_info()[1])
