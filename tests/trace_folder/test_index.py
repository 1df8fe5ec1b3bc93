"""The index beside a file of trajectories, and the names of a trace folder's files."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import orjson
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout.facts import COLUMNS, Collected, SummaryBuilder, columns_of
from otel_rollout.folder import (
    MAX_INDEX_LINE_BYTES,
    IndexEntry,
    entry_of,
    index_line,
    layout,
    read_index,
    seal_of,
)
from otel_rollout.folder.index_reading import entries_of
from otel_rollout.otlp import encode_spans

CHECKSUM = "0123abcd"
TRACE = 2**100 + 1
ROOT = SpanContext(TRACE, 1, False, TraceFlags(1))
RESOURCE = Resource({"rollout.project_name": "project", "rollout.run_id": "run"})
TAGS = {
    "rollout.step": 7,
    "rollout.sample_index": "s",
    "rollout.rollout_n": 1,
    "rollout.validate": True,
    "rollout.experiment_name": "e",
}


def make_span(span_id, attributes=None, *, start=100, end=200, trace_id=TRACE, **options):
    context = SpanContext(trace_id, span_id, False, TraceFlags(1))
    parent = None if span_id == 1 else ROOT
    options = {"resource": RESOURCE, "name": f"span {span_id}", **options}
    return ReadableSpan(
        context=context, parent=parent, attributes=attributes, start_time=start, end_time=end, **options
    )


def summarise(*spans):
    summary = SummaryBuilder(TRACE)
    summary.add(spans)
    return summary


class TestSummary:
    """What the index says of a trace."""

    def test_with_a_root(self):
        """The root's name, status and scalar attributes, without payload; its end, and the count of all spans."""
        attributes = {
            **TAGS,
            "rollout.status": "error",
            "rollout.reward": 0.5,
            "gen_ai.conversation.id": f"{TRACE:032x}",
            "input.value": "[]",
            "output.value": "[]",
            "input.mime_type": "application/json",
            "output.mime_type": "application/json",
            "metadata": "{}",
            "gen_ai.input.messages": "[]",
            "gen_ai.output.messages": "[]",
            "gen_ai.tool.definitions": "[]",
            "openinference.span.kind": "AGENT",
            "gen_ai.operation.name": "invoke_agent",
            "x": 1,
            "list": (1, 2),
            "nan": float("nan"),
            "huge": 2**70,
            "long": "x" * 1025,
        }
        root = make_span(1, attributes, start=50, end=150, status=Status(StatusCode.ERROR))
        summary = summarise(make_span(2, {"rollout.step": 8}), root, make_span(3, start=60, end=300))
        entry = entry_of(summary, 10, 20, 30, "0000abcd")
        assert entry == IndexEntry(
            trace_id=f"{TRACE:032x}",
            start_time=50,
            end_time=150,
            has_root=True,
            step=7,
            sample_index="s",
            rollout_n=1,
            validate=True,
            experiment_name="e",
            status="error",
            reward=0.5,
            offset=10,
            length=20,
            bytes=30,
            checksum="0000abcd",
            spans=3,
            status_code=2,
            name="span 1",
            project_name="project",
            run_id="run",
            summary=orjson.dumps(
                {name: value for name, value in columns_of(Collected(summary)).items() if value}, default=tuple
            ),
        )
        assert (summary.step, summary.validate) == (7, True)

    def test_without_a_root(self):
        """The tags and the name of the first span that has a step."""
        summary = summarise(make_span(2), make_span(3, {**TAGS, "rollout.status": "cancelled", "x": 1}), make_span(4))
        entry = entry_of(summary, 0, 1, 2, CHECKSUM)
        assert (entry.has_root, entry.spans, entry.status) == (False, 3, None)
        assert (entry.name, entry.project_name, entry.run_id) == ("span 3", "project", "run")
        assert (summary.step, summary.validate) == (7, True)

    @pytest.mark.parametrize(
        ("attributes", "fields"),
        [
            ({}, (None, None, None)),
            ({"rollout.step": "warm-up", "rollout.reward": "high"}, (None, None, None)),
            ({"rollout.validate": 1, "rollout.reward": 2}, (None, True, 2.0)),
            ({"rollout.validate": False, "rollout.reward": True}, (None, False, None)),
            ({"rollout.sample_index": 1.5}, (1.5, None, None)),
        ],
    )
    def test_attributes_of_other_types(self, attributes, fields):
        """A field has what it can say."""
        entry = entry_of(summarise(make_span(1, attributes)), 0, 1, 2, CHECKSUM)
        assert (entry.sample_index, entry.validate, entry.reward) == fields

    @pytest.mark.parametrize("step", [None, "7", True, 7.0])
    def test_a_step_is_a_whole_number(self, step):
        """Anything else is no step."""
        assert summarise(make_span(1, {} if step is None else {"rollout.step": step})).step is None


class TestIndexFile:
    """Lines of an index."""

    def test_what_is_written_is_read(self, tmp_path):
        """Entry for entry, in order."""
        entries = [
            entry_of(summarise(make_span(1, {**TAGS, "n": number})), number, 5, 6, CHECKSUM) for number in range(3)
        ]
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(b"".join(map(index_line, entries)))
        assert read_index(path) == entries

    def test_text_that_json_cannot_say(self, tmp_path):
        """A lone surrogate becomes a question mark, as in the spans."""
        entry = entry_of(
            summarise(make_span(1, {"rollout.sample_index": "\ud800"}, name="\ud800")),
            *(0, 1, 2, CHECKSUM),
        )
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(index_line(entry))
        [read] = read_index(path)
        assert (read.sample_index, read.name) == ("?", "?")

    @pytest.mark.parametrize("damage", [b"[1,2", b"[1]\n", b"\0" * 300, b"\0\0\0\n", b"7\n", b'{"a":1}\n'])
    def test_a_damaged_end_harms_no_entry_before_it(self, tmp_path, damage):
        """What was written whole is read; what stands behind is left to a scan."""
        entries = [entry_of(summarise(make_span(1)), number, 5, 6, CHECKSUM) for number in range(3)]
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(b"".join(map(index_line, entries)) + damage)
        assert read_index(path) == entries

    @pytest.mark.parametrize("data", [b"", b"[1", b"\n"])
    def test_an_index_without_a_whole_line(self, tmp_path, data):
        """It has no entries."""
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(data)
        assert read_index(path) == []

    def test_no_index(self, tmp_path):
        """Where there is none, nothing is known."""
        assert read_index(tmp_path / "none") == []

    def test_fields_of_a_later_version_are_passed_over(self, tmp_path):
        """Names that another version adds harm nothing, in whatever order the names stand."""
        entry = entry_of(summarise(make_span(1)), 0, 5, 6, CHECKSUM)._replace(summary=b"")
        path = tmp_path / "x.index.jsonl"
        fields = {name: value for name, value in reversed(entry._asdict().items()) if name != "summary"}
        start = json.dumps({"levels": [1, 2], **fields, "more": {}})[:-1].encode()
        path.write_bytes(start + seal_of(start))
        assert read_index(path) == [entry]


class TestDamagedLine:
    """A line of an index that is not what was written."""

    @pytest.fixture
    def lines(self):
        """Three lines of an index."""
        return [index_line(entry_of(summarise(make_span(1, TAGS)), number, 5, 6, CHECKSUM)) for number in range(3)]

    def test_it_is_a_json_object_with_a_checksum_at_its_end(self, lines):
        """Any reader has the fields by name; the checksum is that of what stands before it."""
        entry = json.loads(lines[1])
        assert (entry["step"], entry["validate"], entry["offset"]) == (7, True, 1)
        names = [name for name in IndexEntry._fields if name in entry]
        assert list(entry) == [*names, "facts", "crc32"]
        assert set(entry["facts"]) <= set(COLUMNS)
        start, _, checksum = lines[1].rpartition(b',"crc32":"')
        assert int(checksum[:8], 16) == zlib.crc32(start)

    def test_each_bit_counts(self, tmp_path, lines):
        """Whichever bit of a line is another one, the line is not read, and its neighbours are."""
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(b"".join(lines))
        entries = read_index(path)
        assert len(entries) == 3
        for place in range(len(lines[1])):
            # A line has 12,000 bits: one of each byte, and each of every 16th byte.
            for bit in range(8) if place % 16 == 0 else (place % 8,):
                damaged = bytearray(lines[1])
                damaged[place] ^= 1 << bit
                path.write_bytes(lines[0] + damaged + lines[2])
                expected = [entries[0], entries[2]]
                if place == len(lines[1]) - 1:
                    # The line end: what follows is part of the line then.
                    expected = [entries[0]]
                assert read_index(path) == expected, (place, bit)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("trace_id", "x" * 32),
            ("trace_id", 5),
            ("start_time", None),
            ("end_time", "1"),
            ("end_time", 1e30),
            ("start_time", -1),
            ("end_time", 2**63),
            ("has_root", 1),
            ("step", "7"),
            ("step", True),
            ("step", 2**63),
            ("sample_index", []),
            ("reward", 1),
            ("offset", -1),
            ("length", 0),
            ("length", 2**62),
            ("bytes", 2**40),
            ("checksum", 7),
            ("spans", 0),
            ("spans", 2**63),
            ("status_code", 9),
            ("name", None),
            ("project_name", 7),
        ],
    )
    def test_a_value_that_no_index_has(self, tmp_path, lines, field, value):
        """A checksum that holds makes a wrong type or an impossible number no better."""
        entry = json.loads(lines[1])
        del entry["crc32"]
        start = json.dumps({**entry, field: value})[:-1].encode()
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(lines[0] + start + seal_of(start) + lines[2])
        assert [entry.offset for entry in read_index(path)] == [0, 2]

    def test_a_line_that_is_longer_than_any_takes_no_memory(self, tmp_path, lines):
        """What stands before it is read, and the file is not read to its end."""
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(lines[0])
        os.truncate(path, 2**36)
        tracemalloc.start()
        try:
            assert len(read_index(path)) == 1
            assert tracemalloc.get_traced_memory()[1] < 8 * MAX_INDEX_LINE_BYTES
        finally:
            tracemalloc.stop()


class TestEntriesOfALine:
    """What is said of a line that no index has."""

    def test_it_is_what_the_writer_would_have_said(self):
        """The same as from the spans themselves."""
        spans = [make_span(2, TAGS), make_span(1, {**TAGS, "rollout.reward": 1.0})]
        line = encode_spans(spans)
        assert entries_of(line, 3, 4, CHECKSUM) == [entry_of(summarise(*spans), 3, 4, len(line), CHECKSUM)]

    def test_a_line_of_several_traces(self):
        """A spool's line has what was in a batch: an entry for each trace."""
        spans = [make_span(2), make_span(2, trace_id=5), make_span(3)]
        entries = entries_of(encode_spans(spans), 0, 9, CHECKSUM)
        assert [(entry.trace_id, entry.spans) for entry in entries] == [(f"{TRACE:032x}", 2), (f"{5:032x}", 1)]

    def test_a_span_that_is_none(self):
        """A malformed span makes the request unreadable, and isn't taken for a fault of the summary."""
        with pytest.raises(ValueError, match="not a span of OTLP"):
            entries_of(encode_spans([make_span(1)]).replace(b"\x12\x08", b"\x1a\x08", 1), 0, 9, CHECKSUM)


class TestLayout:
    """Names of files and folders."""

    @pytest.mark.parametrize(
        ("step", "validate", "folder"),
        [
            (7, False, "steps=000000-000099"),
            (7, True, "validate/steps=000000-000099"),
            (99, False, "steps=000000-000099"),
            (100, False, "steps=000100-000199"),
            (12345678, False, "steps=12345600-12345699"),
            (-1, False, "steps=-00100--00001"),
            (-(2**63), True, "validate/steps=-9223372036854775900--9223372036854775801"),
            (None, False, "no-step"),
            (None, True, "no-step"),
        ],
    )
    def test_each_step_is_in_a_bundle(self, step, validate, folder):
        """Validation apart; the folder's name says its first and its last step."""
        assert layout.bundle_folder(step, validate=validate) == folder
        assert layout.is_bundle_folder(Path(folder).name)
        first = layout.first_step_of(Path(folder).name)
        assert first is None if step is None else first <= step < first + 100

    def test_a_worker_is_a_process(self, monkeypatch):
        """Host and process id, and digits that make it unique where process ids come again."""
        monkeypatch.setattr("socket.gethostname", lambda: "../node 1/é")
        worker = layout.new_worker()
        assert "/" not in worker
        assert not worker.startswith(".")
        assert f"-{os.getpid()}-" in worker
        assert len({layout.new_worker() for _ in range(8)}) > 1

    def test_our_files_are_known_by_their_names(self):
        """A user's file beside them is none of them, whatever it ends in."""
        worker = layout.new_worker()
        assert all(layout.is_frame_file(layout.data_path(Path("x"), worker, number).name) for number in (1, 2))
        assert layout.is_frame_file("host-1-abcd-000001.otlp.zst")
        assert layout.is_frame_file(layout.journal_path(Path("x"), worker).name)
        for name in (
            "notes.jsonl",
            "data-2024.otlp.zst",
            "w.otlp.zst",
            f"{worker}.index.jsonl",
            f"{worker}.otlp.zst.new",
        ):
            assert not layout.is_ours(name)
        assert layout.is_ours(f".{worker}.otlp.zst.new")
        assert not layout.is_frame_file(f".{worker}.otlp.zst.new")

    @pytest.mark.parametrize(
        "name",
        [
            "steps=0-99",
            "steps=000001-000100",
            "steps=",
            "steps=x-y",
            "steps=" + "9" * 200,
            "step=000007",
            "steps=\u0663-\u0663",
        ],
    )
    def test_no_other_folder_is_a_bundle(self, name):
        """We write six digits and a hundred steps; a number that no step has is no step."""
        assert not layout.is_bundle_folder(name)
        assert layout.is_bundle_folder("steps=000000-000099")
        assert layout.is_bundle_folder("no-step")

    def test_a_file_says_who_wrote_it(self):
        """Data, rotated data, index and journal of a worker."""
        worker = layout.new_worker()
        first, second = (layout.data_path(Path("x"), worker, number) for number in (1, 2))
        paths = [first, second, layout.index_path(first), layout.index_path(second)]
        for path in (*paths, layout.journal_path(Path("x"), worker)):
            assert layout.worker_of(path) == worker
        assert second.name == f"{worker}-2.otlp.zst"
        assert layout.index_path(second).name == f"{worker}-2.index.jsonl"
        assert layout.worker_of("exported.jsonl") == "exported"
