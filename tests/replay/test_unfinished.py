"""What a replay does with trajectories that have no root: a crash has left them, or they are running."""

from __future__ import annotations

import otel_rollout
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout.trace_folder.folder_writer import FolderWriter
from otel_rollout_file import FileSpanExporter
from tests.replay.recordings import run_agent


class TestUnfinished:
    """Trajectories without a root."""

    def test_those_of_a_process_that_is_gone_are_sent(self, record, replayed, memory, tmp_path):
        """What a crash has left is sent as it is, and said to be without a root."""
        live = InMemorySpanExporter()
        record(live, steps=(1,), samples=1, folder=tmp_path / "other")
        folder = tmp_path / "crashed"
        writer = FolderWriter(folder)
        writer.write([span for span in live.spans if span.parent is not None])
        writer.close()

        done = replayed(folder, memory)

        assert (done.report.delivered, len(memory.spans)) == (2, 4)
        assert "2 without a root: their process ended before they did" in done.notes

    def test_those_that_are_running_are_left_for_later(self, replayed, memory, tmp_path, project):
        """What a running process has in its journal is about to be written to its place: the next replay takes it."""
        folder = tmp_path / "running"
        otel_rollout.init(project, "exp-1", backend=FileSpanExporter(folder=folder))
        run_agent(1, 0, 0)
        with otel_rollout.rollout_trace_attr(sample_index=1, step=1, rollout_n=0):
            otel_rollout.rollout_trace_op(lambda: None)()
            assert otel_rollout.flush(30.0)

            first = replayed(folder, memory)

        otel_rollout.shutdown(30.0)
        second = replayed(folder, memory)

        assert (first.report.delivered, first.report.is_whole) == (1, True)
        assert "1 left for later: their process has not finished them" in first.notes
        assert (second.report.delivered, second.report.skipped, second.notes) == (1, 1, [])
