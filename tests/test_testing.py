"""The helpers for tests, ours and our users'."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter, deterministic_ids_and_times, span_tree


@rollout_trace_op(name="op")
def op(depth: int) -> int:
    """Call itself."""
    return op(depth - 1) if depth else 0


class TestInMemorySpanExporter:
    """The exporter that keeps everything."""

    def test_keeps_and_forgets(self) -> None:
        """Spans are kept in the order of their ends until `clear`."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        op(1)
        assert otel_rollout.flush(60)
        assert [span.name for span in exporter.spans] == ["op", "op"]
        exporter.clear()
        assert exporter.spans == []
        op(0)
        assert otel_rollout.flush(60)
        assert len(exporter.spans) == 1

    def test_records(self, rollout_spans: InMemorySpanExporter) -> None:
        """A record has the whole span as plain values: payloads parsed, events, links, status and description."""

        @rollout_trace_op(name="failing")
        def fail(items: list[int]) -> None:
            raise ValueError("no")

        with rollout_trace_attr(1, name="outer"):
            try:
                with rollout_trace_attr(2, name="inner"):
                    fail([1])
            except ValueError:
                annotate(output={"given up": True})
        assert otel_rollout.flush(60)
        failing, inner, outer = rollout_spans.as_dicts()
        stack = failing["events"][0].pop("exception.stacktrace")
        assert stack.endswith("ValueError: no\n")
        assert failing == {
            "name": "failing",
            "trace_id": 2,
            "span_id": 3,
            "parent_id": 2,
            "start_time": 3,
            "end_time": 5,
            "status": "ERROR",
            "description": "ValueError: no",
            "attributes": {
                "openinference.span.kind": "CHAIN",
                "input.value": {"items": [1]},
                "input.mime_type": "application/json",
                "error.type": "ValueError",
                "rollout.sample_index": 2,
                "rollout.validate": False,
                "rollout.experiment_name": "test-experiment",
            },
            "events": [
                {
                    "name": "exception",
                    "exception.type": "ValueError",
                    "exception.message": "no",
                    "exception.escaped": "False",
                }
            ],
        }
        assert inner["links"] == [outer["span_id"]]
        assert outer["attributes"]["output.value"] == {"given up": True}
        assert outer["attributes"]["metadata"]["sample_index"] == 1


class TestSpanTree:
    """Spans as nested lists of names."""

    def test_order(self, rollout_spans: InMemorySpanExporter) -> None:
        """Children stand in the order of their start, and traces beside each other."""
        with rollout_trace_attr(1, name="first"):
            op(2)
            op(0)
        with rollout_trace_attr(2, name="second"):
            pass
        assert otel_rollout.flush(60)
        assert span_tree(rollout_spans.spans) == [["first", ["op", ["op", ["op"]]], ["op"]], ["second"]]

    def test_parents_that_are_missing(self, rollout_spans: InMemorySpanExporter) -> None:
        """A span whose parent is not among those given is a root; of none, there is no tree."""
        with rollout_trace_attr(1, name="root"):
            op(1)
        assert otel_rollout.flush(60)
        assert span_tree(rollout_spans.spans[:-1]) == [["op", ["op"]]]
        assert span_tree([]) == []


class TestDeterminism:
    """Ids and times that can be compared."""

    def test_numbers(self) -> None:
        """Inside, ids and times count from 1, each time anew; outside they are real."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        for _ in range(2):
            with deterministic_ids_and_times(), rollout_trace_attr(1):
                op(0)
        op(0)
        assert otel_rollout.flush(60)
        numbers = [
            (span["trace_id"], span["span_id"], span["start_time"], span["end_time"]) for span in exporter.as_dicts()
        ]
        assert numbers[:4] == [(1, 2, 2, 3), (1, 1, 1, 4)] * 2
        real = numbers[4]
        assert real[0] > 2**64
        assert real[1] > 2**32
        assert abs(real[2] - time.time_ns()) < 60e9


USERS_TEST = """
import otel_rollout
from otel_rollout import rollout_trace_op

@rollout_trace_op
def op():
    return 1

def test_first(rollout_spans):
    op()
    assert otel_rollout.flush()
    assert [span["span_id"] for span in rollout_spans.as_dicts()] == [1]

def test_second(rollout_spans):
    op()
    assert otel_rollout.flush()
    assert [span["span_id"] for span in rollout_spans.as_dicts()] == [1]

def test_off():
    assert otel_rollout.RolloutTraceConfig.get_backend() is None
"""


class TestPytestPlugin:
    """The fixture that comes with the package."""

    def test_in_a_project_of_its_own(self, tmp_path: Path) -> None:
        """The fixture `rollout_spans` is there without any configuration, fresh in each test, and off afterwards."""
        (tmp_path / "test_users.py").write_text(USERS_TEST)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "3 passed" in ran.stdout, ran.stdout + ran.stderr
