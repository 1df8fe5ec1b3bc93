"""`otel-rollout stats` as a user meets it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory, write_lines

pytest.importorskip("rich")


def count(capsys, folder):
    """Return the object of `--json`, and what is on standard error."""
    assert main(["stats", str(folder), "--json"]) == 0
    shown = capsys.readouterr()
    return json.loads(shown.out), shown.err


@pytest.fixture
def folder(tmp_path):
    """What two processes wrote, of which one is still writing."""
    first = FolderWriter(tmp_path / "traces")
    for spans in (make_trajectory(1, 0), make_trajectory(1, 1, status="error"), make_trajectory(2, 0)):
        first.write(spans)
    first.close()
    second = FolderWriter(tmp_path / "traces")
    second.write(make_trajectory(2, 1))
    second.write(make_trajectory(2, 2)[:2])
    yield tmp_path / "traces"
    second.close()


class TestStats:
    """What is counted."""

    def test_json(self, folder, capsys):
        """Trajectories, spans, bytes and files, altogether and by step."""
        found, error = count(capsys, folder)
        assert error == ""
        steps = found.pop("steps")
        assert found == {
            "folder": str(folder),
            "trajectories": 5,
            "rootless": 1,
            "redacted": 0,
            "errors": 1,
            "spans": 14,
            "bytes": sum(step["bytes"] for step in steps),
            "disk_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            "files": 3,
            "workers": 2,
            "files_being_written": 2,
            "problems": {},
        }
        assert [(step["step"], step["trajectories"], step["spans"], step["rootless"]) for step in steps] == [
            (1, 2, 6, 0),
            (2, 3, 8, 1),
        ]

    def test_tables(self, folder, capsys):
        """The same for people: a row for each step, and the totals."""
        assert main(["stats", str(folder)]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines[0][:2] == ["step", "trajectories"]
        assert [line[:2] for line in lines[1:3]] == [["1", "2"], ["2", "3"]]
        assert ["trajectories", "5"] in lines
        assert ["without", "a", "root", "1"] in lines
        assert ["written", "by", "2", "processes"] in lines
        assert ["being", "written", "2"] in lines

    def test_of_one_experiment(self, tmp_path, capsys):
        """The steps of an experiment, or of a run, are counted alone, without the folder's files."""
        write_lines(tmp_path / "a.jsonl", make_trajectory(1, 0), make_trajectory(2, 0, experiment="other"))
        assert main(["stats", str(tmp_path), "--experiment", "other", "--json"]) == 0
        counts = json.loads(capsys.readouterr().out)
        assert (counts["trajectories"], [step["step"] for step in counts["steps"]]) == (1, [2])
        assert main(["stats", str(tmp_path), "--run", "ru"]) == 0
        assert "on disk  " not in capsys.readouterr().out.partition("\n\n")[2]
        assert main(["stats", str(tmp_path), "--run", "x"]) == 2
        assert capsys.readouterr().err == f"otel-rollout stats: no trajectory in {tmp_path} matches: its runs are run\n"

    def test_what_is_torn(self, folder, capsys):
        """Torn frames are counted, and their file is named on standard error."""
        path = max(folder.glob("steps=000000-000099/*.otlp.zst"), key=lambda path: path.stat().st_size)
        os.truncate(path, path.stat().st_size - 10)
        found, error = count(capsys, folder)
        assert found["problems"] == {"torn frame": 1}
        assert found["trajectories"] == 4
        assert error == f"1 torn frame skipped in {path}\n"
        assert main(["stats", str(folder)]) == 0
        assert ["torn", "frames", "1"] in [line.split() for line in capsys.readouterr().out.splitlines()]

    def test_without_rich(self, folder, capsys, monkeypatch):
        """JSON needs no extra."""
        monkeypatch.setitem(sys.modules, "rich", None)
        assert count(capsys, folder)[0]["trajectories"] == 5
