"""One exporter's trouble beside another that works."""

from __future__ import annotations

import pytest
from trainer import account


class TestOtherExporters:
    """Several exporters in one process."""

    @pytest.mark.parametrize(
        ("broken", "lost"), [("raising", {"shutdown": 48}), ("blocking", {"unknown": 24, "shutdown": 24})]
    )
    def test_costs_the_others_nothing(self, receiver, start, train, broken, lost) -> None:
        """Beside an exporter that raises SystemExit or never returns, the other gets everything, and training too."""
        trainer = start(receiver, BACKENDS=f"{broken},otlp", shutdown_timeout_ms=500)
        for spans in (24, 48):
            train(trainer)
            assert trainer.flush(0.1) is False
            trainer.await_counts("otlp", lambda counts, spans=spans: counts["delivered"] == spans)
        assert trainer.finish() == 0
        report = trainer.report["exporters"]
        assert account(trainer.sent, receiver.stored, report["otlp"]) == {}
        assert set(receiver.stored.values()) == {1}
        assert account(trainer.sent, {}, report[broken.capitalize()]) == lost

    def test_a_dead_backend_beside_a_living_one(self, receiver, start, train, tmp_path) -> None:
        """A backend that nobody answers for keeps neither spans nor memory of the one beside it."""
        trainer = start(
            receiver,
            BACKENDS="mlflow,otlp",
            MLFLOW_TRACKING_URI="http://127.0.0.1:9",
            MLFLOW_DISABLE_TELEMETRY="true",
            shutdown_timeout_ms=500,
        )
        train(trainer)
        assert trainer.flush(0.1) is False
        trainer.await_counts("otlp", lambda counts: counts["delivered"] == 24)
        assert trainer.finish() == 0
        report = trainer.report["exporters"]
        assert account(trainer.sent, receiver.stored, report["otlp"]) == {}
        assert account(trainer.sent, {}, report["mlflow"]) == {"shutdown": 24}
