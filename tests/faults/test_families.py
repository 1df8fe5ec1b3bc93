"""Processes that come from one another, by fork and multiprocessing, in front of one backend or one folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_receiver import Fault

PROGRAM = Path(__file__).parent / "programs" / "family.py"
SPANS_OF_CHILD, SPANS_OF_PARENT = 20, 60


@pytest.fixture
def family(tmp_path):
    """Runs a family of processes, and returns the ids of all its spans and the parent's counts."""

    def run(*arguments, **variables):
        own = {"SENT": str(tmp_path / "sent"), "COUNTS": str(tmp_path / "counts"), "PROJECT": "family"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), *arguments],
            env={**os.environ, **own, **variables},
            check=False,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        ids = (tmp_path / "sent").read_bytes()
        counts = json.loads((tmp_path / "counts").read_text())["exporters"]
        return [ids[place : place + 8].hex() for place in range(0, len(ids), 8)], counts

    return run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestFamily:
    """A parent that has sent some and has others queued when its children start."""

    @pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver", "executor"])
    def test_each_span_arrives_once(self, receiver, family, kind) -> None:
        """Whatever the way of starting them, parent and children deliver their own spans, each once, by their ends."""
        sent, counts = family(kind, "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert len(sent) == 3 * SPANS_OF_CHILD + SPANS_OF_PARENT
        assert receiver.stored == dict.fromkeys(sent, 1)
        assert counts["otlp"]["recorded"] == counts["otlp"]["delivered"] == SPANS_OF_PARENT

    def test_each_span_arrives_once_through_faults(self, receiver, family) -> None:
        """Children whose connections are reset and whose requests are refused for a while lose nothing either."""
        receiver.faults += [Fault(reset="body"), None, Fault(status=503), None] * 20
        sent, counts = family("fork", "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert receiver.stored == dict.fromkeys(sent, 1)
        assert counts["otlp"]["lost"] == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestPool:
    """`multiprocessing.Pool` ends its workers by SIGTERM."""

    def test_without_flush(self, receiver, family) -> None:
        """Without a flush the workers of a pool that is terminated lose what they have queued, and nothing else."""
        sent, _ = family("pool", "3", OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert len(sent) == 3 * SPANS_OF_CHILD + SPANS_OF_PARENT
        assert set(receiver.stored) < set(sent)
        assert len(receiver.stored) == SPANS_OF_PARENT
        assert set(receiver.stored.values()) == {1}

    @pytest.mark.parametrize("way", ["flush", "handle_sigterm"])
    def test_each_span_arrives_once(self, receiver, family, way) -> None:
        """With a flush at the end of each task, or with `handle_sigterm`, all of it arrives."""
        settings = {"SETTINGS": json.dumps({"handle_sigterm": True})} if way == "handle_sigterm" else {}
        sent, _ = family(
            "pool",
            "3",
            way,
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            **settings,
        )
        assert receiver.stored == dict.fromkeys(sent, 1)
