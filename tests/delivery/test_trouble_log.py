"""What one exporter's delivery says in the log."""

from __future__ import annotations

import pytest

from otel_rollout.export import TroubleLog
from otel_rollout.export.outcome import Outcome, Verdict


class TestTroubleLog:
    """How often trouble is told."""

    def test_each_kind_is_told_once_in_a_while(self, caplog: pytest.LogCaptureFixture):
        """A second failure of the same kind within a minute is not told; one of another kind is."""
        log = TroubleLog("otlp")

        log.note(Outcome(Verdict.RETRY, "refused"))
        log.note(Outcome(Verdict.RETRY, "reset"))
        log.note(Outcome(Verdict.TOO_LARGE, "413"))

        assert [record.getMessage() for record in caplog.records] == [
            "otlp: not delivered, trying again (refused)",
            "otlp: a batch is too large, sending it in parts (413)",
        ]

    def test_a_refusal_is_told_once(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
        """The same configuration error is told once, however long it lasts; for another reason, again."""
        log = TroubleLog("otlp")
        clock = iter(range(0, 100_000, 1000))
        monkeypatch.setattr("otel_rollout.export.trouble_log.monotonic", lambda: next(clock))

        for reason in ("401", "401", "401", "403"):
            log.note(Outcome(Verdict.CONFIGURATION_ERROR, reason))

        assert [record.getMessage().rpartition("(")[2] for record in caplog.records] == ["401)", "403)"]
