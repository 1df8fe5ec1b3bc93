"""Two runs of one experiment in two folders: each is a series of its own, named by its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.browser import Browser
from tests.trace_folder.recordings import make_trajectory, write_folder
from tests.view.looking import look
from tests.view.viewer import Viewer

SHORT, LONG = "1" * 32, "2" * 32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of a run of two steps with a validation, and of one of four steps."""
    made = [tmp_path_factory.mktemp(f"run-{run_id[0]}-") / "traces" for run_id in (SHORT, LONG)]
    write_runs(*made)
    return made


def write_runs(*folders: Path) -> None:
    """Write a run of two steps with a validation into the first folder, and one of four steps into the second."""
    short, long = (
        [
            make_trajectory(step, 0, rollout, reward=float(rollout), run_id=run_id)
            for step in range(1, steps + 1)
            for rollout in range(2)
        ]
        for run_id, steps in ((SHORT, 2), (LONG, 4))
    )
    write_folder(folders[0], *short, make_trajectory(2, 0, 0, validate=True, run_id=SHORT))
    write_folder(folders[1], *long)


@pytest.fixture(scope="module")
def viewer(folders: list[Path]):
    """A viewer of both."""
    with Viewer(*folders) as running:
        yield running


def test_each_step_belongs_to_its_run(viewer: Viewer, folders: list[Path]) -> None:
    """Steps and validations that only one of the runs has are that run's, as those are that both have."""
    run = viewer.run()
    of_run = {run_id: [step["step"] for step in run["steps"] if step["run_id"] == run_id] for run_id in (SHORT, LONG)}
    assert of_run == {SHORT: [1, 2, 2], LONG: [1, 2, 3, 4]}
    assert run["run_folders"] == {SHORT: str(folders[0]), LONG: str(folders[1])}
    assert len(viewer.get(f"step/4?run={LONG}")["groups"]) == 1
    assert len(viewer.get(f"step/4?run={LONG}")["rows"]) == 2
    assert viewer.client.get(f"/api/step/4?run={SHORT}").status_code == 404


def test_each_step_belongs_to_its_run_in_one_folder_too(tmp_path: Path) -> None:
    """A training that was started again writes into the folder of the first: each run has its own steps."""
    write_runs(tmp_path, tmp_path)
    with Viewer(tmp_path) as viewer:
        run = viewer.run()
        of_run = [[step["step"] for step in run["steps"] if step["run_id"] == run_id] for run_id in (SHORT, LONG)]
        assert of_run == [[1, 2, 2], [1, 2, 3, 4]]
        assert run["run_folders"] == {}


def test_a_prompt_at_other_steps_is_that_of_its_run(viewer: Viewer) -> None:
    """Beside a group stand those of its own run's other steps."""
    others = {
        run_id: [each["step"] for each in viewer.get(f"step/1/group?sample=0&run={run_id}")["other_steps"]]
        for run_id in (SHORT, LONG)
    }
    assert others == {SHORT: [2], LONG: [2, 3, 4]}


def test_one_is_laid_over_the_other_by_the_names_of_their_folders(
    browser: Browser, viewer: Viewer, folders: list[Path]
) -> None:
    """Each can be chosen, by names without what their folders have alike, and all steps of both are in the charts."""
    names = [f"exp · {folder.parent.name}" for folder in folders]
    with look(browser, viewer) as looking:
        page = looking.go(f"#/?experiment=exp&run={SHORT}")
        page.get_by_role("link", name="Training · 2").wait_for()
        page.get_by_role("link", name="Validation · 1").wait_for()
        for name, steps in ((names[1], 4), (names[0], 2)):
            page.get_by_label("Experiment").select_option(name)
            page.get_by_role("link", name=f"Training · {steps}").wait_for()
        page.get_by_label("Against").select_option(names[1])
        page.locator(".charts-legend").get_by_text(names[0]).wait_for()
        page.locator(".charts-legend").get_by_text(names[1]).wait_for()
        label = page.locator(".chart", has_text="Mean reward").get_by_role("img").get_attribute("aria-label")
        assert label is not None
        assert "over 4 steps" in label
        looking.go(f"#/step/3?experiment=exp&run={LONG}")
        page.get_by_title("Next step (])").click()
        looking.wait_for_address(f"#/step/4?experiment=exp&run={LONG}")
        assert looking.faults == []
