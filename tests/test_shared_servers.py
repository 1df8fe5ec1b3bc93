"""Servers that the processes of a test run share, and their end."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.delivery.queues import until
from tests.servers import run_end, shared
from tests.servers.process import RUN_FOLDER, ServerProcess

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60.0
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
# A server in a run of its own; where the run is killed, it ignores the request to end.
RUN = """
import sys, time
from tests.servers.process import ServerProcess
from tests.servers.shared import Run
run = Run()
deaf = "signal.signal(15, signal.SIG_IGN);" if sys.argv[1] == "kill" else ""
code = f"import signal, time; {deaf} print('up', flush=True); time.sleep(600)"
server = ServerProcess("sleeper", [sys.executable, "-c", code], lambda: "up" in server.log.read_text())
server.start()
print(run.folder, server.pid, flush=True)
if sys.argv[1] == "end":
    run.end()
else:
    time.sleep(600)
"""


class Sleeper:
    """A server that counts its starts in a file."""

    def __init__(self, folder: Path) -> None:
        self.process = ServerProcess("sleeper", SLEEPS, lambda: True, folder=folder)

    def __enter__(self) -> Sleeper:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        with (self.process.folder / "starts").open("a") as starts:
            starts.write("one ")
        return self


class TestEnd:
    """The end of a run."""

    @pytest.mark.parametrize("how", ["end", "kill", "interrupt"])
    def test_no_server_survives(self, how: str) -> None:
        """Its servers and its folder go with the run, whether it ends, is interrupted or is killed."""
        with subprocess.Popen(
            [sys.executable, "-c", RUN, how], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as run:
            assert run.stdout is not None
            folder, pid = run.stdout.readline().split()
            if how != "end":
                run.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
            run.wait(SECONDS)
        until(lambda: not Path(folder).exists())
        assert run_end.started(int(pid)) == ""

    def test_a_process_that_got_the_number_is_left_alone(self, tmp_path: Path) -> None:
        """A process that isn't the one that was noted, but has its number, isn't ended."""
        (tmp_path / "processes").mkdir()
        with subprocess.Popen(SLEEPS, start_new_session=True) as another:
            (tmp_path / "processes" / str(another.pid)).write_text("1")
            run_end.end(tmp_path)
            assert another.poll() is None
            another.kill()


class TestSharing:
    """One server for all."""

    def test_two_that_ask_at_once_get_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first one starts it, the others wait and get the same; only the first one can stop it."""
        monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
        monkeypatch.setitem(shared.SERVERS, "sleeper", lambda _: Sleeper(tmp_path))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(shared.server, ["sleeper"] * 4))

        assert (tmp_path / "starts").read_text() == "one "
        assert [one.process.folder for one in found] == [tmp_path] * 4
        (own,) = (one for one in found if hasattr(one.process, "_process"))
        assert [file.name for file in (tmp_path / "processes").iterdir()] == [str(own.process.pid)]
        own.process.stop()
        assert list((tmp_path / "processes").iterdir()) == []
