"""Trajectories in a real trackio, read back by its own command line and API."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import requests

from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout_trackio import TrackioSpanExporter
from otel_rollout_trackio.translate import translate
from tests.exporters.trackio.spans import make_span, make_trajectory

pytestmark = pytest.mark.integration

PROGRAM = str(Path(__file__).parent / "programs" / "worker.py")


class TestFolder:
    """trackio's own folder."""

    def test_what_is_stored_is_what_was_translated(self, trackio, exporter):
        """Messages, metadata, spans, step, time and run come back as they were sent, and as one trace."""
        spans = make_trajectory()

        assert exporter.send(spans) == DELIVERED

        (stored,) = trackio.traces("math")
        sent = translate(spans)
        assert {key: stored[key] for key in ("messages", "metadata", "spans")} == {
            key: sent.trace[key] for key in ("messages", "metadata", "spans")
        }
        assert (stored["run_id"], stored["step"], stored["key"]) == (sent.run_id, 7, "agent_loop")
        assert stored["timestamp"] == sent.timestamp
        whole = trackio.ask("get", "trace", stored["id"], "--project", "math", "--run", "exp-1")
        assert whole["trace"]["summary"]["status"] == "success"
        assert whole["trace"]["summary"]["duration_ms"] == 3000.0

    def test_a_second_time_changes_nothing(self, trackio, exporter):
        """A trajectory that is sent again, as by a retry or a replay, is stored once, as it was."""
        exporter.send(make_trajectory())
        again = TrackioSpanExporter(folder=trackio.folder)

        assert again.send(make_trajectory(reward=0.75)) == DELIVERED
        again.shutdown()

        (stored,) = trackio.traces("math")
        assert stored["metadata"]["reward"] == 0.5

    def test_all_processes_are_one_run(self, trackio):
        """Four workers that start at once on a fresh folder store all, in one run, without importing trackio."""
        workers = [trackio.run_program(PROGRAM, "many", "10", "end") for _ in range(4)]

        told = [json.loads(worker.communicate(timeout=240)[0].splitlines()[-1]) for worker in workers]

        assert told == [{"is_whole": True, "delivered": 20, "queued": 0, "lost": {}, "heavy": []}] * 4
        stored = trackio.ask("list", "traces", "--project", "many", "--run", "exp-1")["traces"]
        assert len({trace["id"] for trace in stored}) == 40
        assert len({trace["run_id"] for trace in stored}) == 1

    def test_what_a_killed_process_leaves(self, trackio):
        """Ended trajectories are stored before a kill; the running one's span was still counted as queued."""
        worker = trackio.run_program(PROGRAM, "killed", "5", "hang")
        told = json.loads(next(line for line in worker.stdout if line.startswith("{")))
        worker.kill()
        worker.communicate(timeout=60)

        assert told == {"is_whole": False, "delivered": 10, "queued": 1, "lost": {}, "heavy": []}
        assert sorted(trace["metadata"]["sample_index"] for trace in trackio.traces("killed")) == [0, 1, 2, 3, 4]

    def test_an_unfinished_trajectory_is_stored_at_the_shutdown(self, trackio, exporter):
        """Spans whose root never comes are stored as unfinished when the exporter is shut down."""
        exporter.send(make_trajectory()[:2])
        assert exporter.held.spans == 2

        exporter.shutdown()

        (stored,) = trackio.traces("math")
        assert (stored["key"], stored["metadata"]["status"]) == ("unfinished", "unfinished")
        assert [span["name"] for span in stored["spans"]] == ["generate", "calculator"]
        assert (exporter.held.spans, dict(exporter.held.lost)) == (0, {})

    def test_a_late_span_is_stored_beside_its_trajectory(self, trackio, exporter):
        """A span after the root, which trackio can't add to the stored trace, becomes one of its own."""
        exporter.send(make_trajectory())

        exporter.send([make_span("compute_score", 9, attributes={"rollout.reward": 1.0})])

        stored = {trace["key"]: trace["metadata"] for trace in trackio.traces("math")}
        assert stored["agent_loop"]["reward"] == 0.5
        assert stored["unfinished"]["trace_id"] == stored["agent_loop"]["trace_id"]
        assert exporter.held.spans == 0

    def test_read_back(self, exporter):
        """The spans that trackio has are found, those of another trajectory are not."""
        exporter.send(make_trajectory())

        assert exporter.read_back(make_trajectory()).found == 4
        assert exporter.read_back(make_trajectory(trace_id=0xDEF)).found == 0

    def test_the_page_of_a_project_with_an_odd_name(self, trackio, exporter):
        """A name that trackio shortens for its files is the one that its reading finds."""
        exporter.send(make_trajectory(project="math/v1.0 ü"))

        assert len(trackio.traces("math/v1.0 ü")) == 1

    def test_a_name_that_trackio_refuses(self, exporter):
        """A project whose files would be another's is a configuration error."""
        outcome = exporter.send(make_trajectory(project="math_traces"))

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "not allowed" in outcome.reason

    def test_a_locked_database(self, trackio, exporter, monkeypatch):
        """While another process holds trackio's lock, the batch is to be retried; then it is stored."""
        import fcntl

        trackio.folder.mkdir()
        with (trackio.folder / "math.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.RETRY, outcome
        assert exporter.send(make_trajectory()) == DELIVERED

    def test_a_folder_that_is_a_file(self, trackio, tmp_path):
        """A place where nothing can be written is a configuration error, and says which."""
        (tmp_path / "file").touch()
        exporter = TrackioSpanExporter(folder=tmp_path / "file")

        outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        exporter.shutdown()

    def test_on_a_network_file_system(self, trackio, monkeypatch):
        """Where trackio keeps from SQLite, trajectories go into its inbox, which its dashboard imports, once."""
        monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
        for _ in range(2):
            exporter = TrackioSpanExporter(folder=trackio.folder)
            assert exporter.send(make_trajectory()) == DELIVERED
            exporter.shutdown()
        assert not list(trackio.folder.glob("*.db"))
        assert len(list(trackio.folder.glob("inbox/*/*.jsonl"))) == 2

        program = "from trackio.fragments import import_inbox_dir; import_inbox_dir()"
        output, _ = trackio.run_program("-c", program).communicate(timeout=60)

        assert output == ""
        assert len(trackio.traces("math")) == 1

    def test_by_the_public_api(self, trackio, exporter, tmp_path, monkeypatch):
        """A trackio whose store takes no ids gets the same trace by `run.log`."""
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        # An import hook in the worker process: its store has another signature there.
        (hidden / "sitecustomize.py").write_text(
            "import otel_rollout_trackio.worker as worker\nworker._is_idempotent = lambda: False\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hidden), *sys.path]))

        assert exporter.send(make_trajectory()) == DELIVERED

        (stored,) = trackio.traces("math")
        assert stored["run_id"] != translate(make_trajectory()).run_id
        assert stored["metadata"] == translate(make_trajectory()).trace["metadata"]
        assert stored["step"] == 7

    def test_without_trackio(self, exporter, monkeypatch):
        """If the worker can't import trackio, the outcome has the line that installs it."""
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "/trackio-" not in entry])

        outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "pip install 'otel-rollout[trackio]'" in outcome.reason

    def test_a_killed_worker_process_is_replaced(self, trackio, exporter):
        """If the process that writes is killed, the batch is retried with a new one."""
        exporter.send(make_trajectory())
        exporter._store._worker._process.kill()

        outcome = exporter.send(make_trajectory(trace_id=0xDEF))

        assert outcome.verdict is Verdict.RETRY
        assert exporter.send(make_trajectory(trace_id=0xDEF)) == DELIVERED
        assert len(trackio.traces("math")) == 2


class TestServer:
    """A trackio server."""

    def test_the_same_trajectory_once(self, trackio, server):
        """A server stores what a folder does; a second time changes nothing; it is read back."""
        for url in (f"{server.address}/?write_token={server.write_token}", server.address):
            exporter = TrackioSpanExporter(server_url=url, write_token=server.write_token)
            assert exporter.send(make_trajectory()) == DELIVERED
            assert exporter.read_back(make_trajectory()).found == 4
            exporter.shutdown()

        question = {"project": "math", "run": "exp-1"}
        (stored,) = requests.post(f"{server.address}/api/get_traces", json=question, timeout=30).json()["data"]
        sent = translate(make_trajectory())
        assert (stored["messages"], stored["spans"]) == (sent.trace["messages"], sent.trace["spans"])
        assert stored["run_id"] == sent.run_id
        with closing(sqlite3.connect(trackio.folder / "math.db")) as database:
            assert database.execute("SELECT COUNT(*) FROM traces").fetchone() == (1,)

    def test_a_wrong_token(self, server):
        """A server that refuses the token is a configuration error, and the token is not in the message."""
        exporter = TrackioSpanExporter(server_url=f"{server.address}?write_token=s3cret")

        outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR, outcome
        assert "s3cret" not in outcome.reason
