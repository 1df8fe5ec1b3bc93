"""End the servers of a test run that has ended or was killed: standard input ends with the run's process.

    python tests/servers/run_end.py FOLDER

`FOLDER/processes` has a file for each server, which is called as its process group and holds when its leader started.
The folder is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

SECONDS_TO_STOP = 5.0
SECONDS_TO_REMOVE = 30.0


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none, or if it waits for its parent."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def is_up(group: Path) -> bool:
    """Return whether a process of this server still runs, and isn't another one that got its number."""
    found = started(int(group.name))
    with suppress(OSError):
        os.killpg(int(group.name), 0)
        return found in ("", group.read_text()) and has_running_process(int(group.name))
    return False


def has_running_process(group: int) -> bool:
    """Return whether a process of a group has not ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, _, of_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                return True
    return False


def end(folder: Path) -> None:
    """End all servers: first by request, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + SECONDS_TO_STOP
        asked: set[str] = set()
        while running := [group for group in (folder / "processes").glob("[0-9]*") if is_up(group)]:
            for group in running:
                # One that was started meanwhile is asked too.
                if group.name not in asked:
                    asked.add(group.name)
                    with suppress(ProcessLookupError):
                        os.killpg(int(group.name), number)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.read()
    # A worker of a run that was killed may start one more server meanwhile; without the folder it can't.
    deadline = time.monotonic() + SECONDS_TO_REMOVE
    while Path(sys.argv[1]).exists() and time.monotonic() < deadline:
        end(Path(sys.argv[1]))
        shutil.rmtree(sys.argv[1], ignore_errors=True)
