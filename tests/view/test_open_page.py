"""Running trajectories, and those that a crash left: the ways to the page Live, and the page itself."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from otel_rollout import semconv
from otel_rollout.folder import OpDurations, RunningFile
from otel_rollout.record import OpenOp, OpenTrajectory
from tests.servers.browser import Browser
from tests.trace_folder.recordings import write_folder
from tests.view.looking import look
from tests.view.made_run import made_trajectory
from tests.view.viewer import Viewer, wait_for

WORKER = "host-1-abcd"
NO_PROCESS = 2**30
"""More than a process's number can be."""


def write_open(
    folder: Path, *rollouts: tuple[int, int], experiment: str = "first", worker: str = WORKER, first: int = 1
) -> None:
    """Write the file of a process in which trajectories of a step and a rollout number run for a minute."""
    start = time.time_ns() - 60 * 10**9
    trajectories = [
        OpenTrajectory(
            trace_id=f"{number:032x}",
            name="rollout",
            tags=dict(zip(semconv.TAGS, (step, 0, rollout, False, experiment), strict=True)),
            start_time=start,
            op=OpenOp("sandbox.run", "TOOL", start, '{"code":"while True: pass"}'),
            ops=1,
        )
        for number, (step, rollout) in enumerate(rollouts, first)
    ]
    RunningFile(folder, worker).write(trajectories, OpDurations())


def end_process(folder: Path) -> None:
    """Write the file as a process of this host left it that has ended."""
    path = RunningFile(folder, WORKER).path
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "pid": NO_PROCESS}))


@pytest.fixture
def folder_with_ends(tmp_path: Path) -> Path:
    """A folder with a trajectory of step 1 that has ended."""
    return write_folder(tmp_path, made_trajectory(1, 0, 0))


def test_run_and_step_lead_to_what_runs_and_to_what_a_crash_left(browser: Browser, folder_with_ends: Path) -> None:
    """Though other trajectories have ended, both pages say how many are open and lead to them, also after a crash."""
    write_open(folder_with_ends, (1, 7), (1, 8), (2, 9))
    with Viewer(folder_with_ends) as viewer, look(browser, viewer) as looking:
        page = looking.go("#/")
        page.locator(".running").get_by_text("3 running").wait_for()
        looking.go("#/step/1")
        page.locator(".running").get_by_text("2 running").wait_for()
        end_process(folder_with_ends)
        page.locator(".running").get_by_text("2 left open").wait_for()
        page.locator(".running").click()
        page.get_by_role("heading", name="3 trajectories left open: no process gives a sign of life").wait_for()
        rows = page.get_by_role("cell", name="sandbox.run")
        rows.nth(2).wait_for()
        assert rows.count() == 3
        assert viewer.client.get(f"/api/trajectory/{1:032x}").json() == {
            "error": "this trajectory was running when its process ended, and nothing of it is written"
        }
        looking.go("#/")
        page.locator(".running").get_by_text("3 left open").wait_for()
        RunningFile(folder_with_ends, WORKER).path.unlink()
        page.locator(".running").wait_for(state="detached")
        assert looking.faults == []


def test_the_page_of_a_hanging_trajectory_has_its_op_age_and_arguments(
    browser: Browser, folder_with_ends: Path
) -> None:
    """Nothing of it is written yet, and the page shows what it does and for how long, after a crash too."""
    write_open(folder_with_ends, (1, 7))
    with Viewer(folder_with_ends) as viewer, look(browser, viewer) as looking:
        page = looking.go(f"#/trajectory/{1:032x}")
        page.locator(".running-now", has_text="in sandbox.run for 6").wait_for()
        assert "Runs for 6" in page.locator(".running-now").inner_text()
        assert page.locator(".running-input").inner_text() == '{\n  "code": "while True: pass"\n}'
        assert looking.serious_faults() == []
        end_process(folder_with_ends)
        page.locator(".running-now", has_text="Ran for 6").wait_for()
        page.locator(".running-now", has_text="no sign of its process").wait_for()


def test_what_runs_is_on_the_timeline(browser: Browser, folder_with_ends: Path) -> None:
    """A running trajectory has a lane until now with the op that it is in, as long as its process lives."""
    write_open(folder_with_ends, (1, 7), (2, 9))
    with Viewer(folder_with_ends) as viewer, look(browser, viewer) as looking:
        page = looking.go("#/step/1/timeline")
        page.get_by_role("heading", name="for 1 of 2: mostly tool sandbox.run").wait_for()
        assert "Step 1 waits" in page.get_by_role("heading").first.inner_text()
        page.get_by_text("As a table").click()
        row = page.locator(".plain-table tbody tr", has_text="sample 0, rollout 7")
        row.get_by_text("running").wait_for()
        assert "tool sandbox.run, " in row.inner_text().replace("\t", " ")
        page.locator(".timeline-lanes").hover(position={"x": 600, "y": 5})
        page.locator(".timeline-hover", has_text="so far").wait_for()
        end_process(folder_with_ends)
        page.get_by_role("heading", name="One trajectory").wait_for()
        assert looking.faults == []


def test_what_runs_is_told_with_what_it_is_in(folder_with_ends: Path) -> None:
    """`api/live` has each open trajectory with its op and arguments, and what a step waits for, per experiment."""
    write_open(folder_with_ends, (1, 7))
    write_open(folder_with_ends, (1, 8), experiment="second", worker="host-2-abcd", first=2)
    with Viewer(folder_with_ends) as viewer:
        live = viewer.get("live")
        rows = [(each["experiment_name"], each["rollout_n"], each["op"]) for each in live["trajectories"]]
        assert sorted(rows) == [("first", 7, "sandbox.run"), ("second", 8, "sandbox.run")]
        assert (live["open"], len(live["waits"])) == (2, 2)
        end_process(folder_with_ends)
        wait_for(lambda: viewer.get("open")["left"] == 1)


def test_counts_tell_what_lives_from_what_is_left(tmp_path: Path) -> None:
    """The counts of a folder are those of its steps, and nothing is counted where nothing runs."""
    with Viewer(tmp_path) as viewer:
        assert viewer.get("open") == {"open": 0, "left": 0, "steps": []}
    write_open(tmp_path, (1, 7), (2, 9))
    end_process(tmp_path)
    names = {"validate": False, "experiment_name": "first"}
    steps = [{"step": step, **names, "open": 1, "left": 1} for step in (1, 2)]
    with Viewer(tmp_path) as viewer:
        assert viewer.get("open") == {"open": 2, "left": 2, "steps": steps}


def test_words_of_code_are_drawn_as_code(browser: Browser, folder_with_ends: Path) -> None:
    """The name of an exporter or a function stands without backticks."""
    with Viewer(folder_with_ends) as viewer, look(browser, viewer) as looking:
        page = looking.go("#/live")
        page.locator("main code").get_by_text("file", exact=True).wait_for()
        assert "`" not in page.inner_text("main")
