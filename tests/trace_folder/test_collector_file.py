"""The Collector's own files, read as a trace folder."""

from __future__ import annotations

import base64
import gzip
import json
import re

import orjson
import pytest

from otel_rollout import read_trajectories
from otel_rollout.folder import stored_file
from otel_rollout.receive import import_files
from tests.run.asked import count_folder
from tests.trace_folder.collector_files import write_collector_file
from tests.trace_folder.recordings import json_line, make_trajectory

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
        stored = sum(step["stored_bytes"] for step in stats.steps)

        assert (stats.trajectories, stats.spans, stats.problems) == (40, 120, {})
        assert path.stat().st_size * 0.9 < stored <= path.stat().st_size
        assert stats.disk_bytes == path.stat().st_size

    def test_each_line_is_parsed_twice_at_most(self, tmp_path, monkeypatch):
        """Counting a file parses each line for its index and for its spans, however many trajectories are in it."""
        write_collector_file(tmp_path / "otlp.jsonl", "json", REQUESTS)
        parsed = []
        parse = stored_file.otlp.request_of_json
        monkeypatch.setattr(stored_file.otlp, "request_of_json", lambda line: parsed.append(len(line)) or parse(line))

        assert count_folder(tmp_path).spans == 120
        assert len(parsed) <= 2 * len(REQUESTS)


class TestForms:
    """Files that are not lines of JSON."""

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

        assert {problem.what for problem in problems} == {"unreadable request"}
        assert problems
        assert {len(each.spans) for each in found} == {2}

    def test_large_compressed_file(self, tmp_path, monkeypatch):
        """Of a compressed file that is too large to be read in memory, readers name the command for it."""
        monkeypatch.setattr(stored_file, "MAX_DECOMPRESSED_BYTES", 1000)
        write_collector_file(tmp_path / "otlp.jsonl", "json native zstd", REQUESTS)
        problems = []

        assert list(read_trajectories(tmp_path, on_problem=problems.append)) == []
        assert [problem.what for problem in problems] == ["large compressed file for `otel-rollout import`"]


LINE = json_line(TRAJECTORIES[0])
OLD = LINE.replace(b"scopeSpans", b"instrumentationLibrarySpans").replace(b'"scope"', b'"instrumentationLibrary"')
TEMPO = LINE.replace(b"resourceSpans", b"batches")


def in_base64(match: re.Match[bytes]) -> bytes:
    return match[1] + base64.b64encode(bytes.fromhex(match[2].decode())) + b'"'


OTHERS = {
    "no line break at the end": LINE,
    "byte order mark": b"\xef\xbb\xbf" + LINE + b"\n",
    "many NULs": bytes(2**21) + LINE + b"\n",
    "indented": json.dumps(json.loads(LINE), indent=2).encode(),
    "indented, after the bracket": b'{"resourceSpans": [\n'
    + json.dumps(json.loads(LINE), indent=2).encode().split(b"[\n", 1)[1],
    "gzip": gzip.compress(LINE + b"\n"),
    "old names": OLD,
    "Tempo": TEMPO,
    "Tempo, ids in base64": re.sub(rb'("(?:traceId|spanId|parentSpanId)":")([0-9a-f]+)"', in_base64, TEMPO),
    "two on one line": LINE + json_line(TRAJECTORIES[1]),
    "two indented": b"\n".join(json.dumps(json.loads(json_line(each)), indent=1).encode() for each in TRAJECTORIES[:2]),
    "two indented, without a break": b"".join(
        json.dumps(json.loads(json_line(each)), indent=1).encode() for each in TRAJECTORIES[:2]
    ),
    "a brace in a text": json_line(make_trajectory(1, 0, payload='"{ } } resourceSpans }{"')),
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_programs(tmp_path, name):
    """Requests in JSON are read whatever their lines, old names and all, by readers and by `import`."""
    path = tmp_path / "otlp.json"
    path.write_bytes(OTHERS[name])
    problems = []

    found = list(read_trajectories(path, on_problem=problems.append))
    report = import_files([(path, True)], tmp_path / "traces", lambda _: None)

    expected = 2 if name.startswith("two") else 1
    assert [[span.name for span in each.spans] for each in found] == [["generate", "look_up", "rollout"]] * expected
    assert [each.sample_index for each in found] == [*range(expected)]
    assert {span.instrumentation_scope.name for each in found for span in each.spans} == {"otel_rollout"}
    assert (report.spans, report.traces, report.problems, report.cut_off, problems) == (
        3 * expected,
        expected,
        [],
        [],
        [],
    )


INDENTED = b"".join(json.dumps(json.loads(json_line(each)), indent=2).encode() + b"\n" for each in TRAJECTORIES[1:3])
NOT_FIRST = b"".join(json_line(each).replace(b"{", b'{"version":1,', 1) + b"\n" for each in TRAJECTORIES[1:3])
CUT_OFF = {
    "on several lines": (json.dumps(json.loads(LINE), indent=2).encode()[:-20], INDENTED),
    "before others whose key is not the first": (LINE[:-20], NOT_FIRST),
    "in a text with a million quotes": (LINE.split(b"generate", maxsplit=1)[0] + rb"\"" * 2**20, INDENTED),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_requests_after_one_that_is_cut_off(tmp_path, name):
    """They are read, and the one is reported."""
    path = tmp_path / "otlp.json"
    path.write_bytes(b"\n".join(CUT_OFF[name]))
    problems = []

    found = list(read_trajectories(path, on_problem=problems.append))
    report = import_files([(path, True)], tmp_path / "traces", lambda _: None)

    assert [each.sample_index for each in found] == [1, 2]
    assert [str(problem) for problem in problems] == [f"unreadable request skipped in {path} at byte 0"]
    assert (report.traces, report.problems) == (2, [f"{path}: byte 0: a request that is cut off"])
