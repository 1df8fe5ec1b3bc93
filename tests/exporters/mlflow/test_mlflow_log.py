"""MLflow's log lines in the process that writes to its database."""

from __future__ import annotations

import logging

import pytest

from otel_rollout_mlflow.sql_worker import LogCatcher


@pytest.fixture
def catcher(monkeypatch) -> LogCatcher:
    """A catcher in the place of MLflow's handlers, which come back after the test."""
    # mlflow's own handlers come with it.
    pytest.importorskip("mlflow")
    for name in ("mlflow", "alembic", "sqlalchemy", "otel_rollout"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))
        monkeypatch.setattr(logger, "propagate", logger.propagate)
    catcher = LogCatcher()
    catcher.install()
    return catcher


class TestLogCatcher:
    """What is handed to the trainer's process."""

    def test_once_per_cause(self, catcher, capfd) -> None:
        """A failure that repeats is one line without the statement below it, and nothing reaches the terminal."""
        logger = logging.getLogger("mlflow.store.db.utils")
        for number in range(100):
            logger.error("SQLAlchemy database error %d.\n[SQL: INSERT INTO spans …]\n[parameters: …]", number)
            logger.info("Creating initial MLflow database tables...")
        assert catcher.take() == ["mlflow.store.db.utils: SQLAlchemy database error 0."]
        assert catcher.take() == []
        assert capfd.readouterr() == ("", "")

    def test_exception_in_the_next_line(self, catcher) -> None:
        """A line that only announces an exception is handed over with it."""
        text = "The following exception is caught.\n(OperationalError) gone away\n[SQL: INSERT INTO spans …]"
        logging.getLogger("mlflow.store.db.utils").error(text)
        assert catcher.take() == [
            "mlflow.store.db.utils: The following exception is caught. (OperationalError) gone away"
        ]

    def test_our_own_lines(self, catcher) -> None:
        """Different warnings of ours in that process are different causes."""
        for text in ("one", "two", "two"):
            logging.getLogger("otel_rollout").warning(text)
        assert catcher.take() == ["otel_rollout: one", "otel_rollout: two"]
