"""Trajectories in a real trackio, read back by its own API and command line."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout.installing import install_line
from otel_rollout_trackio import TrackioSpanExporter
from otel_rollout_trackio.translate import translate
from tests.exporters.trackio.spans import make_span, make_trajectory

pytestmark = pytest.mark.integration


def _takes(name):
    try:
        TrackioSpanExporter().check_project(name)
    except ConfigurationError:
        return False
    return True


PROGRAM = str(Path(__file__).parent / "programs" / "worker.py")


class TestFolder:
    """trackio's own folder."""

    def test_what_is_stored_is_what_was_translated(self, trackio_server, exporter, project):
        """Messages, metadata, spans, step, time and run come back as they were sent, by trackio's commands too."""
        assert exporter.send(make_trajectory(project=project)) == DELIVERED

        (stored,) = trackio_server.traces(project)
        sent = translate(make_trajectory(project=project))
        parts = ("messages", "metadata", "spans")
        assert {key: stored[key] for key in parts} == {key: sent.trace[key] for key in parts}
        assert (stored["run_id"], stored["step"], stored["key"]) == (sent.run_id, 7, "agent_loop:0.5")
        assert stored["timestamp"] == sent.timestamp
        place = ("--project", project, "--run", "exp-1")
        (listed,) = trackio_server.command("list", "traces", *place, "--step", "7")["traces"]
        assert listed["summary"]["status"] == "success"
        assert listed["summary"]["duration_ms"] == 3000.0

    def test_a_second_time_changes_nothing(self, trackio_server, exporter, project):
        """A trajectory that is sent again, as by a retry or a replay, is stored once, as it was."""
        exporter.send(make_trajectory(project=project))

        assert exporter.send(make_trajectory(project=project, words="Other words?")) == DELIVERED

        (stored,) = trackio_server.traces(project)
        assert stored["messages"][0]["content"] == "What is 17 * 3?"

    @pytest.mark.slow
    def test_all_processes_are_one_run(self, trackio_server, project):
        """Four workers that start at once store all, in one run, without importing trackio."""
        workers = [trackio_server.python(PROGRAM, project, "10", "end") for _ in range(4)]

        told = [json.loads(worker.communicate(timeout=240)[0].splitlines()[-1]) for worker in workers]

        assert told == [{"is_whole": True, "delivered": 20, "queued": 0, "lost": {}, "heavy": []}] * 4
        stored = trackio_server.traces(project)
        assert len({trace["id"] for trace in stored}) == 40
        assert len({trace["run_id"] for trace in stored}) == 1

    def test_what_a_killed_process_leaves(self, trackio_server, project):
        """Ended trajectories are stored before a kill; the running one's span still counts as queued."""
        worker = trackio_server.python(PROGRAM, project, "5", "hang")
        told = json.loads(next(line for line in worker.stdout if line.startswith("{")))
        worker.kill()
        worker.communicate(timeout=60)

        assert told == {"is_whole": False, "delivered": 10, "queued": 1, "lost": {}, "heavy": []}
        stored = trackio_server.traces(project)
        assert sorted(trace["metadata"]["sample_index"] for trace in stored) == [0, 1, 2, 3, 4]

    def test_an_unfinished_trajectory(self, trackio_server, exporter, project):
        """Spans whose root doesn't come are stored as unfinished; what comes later stands beside them."""
        spans = make_trajectory(project=project, trace_id=0x1)
        exporter.send(spans[:2])
        assert trackio_server.traces(project) == []

        assert exporter.store_held() == DELIVERED
        exporter.send(spans[2:])

        stored = {trace["key"]: trace for trace in trackio_server.traces(project)}
        assert {key: len(trace["spans"]) for key, trace in stored.items()} == {"unfinished:": 2, "agent_loop:0.5": 2}
        assert stored["unfinished:"]["metadata"]["status"] == "unfinished"
        assert len({trace["metadata"]["trace_id"] for trace in stored.values()}) == 1

    def test_a_late_reward(self, trackio_server, exporter, project):
        """A span after the root, which trackio can't add to the stored trace, becomes a trace of its own."""
        exporter.send(make_trajectory(project=project, trace_id=0x2))
        late = make_span(
            "compute_score",
            9,
            trace_id=0x2,
            project=project,
            is_parent_remote=True,
            attributes={"rollout.reward": 1.0},
        )

        assert exporter.send([late]) == DELIVERED

        stored = {trace["key"]: trace["metadata"] for trace in trackio_server.traces(project)}
        assert (stored["agent_loop:0.5"]["reward"], stored["compute_score:1"]["reward"]) == (0.5, 1.0)
        assert stored["compute_score:1"]["trace_id"] == stored["agent_loop:0.5"]["trace_id"]

    def test_read_back(self, exporter, project):
        """The spans that trackio has are found, those of another trajectory are not."""
        exporter.send(make_trajectory(project=project))

        assert exporter.read_back(make_trajectory(project=project)).found == 4
        assert exporter.read_back(make_trajectory(project=project, trace_id=0xDEF)).found == 0

    def test_a_project_with_an_odd_name(self, trackio_server, exporter):
        """A name that trackio shortens for its files is the one that its reading finds."""
        exporter.send(make_trajectory(project="math/v1.0 ü"))

        assert len(trackio_server.traces("math/v1.0 ü")) == 1

    def test_a_name_that_trackio_refuses(self, exporter):
        """A project whose files would be another's is a configuration error."""
        outcome = exporter.send(make_trajectory(project="math_traces"))

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "not allowed" in outcome.reason

    def test_init_refuses_the_names_that_trackio_does(self, trackio_server):
        """trackio's own check has the same verdict on each name: reserved, odd, or fine."""
        names = ["registry-a", "re/gistry-a", "math v1.0", "_traces", "", "/", "registry", "traces", "a.registry-"]
        names += [f"a{suffix}" for suffix in TrackioSpanExporter.reserved_suffixes]
        program = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
def takes(name):
    try:
        SQLiteStorage.validate_project_name(name)
    except ValueError:
        return False
    return True
reserved = ["system", "configs", "traces", *SQLiteStorage._ARTIFACT_PARQUET_TABLES]
print(json.dumps([[takes(name) for name in json.loads(sys.argv[1])], [f"_{name}" for name in reserved]]))
"""
        python = trackio_server.environment / "bin" / "python"
        asked = subprocess.run([python, "-c", program, json.dumps(names)], capture_output=True, text=True, check=True)
        verdicts, reserved = json.loads(asked.stdout)

        assert [_takes(name) for name in names] == verdicts
        assert list(TrackioSpanExporter.reserved_suffixes) == reserved

    def test_a_place_that_is_a_file(self, packages, tmp_path):
        """A folder that can't be made is a configuration error."""
        (tmp_path / "file").touch()
        exporter = TrackioSpanExporter(folder=tmp_path / "file")

        outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert str(tmp_path / "file") in outcome.reason
        exporter.shutdown()

    @pytest.mark.slow
    def test_on_a_network_file_system(self, trackio_server, packages, tmp_path, monkeypatch):
        """Where trackio keeps from SQLite, trajectories go into its inbox; imported twice they are one."""
        monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
        exporter = TrackioSpanExporter(folder=tmp_path)
        for _ in range(2):
            assert exporter.send(make_trajectory()) == DELIVERED
        exporter.shutdown()
        assert len(list(tmp_path.glob("inbox/*/*.jsonl"))) == 2
        assert not list(tmp_path.glob("*.db"))

        program = (
            "from trackio.fragments import import_inbox_dir; from trackio.sqlite_storage import SQLiteStorage;"
            "import_inbox_dir(); print(len(SQLiteStorage.get_traces('math', run='exp-1')))"
        )
        printed, _ = trackio_server.python("-c", program, TRACKIO_DIR=str(tmp_path)).communicate(timeout=120)

        assert printed == "1\n"

    @pytest.mark.slow
    def test_by_the_public_api(self, trackio_server, packages, project, tmp_path, monkeypatch):
        """A trackio whose store takes no ids gets the same trace by `run.log`."""
        # Python imports this in the worker process before the worker.
        (tmp_path / "sitecustomize.py").write_text(
            "import otel_rollout_trackio.worker as worker\nworker._is_idempotent = lambda: False\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        exporter = TrackioSpanExporter(folder=trackio_server.folder)

        assert exporter.send(make_trajectory(project=project)) == DELIVERED
        exporter.shutdown()

        (stored,) = trackio_server.traces(project)
        sent = translate(make_trajectory(project=project))
        assert stored["run_id"] != sent.run_id
        assert (stored["metadata"], stored["step"]) == (sent.trace["metadata"], 7)

    def test_without_trackio(self, tmp_path):
        """If the worker can't import trackio, the outcome has the line that installs it."""
        path = [entry for entry in sys.path if "trackio-" not in entry]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", path)
            exporter = TrackioSpanExporter(folder=tmp_path)
            outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert install_line("trackio") in outcome.reason
        exporter.shutdown()

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
    def test_a_forked_child(self, trackio_server, exporter, project):
        """A forked child writes by a process of its own, and the parent goes on with its own one."""
        exporter.send(make_trajectory(project=project, trace_id=0x10))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                exporter.after_fork()
                status = int(exporter.send(make_trajectory(project=project, trace_id=0x11)) != DELIVERED)
                exporter.shutdown()
            finally:
                os._exit(status)

        assert os.waitpid(child, 0)[1] == 0
        assert exporter.send(make_trajectory(project=project, trace_id=0x12)) == DELIVERED
        stored = trackio_server.traces(project)
        assert sorted(int(trace["metadata"]["trace_id"], 16) for trace in stored) == [0x10, 0x11, 0x12]

    @pytest.mark.slow
    def test_a_locked_database_and_a_killed_worker(self, trackio_server, exporter, project):
        """While another process holds trackio's lock, and after a kill of our process, the batch is retried."""
        with (trackio_server.folder / f"{project}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            locked = exporter.send(make_trajectory(project=project))
        exporter._store._worker._process.kill()
        killed = exporter.send(make_trajectory(project=project))

        assert (locked.verdict, killed.verdict) == (Verdict.RETRY, Verdict.RETRY)
        assert exporter.send(make_trajectory(project=project)) == DELIVERED
        assert len(trackio_server.traces(project)) == 1


class TestServer:
    """A trackio server."""

    def test_the_same_trajectory_once(self, trackio_server, project):
        """A server stores what a folder does; a second time changes nothing; it is read back."""
        url, token = trackio_server.address, trackio_server.write_token
        for options in ({"server_url": f"{url}/?write_token={token}"}, {"server_url": url, "write_token": token}):
            exporter = TrackioSpanExporter(**options)
            assert exporter.send(make_trajectory(project=project)) == DELIVERED
            assert exporter.read_back(make_trajectory(project=project)).found == 4
            exporter.shutdown()

        (stored,) = trackio_server.traces(project)
        sent = translate(make_trajectory(project=project))
        assert (stored["messages"], stored["spans"]) == (sent.trace["messages"], sent.trace["spans"])
        assert stored["run_id"] == sent.run_id

    def test_a_wrong_token(self, trackio_server):
        """A server that refuses the token is a configuration error, and the token is not in the message."""
        exporter = TrackioSpanExporter(server_url=f"{trackio_server.address}?write_token=s3cret")

        outcome = exporter.send(make_trajectory())

        assert outcome.verdict is Verdict.CONFIGURATION_ERROR, outcome
        assert "s3cret" not in outcome.reason
        exporter.shutdown()
