"""`otel-rollout import` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_rollout import read_trajectories
from otel_rollout.folder import read_index
from tests.receive.importing import REQUESTS, add
from tests.run.asked import count_folder
from tests.servers.otelcol_server import Sink
from tests.trace_folder.collector_files import FORMS, write_collector_file
from tests.trace_folder.recordings import make_span, make_trajectory

pytest.importorskip("rich")

ROOT = Path(__file__).resolve().parents[2]


def spans_in(folder):
    """Return the names of the spans of each trajectory of a folder, each line of it counted."""
    assert count_folder(folder).problems == {}
    return [sorted(span.name for span in each.spans) for each in read_trajectories(folder)]


class TestForms:
    """What the Collector writes."""

    @pytest.mark.parametrize("form", FORMS)
    def test_every_form_is_read(self, tmp_path, capsys, form):
        """Whatever the format and the compression, by readers as it is; imported, a trajectory is a line, root last."""
        problems = []
        write_collector_file(tmp_path / "otlp.json", form, REQUESTS)
        found = read_trajectories(tmp_path / "otlp.json", on_problem=problems.append)
        assert [[span.name for span in each.spans] for each in found] == [["generate", "look_up", "rollout"]] * 20
        assert problems == []

        out, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")

        assert out == f"60 spans of 20 trajectories from 1 file added to {tmp_path / 'traces'}\n"
        assert err == ""
        assert spans_in(tmp_path / "traces") == [["generate", "look_up", "rollout"]] * 20
        (index,) = (tmp_path / "traces" / "steps=000000-000099").glob("*.index.jsonl.zst")
        assert [entry.spans for entry in read_index(index.with_suffix(""))] == [3] * 20
        assert all(each.spans[-1].parent is None for each in read_trajectories(tmp_path / "traces"))

    @pytest.mark.integration
    @pytest.mark.parametrize(
        "options",
        [
            pytest.param({}, id="json"),
            pytest.param({"format": "proto", "compression": "zstd"}, id="proto zstd"),
            pytest.param({"format": "proto"}, id="proto", marks=pytest.mark.slow),
            pytest.param({"compression": "zstd"}, id="json zstd", marks=pytest.mark.slow),
        ],
    )
    def test_what_the_collector_writes(self, tmp_path, capsys, collector_program, options):
        """Every span that a real Collector writes, rotating its file, is imported once."""
        load = [sys.executable, str(ROOT / "tests" / "deploy" / "programs" / "load.py"), "60", "5", "20000"]
        # Requests are smaller than a file may be.
        environment = {**os.environ, "LOAD_OPTIONS": json.dumps({"max_batch_bytes": 2**18})}
        with Sink(collector_program, tmp_path / "sink", rotation={"max_megabytes": 1}, **options) as sink:
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = sink.address
            assert subprocess.run(load, env=environment, stdout=subprocess.DEVNULL, check=True).returncode == 0
        files = list((tmp_path / "sink").glob("otlp*"))

        assert len(files) > 1 or "compression" in options
        out, _ = add(capsys, *files, into=tmp_path / "traces")

        assert "300 spans of 60 trajectories" in out
        assert [len(each.spans) for each in read_trajectories(tmp_path / "traces")] == [5] * 60


class TestAgain:
    """Spans that the folder has."""

    def test_second_import_adds_nothing(self, tmp_path, capsys):
        """A file that is imported again, under another name and in another form, adds no span."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        write_collector_file(tmp_path / "otlp-2026.binpb", "proto", REQUESTS)
        add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")

        out, _ = add(capsys, tmp_path / "otlp-2026.binpb", into=tmp_path / "traces")

        assert out.startswith("0 spans of 0 trajectories from 1 file added")
        assert out.endswith("; 60 were there already\n")
        assert count_folder(tmp_path / "traces").spans == 60

    def test_grown_file_adds_what_is_new(self, tmp_path, capsys):
        """Of a file that has grown, the new spans are added to their trajectories; a torn end waits."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, "json", REQUESTS)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) - 100])
        out, err = add(capsys, path, into=tmp_path / "traces")
        assert out.startswith("40 spans of 20 trajectories")
        assert "ends within a request, as it does while it is written" in err

        path.write_bytes(whole)
        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("20 spans of 20 trajectories")
        assert err == ""
        assert spans_in(tmp_path / "traces") == [["generate", "look_up", "rollout"]] * 20
        assert count_folder(tmp_path / "traces").spans == 60

    def test_late_spans_join_their_step(self, tmp_path, capsys):
        """A span without a step is written into the step of its trajectory that an earlier import has written."""
        trajectory = make_trajectory(1)
        late = make_span("late", 4, trajectory[-1].context.trace_id)
        for name, spans in (("first.json", trajectory), ("second.json", [late])):
            write_collector_file(tmp_path / name, "json", [spans])
            add(capsys, tmp_path / name, into=tmp_path / "traces")

        assert [path.name for path in (tmp_path / "traces").glob("*step*")] == ["steps=000000-000099"]
        assert spans_in(tmp_path / "traces") == [["generate", "late", "look_up", "rollout"]]

    def test_into_a_file(self, tmp_path, capsys):
        """A file in the trace folder's place is named, with exit code 2."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        _, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "otlp.json", code=2)
        assert err == f"otel-rollout import: {tmp_path / 'otlp.json'} is a file: name a folder\n"

    def test_killed_import_goes_on(self, tmp_path, capsys):
        """After a SIGKILL in the middle, a second import adds exactly the rest."""
        requests = [
            [span] for sample in range(1200) for span in make_trajectory(1, sample, payload='"' + "x" * 2000 + '"')
        ]
        write_collector_file(tmp_path / "otlp.json", "json", requests)
        folder = tmp_path / "traces"
        command = [
            sys.executable,
            "-m",
            "otel_rollout.cli",
            "import",
            str(tmp_path / "otlp.json"),
            "--into",
            str(folder),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 300
            while not any(path.stat().st_size > 2**20 for path in folder.glob("open/*.otlp.zst")):
                assert process.poll() is None
                assert time.monotonic() < deadline, "nothing is written"
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)

        out, _ = add(capsys, tmp_path / "otlp.json", into=folder)

        assert "were there already" in out
        stats = count_folder(folder)
        assert (stats.trajectories, stats.spans, stats.rootless, stats.problems) == (1200, 3600, 0, {})


class TestProgress:
    """What is seen meanwhile."""

    def test_bar(self, tmp_path, capsys, monkeypatch):
        """On a terminal there is a bar with the bytes that are read and those of all files."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "100")

        _, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")

        kilobytes = f"{(tmp_path / 'otlp.json').stat().st_size / 1000:.1f}"
        assert f"{kilobytes}/{kilobytes} kB" in err
