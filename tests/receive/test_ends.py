"""Receivers that end: killed, stopped, restarted, several on one folder."""

from __future__ import annotations

import signal
import socket
from urllib.parse import SplitResult, urlsplit

import otel_rollout
from tests.receive.receiving import (
    ids_of,
    make_span,
    make_trace,
    requests_in_frames,
    spans_in_frames,
    stored,
    wait_until,
)


def test_sigkill(start, tmp_path) -> None:
    """After SIGKILL the next receiver goes on with what was open: late spans join it, doubles are known."""
    first = start()
    unfinished, ended = make_trace(1, rollout__step=3), make_trace(2, rollout__step=3)
    assert first.send([*unfinished[:2], *ended]).status == 200
    first.stop(signal.SIGKILL)
    assert stored(tmp_path / "traces") == ids_of([*unfinished[:2], *ended])
    second = start()
    wait_until(lambda: len(list((tmp_path / "traces" / "open").glob("*.otlp.zst"))) == 1)
    assert second.send([*unfinished, *ended]).status == 200
    code, said = second.stop()
    assert code == 0
    assert "2 spans in 1 request, 6 had come before, 6 taken over from another receiver; 2 trajectories" in said
    assert stored(tmp_path / "traces") == ids_of([*unfinished, *ended])
    assert set(spans_in_frames(tmp_path / "traces").values()) == {1}
    assert not list((tmp_path / "traces" / "open").iterdir())


def test_killed_while_written(start, tmp_path) -> None:
    """What a dead receiver's journal still has of written trajectories isn't written a second time."""
    first = start("--idle", "1")
    written, unfinished = make_trace(1, rollout__step=3), []
    assert first.send(written).status == 200
    while not requests_in_frames(tmp_path / "traces"):
        # The journal is kept for the sake of a trajectory that is open.
        unfinished.append(make_span(2, len(unfinished) + 1))
        assert first.send(unfinished).status == 200
    first.stop(signal.SIGKILL)
    # The index may not have been written in time.
    for index in (tmp_path / "traces").rglob("*.index.jsonl*"):
        index.unlink()
    second = start()
    assert second.send([*written, *unfinished]).status == 200
    wait_until(lambda: len(list((tmp_path / "traces" / "open").glob("*.otlp.zst"))) == 1)
    assert second.stop()[0] == 0
    assert stored(tmp_path / "traces") == ids_of([*written, *unfinished])
    assert spans_in_frames(tmp_path / "traces") == {span.span_id.hex(): 1 for span in written}


def test_sigterm(start, tmp_path) -> None:
    """SIGTERM writes the trajectories whose root has come, keeps the others for the next receiver, and exits with 0."""
    first = start()
    ended, unfinished = make_trace(1), make_trace(2)
    assert first.send([*ended, *unfinished[:2]]).status == 200
    code, said = first.stop()
    assert (code, said.splitlines()[-1]) == (0, "6 spans in 1 request; 1 trajectory written, 1 open")
    assert len(requests_in_frames(tmp_path / "traces")) == 1
    assert stored(tmp_path / "traces") == ids_of([*ended, *unfinished[:2]])
    second = start()
    assert second.send(unfinished).status == 200
    wait_until(lambda: len(list((tmp_path / "traces" / "open").glob("*.otlp.zst"))) == 1)
    assert second.stop()[0] == 0
    assert stored(tmp_path / "traces") == ids_of([*ended, *unfinished])
    assert set(spans_in_frames(tmp_path / "traces").values()) == {1}


def test_interrupt(start) -> None:
    """Ctrl-C ends it the same way, with the exit code of an interruption and no traceback."""
    receiver = start()
    code, said = receiver.stop(signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said


def test_two_signals(start) -> None:
    """A second signal ends the wait for a request; the first one decides the exit code."""
    receiver = start()
    url = urlsplit(receiver.url)
    head = b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection((url.hostname, url.port)) as waiting:
        waiting.sendall(head)
        assert receiver.send(make_trace(1)).status == 200
        receiver.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not _listens(url))
        assert receiver.stop(signal.SIGINT)[0] == 0


def _listens(url: SplitResult) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((url.hostname, url.port)) == 0


def test_two_receivers(start, tmp_path) -> None:
    """Two receivers write into one folder at once, each into files of its own; neither takes the other's journal."""
    first, second = start(), start()
    for number in range(10):
        assert (first, second)[number % 2].send(make_trace(number)).status == 200
    assert len(list((tmp_path / "traces" / "open").glob("*.otlp.zst"))) == 2
    assert first.stop()[0] == second.stop()[0] == 0
    everything = [span for number in range(10) for span in make_trace(number)]
    assert stored(tmp_path / "traces") == ids_of(everything)
    assert set(spans_in_frames(tmp_path / "traces").values()) == {1}


def test_trainers_journal_stays(start, tmp_path) -> None:
    """The journal of a trainer that writes into the same folder isn't taken."""
    from otel_rollout.folder.folder_writer import FolderWriter
    from tests.trace_folder.recordings import make_trajectory

    writer = FolderWriter(tmp_path / "traces")
    writer.write(make_trajectory(1)[:-1])
    # As after its death.
    writer._journal.forget()
    receiver = start()
    assert receiver.send([make_span(5, 0)]).status == 200
    assert receiver.stop()[0] == 0
    assert len(list((tmp_path / "traces" / "open").glob("*.otlp.zst"))) == 1
    assert len(list(otel_rollout.read_trajectories(tmp_path / "traces"))) == 2
