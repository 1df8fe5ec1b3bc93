"""Tests of the tables of spans and messages, which are filled for a step on demand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from otel_rollout import read_trajectories, semconv
from otel_rollout.catalog import QueryError, Run, attach, create, fill_step, filled_steps, show_rows
from tests.trace_folder.recordings import make_span, trace_id_of, write_frames


@pytest.fixture
def catalog() -> Iterator[sqlite3.Connection]:
    """An empty catalog in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create(connection)
    attach(connection)
    yield connection
    connection.close()


def chat(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "parts": list(parts)}


def text(content: str) -> dict[str, Any]:
    """Return a part with a text."""
    return {"type": "text", "content": content}


ASKED = [chat("system", text("Be brief.")), chat("user", text("What is 6 times 7?"))]
CALLED = chat("assistant", {"type": "tool_call", "id": "1", "name": "multiply", "arguments": {"a": 6, "b": 7}})
RESULT = chat("tool", {"type": "tool_call_response", "id": "1", "response": "42"})


def write_chat(folder, step: int = 1) -> None:
    """Write a trajectory of two turns with a tool between them."""
    trace_id = trace_id_of(step, 0, 0)
    turns = ((ASKED, CALLED), ([*ASKED, CALLED, RESULT], chat("assistant", text("42"))))
    spans = [
        make_span(
            "generate",
            number + 2,
            trace_id,
            seconds=(number, number + 0.25),
            attributes={
                semconv.SPAN_KIND: "LLM",
                semconv.STEP: step,
                semconv.REQUEST_MODEL: "small",
                semconv.USAGE_INPUT_TOKENS: 10 + number,
                semconv.USAGE_OUTPUT_TOKENS: 2,
                semconv.FINISH_REASONS: ("stop",),
                semconv.INPUT_MESSAGES: orjson.dumps(asked).decode(),
                semconv.OUTPUT_MESSAGES: orjson.dumps([said]).decode(),
            },
        )
        for number, (asked, said) in enumerate(turns)
    ]
    tool = {semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: "multiply", semconv.OUTPUT_VALUE: "42", semconv.STEP: step}
    spans.append(make_span("multiply", 9, trace_id, seconds=(0.5, 0.75), attributes=tool, error="late"))
    root = {semconv.SPAN_KIND: "AGENT", semconv.STEP: step, semconv.STATUS: "completed"}
    spans.append(make_span("run", 1, trace_id, parent=None, seconds=(0, 2), attributes=root))
    write_frames(folder / "host-1-abcd.otlp.zst", spans)


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a question."""
    return Run([folder]).query(sql, max_rows=99, seconds=60).rows


class TestTables:
    """The tables `spans` and `messages`."""

    def test_a_row_for_each_span(self, tmp_path):
        """By start, with its place, times, outcome and amounts, in the units that their columns say."""
        write_chat(tmp_path)
        assert rows(tmp_path, "SELECT name, kind, turn, seconds, status, tool, model, input_tokens FROM spans") == [
            ("run", "AGENT", None, 2.0, "unset", None, None, None),
            ("generate", "LLM", 1, 0.25, "unset", None, "small", 10),
            ("multiply", "TOOL", None, 0.25, "error", "multiply", None, None),
            ("generate", "LLM", 2, 0.25, "unset", None, "small", 11),
        ]
        assert rows(tmp_path, "SELECT DISTINCT parent_id FROM spans") == [(None,), (f"{1:016x}",)]
        assert rows(tmp_path, "SELECT output, error FROM spans WHERE tool = 'multiply'") == [("42", "late")]
        status = "json_extract(attributes, '$.\"rollout.status\"')"
        assert rows(tmp_path, f"SELECT {status} FROM spans LIMIT 1") == [("completed",)]

    def test_a_row_for_each_message(self, tmp_path):
        """Each once, in the order of the chat, with the turn it belongs to."""
        write_chat(tmp_path)
        calls = '[{"name":"multiply","arguments":{"a":6,"b":7},"call_id":"1"}]'
        assert rows(tmp_path, "SELECT position, turn, role, content, tool_calls FROM messages") == [
            (0, 0, "system", "Be brief.", None),
            (1, 0, "user", "What is 6 times 7?", None),
            (2, 1, "assistant", "", calls),
            (3, 1, "tool", "42", None),
            (4, 2, "assistant", "42", None),
        ]
        assert rows(tmp_path, "SELECT tool, is_error FROM messages WHERE role = 'tool'") == [("multiply", 1)]

    @pytest.mark.parametrize(
        ("sql", "count"),
        [
            ("spans JOIN trajectories USING (trace_id)", 4),
            ("messages NATURAL JOIN trajectories", 5),
            ("messages JOIN spans USING (span_id)", 3),
            ("spans a JOIN spans b ON a.parent_id = b.span_id", 3),
            ("conversations WHERE EXISTS (SELECT 1 FROM spans WHERE tool IS NOT NULL)", 1),
            ("steps JOIN groups USING (step)", 1),
        ],
    )
    def test_joins(self, sql, count, tmp_path):
        """Whichever way it names its tables and columns, it is the first question about the folder."""
        write_chat(tmp_path)
        assert rows(tmp_path, f"SELECT count(*) FROM {sql}") == [(count,)]


class TestSteps:
    """Rows are there for the steps that were asked for last."""

    def test_the_bound(self, catalog, tmp_path):
        """Beyond it the steps that were filled first are emptied, but neither the last nor those of the question."""
        for step in range(3):
            write_chat(tmp_path / str(step), step)

        def fill(step: int, *spared: int) -> list[int | None]:
            kept = [(each, False) for each in spared]
            fill_step(catalog, (step, False), read_trajectories(tmp_path / str(step)), kept, max_bytes)
            return [step for step, _ in filled_steps(catalog)]

        max_bytes = 2**20
        assert fill(0) == [0]
        max_bytes = 2.5 * catalog.execute("SELECT total(length(data)) FROM kept_columns").fetchone()[0]
        assert fill(1) == [0, 1]
        assert fill(2) == [1, 2]
        max_bytes = 1
        assert fill(0, 2) == [2, 0]

    def test_a_full_disk(self, catalog, tmp_path):
        """If the disk of temporary files is full, the question fails with a line, and smaller ones are answered."""
        write_chat(tmp_path)
        fill_step(catalog, (1, False), read_trajectories(tmp_path))
        catalog.execute("PRAGMA asked.max_page_count = 7")
        with pytest.raises(QueryError, match="SQLITE_TMPDIR"):
            show_rows(catalog, [(1, False)] * 99, {"spans": ["attributes"]})
        assert catalog.execute("SELECT count(*) FROM asked.spans").fetchone() == (0,)
        show_rows(catalog, [(1, False)], {"spans": ["kind"]})
        assert catalog.execute("SELECT count(kind) FROM asked.spans").fetchone() == (4,)

    def test_texts_of_other_programs(self, catalog, tmp_path):
        """A lone surrogate in a text, which UTF-8 lacks, is a question mark."""
        write_chat(tmp_path)
        (found,) = read_trajectories(tmp_path)
        found.spans[0]._name = "half \ud83d"
        fill_step(catalog, (1, False), [found])
        show_rows(catalog, [(1, False)], {"spans": ["name"]})
        assert catalog.execute("SELECT count(*) FROM asked.spans WHERE name = 'half ?'").fetchone() == (1,)
