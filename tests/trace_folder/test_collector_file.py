"""The Collector's own files, read as a trace folder."""

from __future__ import annotations

import orjson
import pytest

from otel_rollout import read_trajectories
from otel_rollout.catalog import count_folder
from otel_rollout.folder import stored_file
from tests.trace_folder.collector_files import write_collector_file
from tests.trace_folder.recordings import make_trajectory

TRAJECTORIES = [make_trajectory(1, sample, payload=orjson.dumps("é" * 500).decode()) for sample in range(40)]
# Each request has a span of every trajectory.
REQUESTS = [[spans[number] for spans in TRAJECTORIES] for number in range(3)]


class TestSizes:
    """Lines that hold spans of many trajectories."""

    @pytest.mark.parametrize("form", ["json", "json zstd"])
    def test_shares_are_the_file(self, tmp_path, form):
        """The sizes of all trajectories on disk are the file's, though each of its lines has a span of each of them."""
        path = tmp_path / "otlp.jsonl"
        write_collector_file(path, form, REQUESTS)

        stats = count_folder(tmp_path)
        stored = sum(step.stored_bytes for step in stats.steps)

        assert (stats.trajectories, stats.spans, stats.problems) == (40, 120, {})
        assert path.stat().st_size * 0.9 < stored <= path.stat().st_size
        assert stats.disk_bytes == path.stat().st_size

    @pytest.mark.parametrize("form", ["json", "json zstd"])
    def test_one_file(self, tmp_path, form):
        """A file that is named itself has its own size, under any name; those beside it don't count."""
        path = tmp_path / "otlp.json"
        write_collector_file(path, form, REQUESTS)
        write_collector_file(tmp_path / "otlp-2.jsonl", form, REQUESTS[:1])

        stats = count_folder(path)

        assert (stats.trajectories, stats.spans, stats.problems) == (40, 120, {})
        assert (stats.files, stats.disk_bytes) == (1, path.stat().st_size)

    def test_each_line_is_parsed_twice_at_most(self, tmp_path, monkeypatch):
        """Counting a file parses each line for its index and for its spans, however many trajectories are in it."""
        write_collector_file(tmp_path / "otlp.jsonl", "json", REQUESTS)
        parsed = []
        parse = stored_file.request_of_json
        monkeypatch.setattr(stored_file, "request_of_json", lambda line: parsed.append(len(line)) or parse(line))

        assert count_folder(tmp_path).spans == 120
        assert len(parsed) <= 2 * len(REQUESTS)


class TestForms:
    """Files that are not lines of JSON."""

    @pytest.mark.parametrize("name", ["otlp.jsonl", "otlp.jsonl.zst"])
    def test_compressed_requests_are_read(self, tmp_path, name):
        """Requests in JSON that are compressed one by one are read under either name, and nothing is reported."""
        write_collector_file(tmp_path / name, "json zstd", REQUESTS)
        problems = []

        found = list(read_trajectories(tmp_path, on_problem=problems.append))

        assert [len(each.spans) for each in found] == [3] * 40
        assert problems == []

    @pytest.mark.parametrize("name", ["otlp.jsonl", "otlp.jsonl.zst"])
    def test_damage_is_reported(self, tmp_path, name):
        """A request that is damaged is reported, and the others are read."""
        path = tmp_path / name
        write_collector_file(path, "json zstd", REQUESTS)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
        problems = []

        found = list(read_trajectories(tmp_path, on_problem=problems.append))

        assert {problem.what for problem in problems} <= {"torn frame", "unreadable line"}
        assert problems
        assert {len(each.spans) for each in found} == {2}

    @pytest.mark.parametrize("form", ["proto", "proto zstd", "json native zstd"])
    @pytest.mark.parametrize("name", ["otlp.jsonl", "otlp.jsonl.zst"])
    def test_others_are_named_for_what_they_are(self, tmp_path, name, form):
        """Of a file in protobuf, or compressed as a whole, readers say which command reads it."""
        write_collector_file(tmp_path / name, form, REQUESTS)
        problems = []

        assert list(read_trajectories(tmp_path, on_problem=problems.append)) == []
        assert [problem.what for problem in problems] == ["Collector file for `otel-rollout import`"]
