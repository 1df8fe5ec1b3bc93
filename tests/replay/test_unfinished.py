"""What a replay does with trajectories that have no root: a crash has left them, or they are running."""

from __future__ import annotations

import otel_rollout
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout_file import FileSpanExporter
from tests.replay.recordings import run_agent
from tests.trace_folder.recordings import write_folder


class TestUnfinished:
    """Trajectories without a root."""

    def test_those_that_are_running_are_left_for_later(self, replayed, memory, tmp_path, project):
        """What a running process has in its journal is about to be written to its place: the next replay takes it."""
        folder = tmp_path / "running"
        otel_rollout.init(project, "exp-1", backend=FileSpanExporter(folder=folder))
        run_agent(1, 0, 0)
        with otel_rollout.rollout_trace_attr(sample_index=1, step=1, rollout_n=0):
            otel_rollout.rollout_trace_op(lambda: None)()
            assert otel_rollout.flush(60)

            first = replayed(folder, memory)

        otel_rollout.shutdown(30.0)
        second = replayed(folder, memory)

        assert (first.report.delivered, first.report.is_whole) == (1, True)
        assert "1 left for later: their process has not finished them" in first.notes
        assert (second.report.delivered, second.report.skipped, second.notes) == (1, 1, [])

    def test_those_that_an_exporter_holds(self, record, replayed, tmp_path):
        """An exporter that waits for roots stores what it holds before a trajectory without one counts as delivered."""
        live = InMemorySpanExporter()
        record(live, steps=(1,), samples=1, folder=tmp_path / "other")
        write_folder(tmp_path / "crashed", [span for span in live.spans if span.parent is not None])
        holding = _Holding()

        failed = replayed(tmp_path / "crashed", holding)
        holding.is_away = False
        done = replayed(tmp_path / "crashed", holding)

        assert (failed.report.delivered, failed.report.undelivered, failed.report.reason) == (0, 2, "away")
        assert (done.report.delivered, len(holding.stored)) == (2, 4)


class _Holding(OutcomeSpanExporter):
    """Stores nothing before it is asked to, and nothing at all while it is away."""

    is_away = True
    destination = "memory"

    def __init__(self):
        self.held, self.stored = {}, []

    def send(self, spans):
        self.held.update({span.context.span_id: span for span in spans})
        return DELIVERED

    def store_held(self):
        if self.is_away:
            return Outcome(Verdict.RETRY, "away")
        self.stored += self.held.values()
        self.held.clear()
        return DELIVERED

    def shutdown(self):
        pass
