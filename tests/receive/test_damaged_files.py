"""Files to import that are cut off, damaged, or not the Collector's."""

from __future__ import annotations

import pytest
import zstandard

from otel_rollout.catalog import Run
from otel_rollout.folder import otlp_file
from tests.receive.importing import REQUESTS, add
from tests.trace_folder.collector_files import write_collector_file

pytest.importorskip("rich")


def json_lines(path):
    """Write the requests as a JSON file, and return its lines."""
    write_collector_file(path, "json", REQUESTS)
    return path.read_bytes().splitlines(keepends=True)


DAMAGED = {
    "the end of a line": (0, b'"kind": 1}]}]}]}'),
    "no JSON": (0, b"{bad"),
    "the start of a line": (0, b'{"resourceSpans": ['),
    "another form": (1, b'{"resourceSpans": [[]]}'),
    "a line of a log": (3, b'{"level": "info"}'),
}


class TestCutOff:
    """Native compression whose end is missing."""

    CUT_OFF = "ends within a request, as it does while it is written: import it again later\n"

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
        assert "the compressed data is damaged before byte" in err
        assert "ends within a request" not in err


class TestOtherFiles:
    """What is not spans."""

    @pytest.mark.parametrize("name", DAMAGED)
    def test_damaged_request_is_named(self, tmp_path, capsys, name):
        """One that is damaged, or none, exits with 1 and is named by its place, and all others are imported."""
        path, (place, damaged) = tmp_path / "otlp.json", DAMAGED[name]
        lines = json_lines(path)
        lines.insert(place, damaged + b"\n")
        path.write_bytes(b"".join(lines))

        out, err = add(capsys, path, into=tmp_path / "traces", code=1)

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert err.startswith(f"{path}: byte {sum(map(len, lines[:place])):,}: ")
        assert len(err.splitlines()) == 1

    def test_metrics_and_other_files_are_counted(self, tmp_path, capsys):
        """Requests of metrics and files without OTLP in a folder are counted, and no error."""
        folder = tmp_path / "files"
        write_collector_file(folder / "otlp.json", "json", REQUESTS)
        with (folder / "otlp.json").open("ab") as file:
            # A request without anything in it is none without spans.
            file.write(b'{}\n{"resourceMetrics": []}\n')
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

    def test_look_ahead_is_bounded(self, tmp_path, capsys, monkeypatch):
        """A file without a request near its start is refused, whatever stands behind."""
        monkeypatch.setattr(otlp_file, "_LOOK_AHEAD_BYTES", 1000)
        path = tmp_path / "server.log"
        path.write_bytes(b"started\n" * 1000 + b"".join(json_lines(tmp_path / "otlp.json")))

        _, err = add(capsys, path, into=tmp_path / "traces", code=2)

        assert "has no OTLP" in err

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

        assert "has no OTLP, neither in JSON nor in protobuf" in named
        assert skipped == f"1 file without OTLP skipped: {path}\n"

    @pytest.mark.parametrize(("request_", "code"), [(b'{"level": "info"}', 1), (b"{}", 0)])
    def test_request_in_a_frame(self, tmp_path, capsys, request_, code):
        """A JSON object without a key of OTLP is damage there too; one without anything in it is a request."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, "json zstd", REQUESTS)
        with path.open("ab") as file:
            file.write(len(request_).to_bytes(4, "big") + request_)

        out, err = add(capsys, path, into=tmp_path / "traces", code=code)

        assert out.startswith("60 spans of 20 trajectories from 1 file")
        assert ("no OTLP request" in err) == (code == 1)
        assert "without spans" not in err

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
