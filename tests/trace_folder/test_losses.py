"""Spans that an exporter lost are written into the trace folder, and its readers say so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import semconv
from otel_rollout.cli.main import main
from otel_rollout.counts import Loss
from otel_rollout.deliver import QueueLimits, SpanOutbox
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.finish import PayloadFinisher, SpanReader
from otel_rollout.folder import append_losses, describe_losses, read_losses
from otel_rollout_file import FileSpanExporter


def span_of(number: int, step: int) -> ReadableSpan:
    """Return the root of a trajectory."""
    return ReadableSpan(
        name="rollout",
        context=SpanContext(number, number, False, TraceFlags(TraceFlags.SAMPLED)),
        attributes={semconv.STEP: step, semconv.SAMPLE_INDEX: number, semconv.EXPERIMENT_NAME: "experiment"},
        resource=Resource({}),
        start_time=1,
        end_time=2,
    )


class Stubborn(FileSpanExporter):
    """Refuses the trajectories of step 2, and all once its disk is full."""

    is_full = False

    def send(self, spans):
        """Answer."""
        if self.is_full:
            return Outcome(Verdict.RETRY, "the disk is full")
        if any((span.attributes or {})[semconv.STEP] == 2 for span in spans):
            return Outcome(Verdict.REFUSED, "no")
        return super().send(spans)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two trajectories of step 1, of which three of step 2 were refused and one of step 3 was late."""
    exporter = Stubborn(folder=tmp_path / "traces")
    reader = SpanReader(Resource({}), InstrumentationScope("test"), PayloadFinisher(2**30, None))
    outbox = SpanOutbox("file", exporter, reader, QueueLimits(delay=0.0))
    for number, step in enumerate((1, 2, 2, 1, 2), 1):
        outbox.put(span_of(number, step))
    assert outbox.flush(60) is False
    exporter.is_full = True
    outbox.put(span_of(6, 3))
    outbox.shutdown(0.0)
    outbox.join()
    assert outbox.stats().lost == {"refused": 3, "shutdown": 1}
    return tmp_path / "traces"


class TestLosses:
    """What a folder should have and doesn't."""

    def test_they_are_in_the_folder_by_step_and_reason(self, folder):
        """The folder has the number of lost spans of each step, with the reason that `stats()` has."""
        assert [(each.loss, each.spans) for each in read_losses([folder])] == [
            (Loss("refused", 2, False, "experiment"), 3),
            (Loss("shutdown", 3, False, "experiment"), 1),
        ]

    def test_ls_says_so(self, folder, capsys):
        """`ls` has a line on them; with a step, on those of the step."""
        assert main(["ls", str(folder)]) == 0
        line = "4 spans of steps 2 to 3 lost before this folder had them (refused 3, shutdown 1)"
        assert line in capsys.readouterr().err
        main(["ls", str(folder), "--step", "2..3"])
        assert line in capsys.readouterr().err
        main(["ls", str(folder), "--step", "1"])
        assert "lost" not in capsys.readouterr().err

    def test_diagnose_says_so(self, folder, capsys):
        """`diagnose` has `lost_spans`, also for a step that the folder has nothing of."""
        assert main(["diagnose", str(folder), "--json"]) == 1
        (found,) = (each for each in json.loads(capsys.readouterr().out)["findings"] if each["check"] == "lost_spans")
        assert (found["number"], found["total"]) == (4, 6)
        assert "refused 3, shutdown 1" in found["meaning"]

    def test_a_torn_line_is_left_out(self, tmp_path):
        """A line that a crash cut short costs no other; a negative number takes back an earlier one."""
        append_losses(tmp_path, "host-1-0000", "run", {Loss("unknown", 1): 2, Loss("shutdown", None): 1})
        append_losses(tmp_path, "host-1-0000", "run", {Loss("unknown", 1): -2})
        (path,) = tmp_path.iterdir()
        path.write_bytes(path.read_bytes() + b'{"reason":"shutdown","step":1')
        losses = read_losses([tmp_path])
        assert [(each.loss, each.run_id, each.spans) for each in losses] == [(Loss("shutdown"), "run", 1)]
        assert describe_losses(losses) == "1 span of no step lost before this folder had them (shutdown 1)"
        assert describe_losses([]) == ""

    def test_a_disk_that_takes_a_part_of_a_line(self, tmp_path, monkeypatch):
        """The rest is written then: half a line would cost the next one as well."""
        write, pwrite = os.write, os.pwrite
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:8]))
        monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:8], offset))
        for step in (1, 2):
            append_losses(tmp_path, "host-1-0000", "run", {Loss("refused", step): 1})
        assert [each.loss for each in read_losses([tmp_path])] == [Loss("refused", 1), Loss("refused", 2)]
