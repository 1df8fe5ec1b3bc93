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
import zstandard

from otel_rollout import read
from otel_rollout.cli import import_files
from otel_rollout.cli.main import main
from otel_rollout.receive import otlp_file
from otel_rollout.run.folder_stats import count_folder
from otel_rollout.run.rollout_run import Run
from tests.servers.otelcol_server import Sink
from tests.trace_folder.collector_files import FORMS, write_collector_file
from tests.trace_folder.recordings import make_trajectory

pytest.importorskip("rich")

ROOT = Path(__file__).resolve().parents[2]
TRAJECTORIES = [make_trajectory(1, sample) for sample in range(20)]
# The roots come first, and each request has a span of every trajectory.
REQUESTS = [[spans[number] for spans in TRAJECTORIES] for number in (2, 0, 1)]


def add(capsys, *paths, into, code=0):
    """Import files, and return what is on standard output and standard error."""
    assert main(["import", *map(str, paths), "--into", str(into)]) == code
    shown = capsys.readouterr()
    return shown.out, shown.err


def spans_in(folder):
    """Return the names of the spans of each trajectory of a folder, each line of it counted."""
    assert count_folder(folder).problems == {}
    return [sorted(span.name for span in each.spans) for each in read(folder)]


class TestForms:
    """What the Collector writes."""

    @pytest.mark.parametrize("form", FORMS)
    def test_every_form_is_read(self, tmp_path, capsys, form):
        """Whatever the format and the compression, each trajectory is one indexed line, root last."""
        write_collector_file(tmp_path / "otlp.json", form, REQUESTS)

        out, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")

        assert out == f"60 spans of 20 trajectories from 1 file added to {tmp_path / 'traces'}\n"
        assert err == ""
        assert spans_in(tmp_path / "traces") == [["generate", "look_up", "rollout"]] * 20
        (index,) = (tmp_path / "traces" / "step=000001").glob("*.index.jsonl")
        assert [json.loads(line)["spans"] for line in index.read_text().splitlines()] == [3] * 20
        assert all(each.spans[-1].parent is None for each in read(tmp_path / "traces"))

    @pytest.mark.integration
    @pytest.mark.parametrize(
        "options",
        [{}, {"format": "proto"}, {"compression": "zstd"}, {"format": "proto", "compression": "zstd"}],
        ids=["json", "proto", "json zstd", "proto zstd"],
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
        assert [len(each.spans) for each in read(tmp_path / "traces")] == [5] * 60


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

    def test_last_line_without_its_end(self, tmp_path, capsys):
        """A request that is whole is added, though an editor or a copy has left out the line end."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, "json", REQUESTS)
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))

        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("60 spans of 20 trajectories")
        assert err == ""

    def test_into_a_file(self, tmp_path, capsys):
        """A file in the trace folder's place is named, with exit code 2."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        _, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "otlp.json", code=2)
        assert err == f"otel-rollout import: {tmp_path / 'otlp.json'} is a file: name a folder\n"

    def test_span_that_comes_twice_is_added_once(self, tmp_path, capsys):
        """Spans that are in two files, or twice in one, are added once."""
        write_collector_file(tmp_path / "files" / "a.json", "json", [*REQUESTS, REQUESTS[0]])
        write_collector_file(tmp_path / "files" / "b.json", "json", REQUESTS)

        out, _ = add(capsys, tmp_path / "files", into=tmp_path / "traces")

        assert out.startswith("60 spans of 20 trajectories from 2 files")
        assert "80 were there already" in out
        assert count_folder(tmp_path / "traces").spans == 60

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
            deadline = time.monotonic() + 60
            while not any(path.stat().st_size > 2**20 for path in folder.glob("open/*.jsonl")):
                assert process.poll() is None
                assert time.monotonic() < deadline, "nothing is written"
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)

        out, _ = add(capsys, tmp_path / "otlp.json", into=folder)

        assert "were there already" in out
        stats = count_folder(folder)
        assert (stats.trajectories, stats.spans, stats.rootless, stats.problems) == (1200, 3600, 0, {})


def json_lines(path):
    """Write the requests as a JSON file, and return its lines."""
    write_collector_file(path, "json", REQUESTS)
    return path.read_bytes().splitlines(keepends=True)


class TestCutOff:
    """Native compression whose end is missing."""

    CUT_OFF = "ends within a request, as it does while it is written: import it again later\n"

    def test_cut_zstd_is_named(self, tmp_path, capsys):
        """A zstd stream that is cut off is named, and the whole requests before the cut are imported."""
        path = tmp_path / "otlp.json"
        stream = zstandard.ZstdCompressor().compressobj()
        blocks = [stream.compress(line) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for line in json_lines(path)]
        path.write_bytes(b"".join(blocks)[:-20])

        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("40 spans of 20 trajectories from 1 file")
        assert err == f"{path} {self.CUT_OFF}"

    def test_zstd_cut_behind_a_whole_request(self, tmp_path, capsys):
        """A zstd stream without its last block is named, though its data ends with a line end."""
        path = tmp_path / "otlp.json"
        stream = zstandard.ZstdCompressor().compressobj()
        blocks = [stream.compress(line) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for line in json_lines(path)]
        path.write_bytes(b"".join(blocks))

        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert err == f"{path} {self.CUT_OFF}"

    @pytest.mark.parametrize("form", ["json native zstd", "proto native zstd"])
    def test_cut_before_the_first_request(self, tmp_path, capsys, form):
        """A zstd stream whose only block is cut off is named, though nothing of it can be read."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, form, REQUESTS[:1])
        path.write_bytes(path.read_bytes()[:-10])

        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("0 spans of 0 trajectories from 1 file")
        assert err == f"{path} {self.CUT_OFF}"

    def test_several_frames(self, tmp_path, capsys):
        """A file of several zstd frames is whole if it ends where one ends, and cut off elsewhere."""
        path = tmp_path / "otlp.json"
        frames = [zstandard.ZstdCompressor().compress(line) for line in json_lines(path)]
        path.write_bytes(b"".join(frames) + frames[0][:3])
        _, err = add(capsys, path, into=tmp_path / "cut")
        assert err == f"{path} {self.CUT_OFF}"

        path.write_bytes(b"".join(frames))
        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert err == ""

    def test_damaged_zstd_is_no_cut(self, tmp_path, capsys):
        """A zstd stream that is damaged exits with 1, and the requests before the damage are imported."""
        path = tmp_path / "otlp.json"
        frames = [zstandard.ZstdCompressor(write_checksum=True).compress(line) for line in json_lines(path)]
        path.write_bytes(frames[0] + frames[1] + b"no frame" + frames[2])

        out, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert out.startswith("40 spans of 20 trajectories from 1 file")
        assert f"{path}: the zstd stream is damaged before byte" in err
        assert "ends within a request" not in err


class TestOtherFiles:
    """What is not spans."""

    def test_damaged_request_is_named(self, tmp_path, capsys):
        """A damaged request exits with 1 and is named, and all others are imported."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, "json", REQUESTS)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + b'{"resourceSpans": [[]]}\n' + lines[1] + lines[2])

        out, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert out.startswith("60 spans of 20 trajectories")
        assert f"{path}: the body is no OTLP request" in err

    def test_metrics_and_other_files_are_counted(self, tmp_path, capsys):
        """Requests of metrics and files without OTLP in a folder are counted, and no error."""
        folder = tmp_path / "files"
        write_collector_file(folder / "otlp.json", "json", REQUESTS)
        with (folder / "otlp.json").open("ab") as file:
            file.write(b'{"resourceMetrics": []}\n')
        (folder / "server.log").write_text("started\n")

        _, err = add(capsys, folder, into=tmp_path / "traces")

        assert "1 request without spans, such as metrics and logs" in err
        assert f"1 file without OTLP skipped: {folder / 'server.log'}" in err

    def test_a_trace_folder_is_imported_without_its_summaries(self, tmp_path, capsys):
        """Its indexes, and the summaries that `ls` has written, are no requests."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")
        steps = Run([tmp_path / "traces"]).steps()

        out, err = add(capsys, tmp_path / "traces", into=tmp_path / "copy")

        assert out.startswith("60 spans of 20 trajectories")
        assert err == ""
        assert [step.trajectories for step in Run([tmp_path / "copy"]).steps()] == [step.trajectories for step in steps]

    def test_named_file_without_otlp_exits_with_2(self, tmp_path, capsys):
        """A file that was named and holds something else exits with 2."""
        (tmp_path / "server.log").write_text("started\n")

        _, err = add(capsys, tmp_path / "server.log", into=tmp_path / "traces", code=2)

        assert "is no file of the Collector's `file` exporter" in err

    @pytest.mark.parametrize(
        "start",
        [
            b"\0" * 5000,
            b"\0" * (otlp_file._SKIP_BYTES + 1),
            b"\xef\xbb\xbf",
            b'"kind": 1}]}]}]}\n',
            b"{bad\n",
            b'{"resourceSpans": [\n',
        ],
        ids=["NULs", "many NULs", "byte order mark", "end of a line", "no JSON", "start of a line"],
    )
    def test_damaged_first_line_is_named(self, tmp_path, capsys, start):
        """A JSON file whose first line is damaged exits with 1, and all others are imported."""
        path = tmp_path / "otlp.json"
        lines = json_lines(path)
        path.write_bytes(start + b"".join([lines[0], *lines] if not start.endswith(b"\n") else lines))

        out, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert err.startswith(f"{path}: ")
        assert len(err.splitlines()) == 1

    def test_number_of_the_damaged_line(self, tmp_path, capsys):
        """A line that does not begin as a request does is named by its number."""
        path = tmp_path / "otlp.json"
        lines = json_lines(path)
        path.write_bytes(b"\0" * 100 + b"".join([lines[0], *lines]))

        _, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert err == f"{path}: line 1 is damaged or no OTLP request\n"

    def test_look_ahead_is_bounded(self, tmp_path, capsys, monkeypatch):
        """A file without a request near its start is refused, whatever stands behind."""
        monkeypatch.setattr(otlp_file, "_LOOK_AHEAD_BYTES", 1000)
        path = tmp_path / "server.log"
        path.write_bytes(b"started\n" * 1000 + b"".join(json_lines(tmp_path / "otlp.json")))

        _, err = add(capsys, path, into=tmp_path / "traces", code=2)

        assert "is no file of the Collector's `file` exporter" in err

    def test_first_key_is_being_written(self, tmp_path, capsys):
        """A file with a part of a request's first key is cut off, and no error."""
        path = tmp_path / "otlp.json"
        path.write_bytes(b'{"resourceSp')

        _, err = add(capsys, path, into=tmp_path / "traces")

        assert f"{path} ends within a request" in err

    @pytest.mark.parametrize("start", [b"", b'{"resourceSpans": [\n'], ids=["indented", "after the bracket"])
    def test_request_on_several_lines(self, tmp_path, capsys, start):
        """A pretty-printed request exits with 1 and one sentence."""
        path = tmp_path / "otlp.json"
        pretty = json.dumps(json.loads(json_lines(path)[0]), indent=2).encode()
        path.write_bytes(start + pretty.split(b"[\n", 1)[1] if start else pretty)

        _, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert err == f"{path}: a request must stand on one line, as `jq -c .` writes it\n"

    @pytest.mark.parametrize(
        "text",
        [b'{"level": "info", "msg": "resourceSpans"}\n{"a": 1}\n', b"started\nstopped\n"],
        ids=["JSON lines", "text"],
    )
    @pytest.mark.parametrize("pack", [bytes, zstandard.ZstdCompressor().compress], ids=["plain", "zstd"])
    def test_log_is_no_otlp(self, tmp_path, capsys, text, pack):
        """A log file is refused if it was named, and skipped in a folder, also if it is JSON or zstd."""
        path = tmp_path / "files" / "server.log"
        path.parent.mkdir()
        path.write_bytes(pack(text))

        _, named = add(capsys, path, into=tmp_path / "traces", code=2)
        _, skipped = add(capsys, path.parent, into=tmp_path / "traces")

        assert "is no file of the Collector's `file` exporter: neither OTLP JSON nor protobuf" in named
        assert skipped == f"1 file without OTLP skipped: {path}\n"

    @pytest.mark.parametrize("form", ["json", "json zstd"])
    def test_json_that_is_no_request_is_named(self, tmp_path, capsys, form):
        """JSON objects without a key of OTLP among requests are damage, not requests without spans."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, form, REQUESTS)
        log = b'{"level": "info"}'
        with path.open("ab") as file:
            file.write(log + b"\n" if form == "json" else len(log).to_bytes(4, "big") + log)

        out, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert "is damaged or no OTLP request" in err
        assert "without spans" not in err

    @pytest.mark.parametrize("form", ["json", "json zstd"])
    def test_empty_request_is_no_damage(self, tmp_path, capsys, form):
        """A request without anything in it is `{}`."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, form, REQUESTS)
        with path.open("ab") as file:
            file.write(b"{}\n" if form == "json" else (2).to_bytes(4, "big") + b"{}")

        out, err = add(capsys, path, into=tmp_path / "traces")

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert err == ""

    def test_missing_file_exits_with_2(self, tmp_path, capsys):
        """A file that does not exist exits with 2."""
        _, err = add(capsys, tmp_path / "gone.json", into=tmp_path / "traces", code=2)

        assert f"there is no file or folder {tmp_path / 'gone.json'}" in err

    def test_folder_does_not_import_itself(self, tmp_path, capsys):
        """Of a folder that has the trace folder within, the trace folder's own files are left out."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        add(capsys, tmp_path, into=tmp_path / "traces")

        out, _ = add(capsys, tmp_path, into=tmp_path / "traces")

        assert "from 1 file added" in out


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

    def test_lines(self, tmp_path, capsys, monkeypatch):
        """Elsewhere there is a line now and then, without escape sequences."""
        write_collector_file(tmp_path / "otlp.json", "json", REQUESTS)
        monkeypatch.setattr(import_files, "SECONDS_BETWEEN_LINES", 0.0)

        _, err = add(capsys, tmp_path / "otlp.json", into=tmp_path / "traces")

        assert set(err.splitlines()) == {"import: 0 of 0 MiB"}
