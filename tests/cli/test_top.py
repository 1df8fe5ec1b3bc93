"""`otel-rollout top` as a user meets it, on what a real process writes."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rollout.catalog import Run
from otel_rollout.cli.main import main
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory, write_folder

pytest.importorskip("rich")

from rich.console import Console

from otel_rollout.cli.top import draw

SECONDS = 60

PROGRAM = """
import asyncio, sys
import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.deliver import running_report

running_report.SECONDS_RUNNING = running_report.SECONDS_BETWEEN = 0.1
otel_rollout.init("project", "experiment", backend="file", schedule_delay_ms=50)
free = asyncio.Event()

@rollout_trace_op(kind="TOOL", name="sandbox.run")
async def run_tool(hangs):
    await (free.wait() if hangs else asyncio.sleep(0.001))

async def rollout(number):
    with rollout_trace_attr(sample_index=number // 4, step=41, rollout_n=number % 4, name="agent"):
        await run_tool(number == 5)

async def main():
    await asyncio.gather(*map(rollout, range(5)))
    hanging = asyncio.create_task(rollout(5))
    await asyncio.to_thread(sys.stdin.readline)
    free.set()
    await hanging

asyncio.run(main())
otel_rollout.shutdown()
"""


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return what `--json` prints."""
    assert main(["top", str(folder), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of which one trajectory of six hangs in a tool."""
    environment = {**os.environ, "OTEL_ROLLOUT_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def hanging(trainer: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The trajectory that hangs, once the other ones are in the folder."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = shown(tmp_path, capsys)
        if len(found) == 1 and found[0]["op_p99"] is not None:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("it is not told")


class TestTop:
    """A step that waits for a trajectory."""

    def test_running(self, hanging: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The trajectory is shown with its op and how long that takes else, and the step that waits for it."""
        assert (hanging["step"], hanging["sample_index"], hanging["rollout_n"]) == (41, 1, 1)
        assert (hanging["op"], hanging["op_kind"], hanging["ops"]) == ("sandbox.run", "TOOL", 1)
        assert hanging["is_alive"]
        assert 0 < hanging["op_seconds"] <= hanging["seconds"]
        assert main(["top", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("step 41 waits for 1 of 6: all in sandbox.run; the longest runs for ")
        assert lines[2].split() == ["age", "step", "sample", "rollout", "in", "for", "p99", "ops", "process", "trace"]
        assert hanging["trace_id"] in lines[3]
        for option, known in (("--experiment", hanging["experiment_name"]), ("--run", hanging["run_id"][:8])):
            assert main(["top", str(tmp_path), option, known, "--json"]) == 0
            assert hanging["trace_id"] in capsys.readouterr().out
            assert main(["top", str(tmp_path), option, "another", "--json"]) == 0
            assert capsys.readouterr().out == ""

    def test_its_end(
        self,
        trainer: subprocess.Popen[str],
        hanging: dict[str, Any],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Once nothing runs any more, that is said, and the file is gone."""
        trainer.communicate("\n", timeout=SECONDS)
        assert main(["top", str(tmp_path)]) == 0
        assert "nothing runs here for longer than 3 s" in capsys.readouterr().err
        assert not list(tmp_path.rglob("*.running.json"))

    def test_a_crash(
        self,
        trainer: subprocess.Popen[str],
        hanging: dict[str, Any],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """After SIGKILL what was open is still told, in its op and with its host, as of a process that is gone."""
        trainer.send_signal(signal.SIGKILL)
        trainer.wait(SECONDS)
        [told] = shown(tmp_path, capsys)
        assert (told["trace_id"], told["op"], told["is_alive"]) == (hanging["trace_id"], "sandbox.run", False)
        assert main(["top", str(tmp_path)]) == 0
        output = capsys.readouterr().out
        assert "no sign of life" in output
        assert "waits for" not in output


def write_running(
    folder: Path,
    *trajectories: dict[str, Any],
    worker: str = "host-1-abcd",
    seconds: int = 10,
    silent: int = 0,
    **content: Any,
) -> None:
    """Write the file of a process of another host, in which trajectories of step 1 run."""
    beat = time.time_ns() - silent * 10**9
    start = beat - seconds * 10**9
    usual: dict[str, Any] = {"trace_id": "a" * 32, "name": "x", "step": 1, "sample_index": 0, "rollout_n": 0, "ops": 1}
    usual |= {"validate": False, "experiment_name": "a", "start_time": start}
    usual["op"] = {"name": "search", "kind": "TOOL", "start_time": start}
    told = {"beat": beat, "host": "elsewhere", "pid": 1, "open": 1, "durations": {"search": {"59": 3}}, **content}
    path = folder / "open" / f"{worker}.running.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**told, "trajectories": [usual | each for each in trajectories or ({},)]}))
    os.utime(path, ns=(beat, beat))


class TestSeveral:
    """Several experiments or processes in one folder."""

    def test_experiments_are_apart(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Each experiment's step waits for its own trajectories, and the table names the experiment."""
        write_folder(
            tmp_path,
            *(make_trajectory(1, 0, rollout, experiment="a") for rollout in range(3)),
            make_trajectory(1, 1, 0, experiment="b"),
        )
        for number, experiment in enumerate("ab"):
            told = {"trace_id": experiment * 32, "experiment_name": experiment}
            write_running(tmp_path, told, worker=f"host-{number}-abcd")
        assert main(["top", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("step 1 of a waits for 1 of 4: all in search; ")
        assert lines[1].startswith("step 1 of b waits for 1 of 2: all in search; ")
        assert lines[3].split()[:3] == ["age", "experiment", "step"]
        assert "(p99 28 ms)" in lines[0]

    def test_living_processes_come_first(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What a crash left long ago doesn't push what runs off the screen, however long it ran."""
        write_running(tmp_path, seconds=9000, silent=3600)
        write_running(tmp_path, {"trace_id": "b" * 32, "experiment_name": "b"}, worker="host-2-abcd")
        assert [(each["experiment_name"], each["is_alive"]) for each in shown(tmp_path, capsys)] == [
            ("b", True),
            ("a", False),
        ]


class TestOtherFolders:
    """Folders that tell nothing of what runs."""

    def test_a_writer_of_ended_spans(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A process that writes ended spans alone, as a receiver does, is named as such."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0)[:2])
        assert main(["top", str(tmp_path)]) == 0
        assert "told of ended spans alone" in capsys.readouterr().err
        assert main(["top", str(tmp_path), "--json"]) == 0
        output = capsys.readouterr()
        assert (output.out, "told of ended spans alone" in output.err) == ("", True)
        writer.close()

    @pytest.mark.parametrize("content", ["", "[]", '{"beat": 1}', '{"trajectories": 3}', "\ufffd" * 10])
    def test_damaged_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
        """A file of another form is passed over."""
        path = tmp_path / "open" / "host-1-abcd.running.json"
        path.parent.mkdir()
        path.write_text(content)
        assert shown(tmp_path, capsys) == []

    @pytest.mark.parametrize("steps", [1, 30])
    def test_fits_a_terminal(self, tmp_path: Path, steps: int) -> None:
        """Neither wider nor longer than it, however many steps wait and however long the names of ops are."""
        op = {"name": "sandbox." + "x" * 120, "kind": "TOOL", "start_time": 1}
        running = [{"step": number % steps, "sample_index": "y" * 40, "op": op} for number in range(60)]
        write_running(tmp_path, *running, open=60)
        console = Console(width=80, height=24, force_terminal=True, color_system=None, file=io.StringIO())
        draw(console, Run([tmp_path]).live(), console.height)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert 12 <= len(lines) < 24

    def test_escape_sequences(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What a terminal would act on in a name is not printed."""
        op = {"name": "\x1b[2Jx", "kind": "TOOL", "start_time": 1}
        evil = {"trace_id": "\x1b[2J", "name": "\x1b", "sample_index": "\x1b[31m", "ops": "\x1b", "op": op}
        write_running(tmp_path, evil, host="h\x1b")
        assert main(["top", str(tmp_path)]) == 0
        assert "\x1b" not in capsys.readouterr().out

    @pytest.mark.parametrize("changes", [{"pid": 2**62}, {"durations": {"x": {"9" * 5000: 1}}}])
    def test_numbers_out_of_range(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
    ) -> None:
        """A number that nothing of ours writes is passed over."""
        write_running(tmp_path, **{"host": socket.gethostname(), "pid": os.getpid(), **changes})
        [told] = shown(tmp_path, capsys)
        assert told["is_alive"]
