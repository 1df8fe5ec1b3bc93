"""When a received trajectory is written: whatever the order of its spans, and however often they come."""

from __future__ import annotations

import random

import otel_rollout
from tests.receive.receiving import (
    JSON,
    ids_of,
    make_span,
    make_trace,
    requests_in_frames,
    spans_in_frames,
    stored,
    wait_until,
)


def test_any_order(start, tmp_path) -> None:
    """Spans one by one, shuffled over trajectories, roots first or last, make one line for each, its root last."""
    receiver = start()
    spans = [span for number in range(5) for span in make_trace(number, 6)]
    random.Random(1).shuffle(spans)
    for span in spans:
        assert receiver.send([span]).status == 200
    assert receiver.stop()[0] == 0
    assert len(requests_in_frames(tmp_path / "traces")) == 5
    assert stored(tmp_path / "traces") == ids_of(spans)
    for each in otel_rollout.read_trajectories(tmp_path / "traces"):
        assert each.has_root
        assert each.spans[-1].name == "root"


def test_doubles(start, tmp_path) -> None:
    """A span that comes again is stored once: in its request, while its trajectory is open, and after it is written."""
    receiver = start("--idle", "1")
    spans = make_trace(1)
    assert receiver.send([*spans, *spans]).status == 200
    assert receiver.send(spans, form=JSON).status == 200
    wait_until(lambda: requests_in_frames(tmp_path / "traces"))
    for _ in range(2):
        assert receiver.send(spans).status == 200
    code, said = receiver.stop()
    assert code == 0
    assert "4 spans in 4 requests, 16 had come before; 1 trajectory written" in said.replace("5 requests", "4 requests")
    assert spans_in_frames(tmp_path / "traces") == {span.span_id.hex(): 1 for span in spans}


def test_unfinished(start, tmp_path) -> None:
    """A trajectory without its root is written after `--idle`; its root is added when it comes."""
    receiver = start("--idle", "1")
    *children, root = make_trace(1, rollout__step=7)
    assert receiver.send(children).status == 200
    (open_one,) = otel_rollout.read_trajectories(tmp_path / "traces")
    assert not open_one.has_root
    wait_until(lambda: requests_in_frames(tmp_path / "traces"))
    assert receiver.send([root]).status == 200
    wait_until(lambda: len(requests_in_frames(tmp_path / "traces")) == 2)
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces", step=7)
    assert (one.has_root, one.name, one.span_count) == (True, "root", 4)
    assert stored(tmp_path / "traces") == ids_of([*children, root])


def test_late_spans_join_the_step(start, tmp_path) -> None:
    """Spans of another program, which know no step, are added to their trajectory's step after it was written, too."""
    receiver = start("--idle", "1")
    assert receiver.send(make_trace(1, rollout__step=7, rollout__validate=True)).status == 200
    wait_until(lambda: requests_in_frames(tmp_path / "traces"))
    assert receiver.send([make_span(1, 9, name="engine")]).status == 200
    wait_until(lambda: len(requests_in_frames(tmp_path / "traces")) == 2)
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces", step=7, validate=True)
    assert {span.name for span in one.spans} == {"op", "root", "engine"}
    assert not (tmp_path / "traces" / "no-step").exists()


def test_too_many_open(start, tmp_path) -> None:
    """Beyond `--max-open` the idlest is written, nothing is refused, and what comes later is added."""
    receiver = start("--max-open", "3")
    for number in range(6):
        assert receiver.send(make_trace(number)[:-1]).status == 200
    assert len(requests_in_frames(tmp_path / "traces")) == 3
    everything = [span for number in range(6) for span in make_trace(number)]
    assert receiver.send(everything).status == 200
    assert receiver.stop()[0] == 0
    assert stored(tmp_path / "traces") == ids_of(everything)
    assert set(spans_in_frames(tmp_path / "traces").values()) == {1}


def test_without_our_attributes(start, tmp_path, capsys) -> None:
    """Traces of programs that know nothing of rollouts are listed by service and name, and shown."""
    from otel_rollout.cli.main import main

    receiver = start()
    assert receiver.send(make_trace(1)).status == 200
    assert receiver.stop()[0] == 0
    assert main(["ls", str(tmp_path / "traces"), "--step", "none"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[1:3] == ["service", "name"]
    assert row.split()[1:3] == ["a-service", "root"]
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces")
    assert main(["show", str(tmp_path / "traces"), "--trace", one.trace_id]) == 0
    shown = capsys.readouterr().out
    assert "root" in shown
    assert "a-service" in shown


def test_bound_on_the_folder(start, tmp_path) -> None:
    """With `--max-bytes` the oldest files are removed, and no more than that, whatever the journal holds meanwhile."""
    receiver = start("--max-bytes", "200KiB")
    rng = random.Random(1)
    for step in range(20):
        text = rng.randbytes(15_000).hex()
        assert receiver.send(make_trace(step, 3, rollout__step=step, text=text)).status == 200
    assert receiver.stop()[0] == 0
    steps = [each.step for each in otel_rollout.read_trajectories(tmp_path / "traces")]
    # Two of 16 kB are in a file.
    assert steps == list(range(8, 20))
    assert sum(path.stat().st_size for path in (tmp_path / "traces").rglob("*") if path.is_file()) <= 200 * 1024
