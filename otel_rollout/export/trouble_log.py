"""One exporter's warnings: each kind of trouble at most once a minute, a configuration error once."""

from __future__ import annotations

from typing import Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.safe_logger import SafeLogger

_logger = SafeLogger()

SECONDS_BETWEEN_REPEATS: Final = 60.0

_CONSEQUENCES: Final = {
    Verdict.RETRY: "not delivered, trying again",
    Verdict.TOO_LARGE: "a batch is too large, sending it in parts",
    Verdict.REFUSED: "a batch was refused, looking for the span at fault",
    Verdict.CONFIGURATION_ERROR: "auth or configuration error: spans are kept within the bound until it is fixed",
    Verdict.UNEXPLAINED: "failed, trying again",
    Verdict.DELIVERED: "the backend did not keep all spans",
}


class TroubleLog:
    """Warns of what goes wrong on the way to one exporter.

    Args:
        exporter: The exporter's name.
    """

    def __init__(self, exporter: str) -> None:
        self._exporter = exporter
        self._last: dict[str, float] = {}
        self._last_configuration_error = ""

    def note(self, outcome: Outcome, waiting: str = "") -> None:
        """Warn of an attempt that did not deliver everything.

        Args:
            outcome: The outcome of the attempt.
            waiting: The work that waits for the next one, in words.
        """
        if outcome.verdict is Verdict.CONFIGURATION_ERROR:
            # It lasts until someone fixes a setting: a repeated line helps nobody.
            if outcome.reason == self._last_configuration_error:
                return
            self._last_configuration_error = outcome.reason
        text = f"{_CONSEQUENCES[outcome.verdict]} ({outcome.reason})"
        self.warn(outcome.verdict.value, f"{text}; {waiting}" if waiting else text)

    def warn(self, kind: str, text: str) -> None:
        """Warn, unless there was a warning of this kind within the last minute.

        Args:
            kind: The kind of trouble.
            text: The text of the warning.
        """
        now = monotonic()
        last = self._last.get(kind)
        if last is None or now - last > SECONDS_BETWEEN_REPEATS:
            self._last[kind] = now
            _logger.warning("%s: %s", self._exporter, text)
