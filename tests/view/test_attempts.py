"""The pages of a resumed run, as their server answers."""

from __future__ import annotations

from pathlib import Path

from otel_rollout import read_trajectories
from tests.servers.browser import Browser
from tests.trace_folder.training import ROLLOUTS, train
from tests.view.looking import look
from tests.view.viewer import Viewer, wait_for

NOTE = (
    "the run base was resumed: 12 trajectories of attempt 1, steps 6 to 8, left out, as a later attempt "
    "has overtaken them (--attempt 1)"
)


def write(folder: Path) -> None:
    """Write a run of steps 1 to 8 that was resumed at step 6 and came to step 10."""
    train(folder, "first", range(1, 9), 1)
    train(folder, "second", range(6, 11), 2, reward=1.0)


def test_each_step_is_there_once(tmp_path: Path) -> None:
    """The later attempt's from where it began; a trajectory that was overtaken says so, and is in no group."""
    write(tmp_path)
    overtaken = {each.trace_id: each.run_id == "first" for each in read_trajectories(tmp_path, step=7)}
    with Viewer(tmp_path) as viewer:
        run = viewer.run()
        assert [(step["step"], step["attempt"]) for step in run["steps"]] == [(n, 1 + (n > 5)) for n in range(1, 11)]
        assert {step["run_id"] for step in run["steps"]} == {None}
        assert run["attempts"] == [NOTE]
        assert len(viewer.get("step/7")["rows"]) == ROLLOUTS
        assert len(viewer.get("step/7/timeline")["lanes"]) == ROLLOUTS
        assert [each["step"] for each in viewer.get("step/7/group?sample=0")["other_steps"]] == [*range(1, 7), 8, 9, 10]
        assert len(viewer.get("prompt?sample=0")["steps"]) == 10
        for trace_id, is_overtaken in overtaken.items():
            found = viewer.get(f"trajectory/{trace_id}")
            assert (found["attempt"], found["is_overtaken"]) == (2 - is_overtaken, is_overtaken)
            assert (found["previous"] or found["next"]) is None if is_overtaken else True


def test_an_attempt_that_comes_is_seen(tmp_path: Path) -> None:
    """The steps that the run had come to are gone as soon as training has gone back."""
    train(tmp_path, "first", range(1, 9), 1)
    with Viewer(tmp_path) as viewer:
        assert viewer.run()["attempts"] == []
        train(tmp_path, "second", [6], 2)
        wait_for(lambda: viewer.run()["attempts"])
        run = viewer.run()
        assert [step["step"] for step in run["steps"]] == [1, 2, 3, 4, 5, 6]
        assert run["attempts"] == [NOTE]
        assert viewer.client.get("/api/step/8").status_code == 404


def test_the_page_of_the_run(browser: Browser, tmp_path: Path) -> None:
    """It has a column with the attempts, and says what is left out."""
    write(tmp_path)
    with Viewer(tmp_path) as viewer, look(browser, viewer) as looking:
        page = looking.go("#/")
        page.get_by_role("columnheader", name="Attempt").wait_for()
        page.get_by_text("12 trajectories of attempt 1").wait_for()
        assert looking.faults == []
