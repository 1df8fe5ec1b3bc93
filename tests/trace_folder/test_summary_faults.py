"""A fault of ours in a summary changes nothing about the spans, which are stored before it is made."""

from __future__ import annotations

import pytest
from writing import ids, trajectory

import otel_rollout
from otel_rollout.analysis.summary_builder import SummaryBuilder
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.receive.received_folder import ReceivedFolder
from otel_rollout.trace_folder import step_files
from otel_rollout.trace_folder.otlp_json import encode_spans
from otel_rollout_file import FileSpanExporter


def fail(*_: object, **__: object) -> None:
    """Stands for a fault."""
    raise ArithmeticError


@pytest.fixture(autouse=True)
def goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", raising=False)


@pytest.fixture(params=["columns", "entry", "durations"])
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in making a summary's columns, the index entry, or in counting durations."""
    match request.param:
        case "columns":
            monkeypatch.setattr(SummaryBuilder, "columns", fail)
        case "entry":
            monkeypatch.setattr(step_files, "entry_of", fail)
        case "durations":
            monkeypatch.setattr("otel_rollout.trace_folder.op_durations.OpDurations.add", fail)


@pytest.mark.usefixtures("fault")
def test_the_exporter_stores_all(tmp_path) -> None:
    """Every trajectory of the batch is delivered and read once."""
    exporter = FileSpanExporter(folder=tmp_path / "traces")
    batch = [span for number in range(3) for span in trajectory(step=number)]
    assert exporter.send(batch) == DELIVERED
    exporter.shutdown()
    assert ids(span for each in otel_rollout.read(tmp_path / "traces") for span in each.spans) == ids(batch)


@pytest.mark.usefixtures("fault")
def test_a_receiver_writes_each_trace_once(tmp_path) -> None:
    """A trace is written once and closed, and those behind it are written too."""
    folder = ReceivedFolder(tmp_path / "traces", idle_seconds=0)
    batch = [span for _ in range(3) for span in trajectory()]
    folder.take(encode_spans(batch))
    while folder.write_overdue():
        pass
    assert (folder.open_traces, folder.written) == (0, 3)
    folder.close()
    assert ids(span for each in otel_rollout.read(tmp_path / "traces") for span in each.spans) == ids(batch)


def test_an_incomplete_summary_is_not_kept(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a span could not be summarised, readers make the summary of all spans."""
    batch = trajectory()
    exporter = FileSpanExporter(folder=tmp_path / "traces")
    with monkeypatch.context() as faulty:
        faulty.setattr(SummaryBuilder, "_add", fail)
        assert exporter.send(batch) == DELIVERED
    exporter.shutdown()
    [read] = otel_rollout.read(tmp_path / "traces")
    assert len(read.summary.shape) == len(batch) == read.summary.spans
