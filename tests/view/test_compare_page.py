"""Two runs compared in the pages: *Against* on the page of the run, and a prompt's rollouts of both."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.servers.browser import Browser
from tests.trace_folder.recordings import make_trajectory, write_folder
from tests.view.looking import look
from tests.view.viewer import Viewer


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory):
    """A viewer of two experiments of 12 prompts: `old` solves all of them in part, `new` only the last two."""
    folder = write_folder(
        tmp_path_factory.mktemp("compared") / "traces",
        *(
            make_trajectory(step, sample, n, reward=float(lost <= sample and n != sample % 4), experiment=name, of=name)
            for name, lost in (("old", 0), ("new", 10))
            for step, sample, n in product((1, 2), range(12), range(4))
        ),
    )
    with Viewer(folder) as running:
        yield running


def test_the_answer_has_figures_flips_and_findings(viewer: Viewer) -> None:
    """`api/compare` names what is worse, each figure as text, and the prompts that are lost."""
    answer = viewer.get("compare?experiment=new&against=old")
    (part,) = answer["parts"]
    assert answer["is_worse"]
    assert answer["verdict"].startswith("B is worse: reward")
    assert part["figures"][0]["title"] == "reward"
    assert (part["figures"][0]["before"], part["figures"][0]["verdict"]) == ("0.75", "worse")
    assert [flip["sample_index"] for flip in part["lost"]] == list(range(10))
    assert [finding["check"] for finding in answer["new"]] == ["groups_without_signal"]


def test_a_prompt_has_its_steps(viewer: Viewer) -> None:
    """`api/prompt` has the groups of one run by step, what solves it by the run's rewards, and when that began."""
    answer = viewer.get("prompt?sample=0&experiment=old")
    assert [(each["group"]["step"], each["solved"]) for each in answer["steps"]] == [(1, 0.75), (2, 0.75)]
    assert (answer["first_solved"], answer["forgotten"], answer["solved_above"]) == (1, None, 0.5)
    never = viewer.get("prompt?sample=0&experiment=new")
    assert (never["first_solved"], never["forgotten"]) == (None, None)
    assert viewer.client.get("/api/prompt?sample=99").status_code == 404


def test_a_prompt_that_fails_from_a_step_on_is_forgotten(tmp_path: Path) -> None:
    """It was solved by more than half, and 16 rollouts or more have failed since."""
    folder = tmp_path / "traces"
    for step in range(1, 5):
        rewards = [1.0, 1.0, 0.0, 1.0] + [0.0] * 4 if step > 1 else [1.0] * 8
        rewards = [0.0] * 8 if step > 2 else rewards
        write_folder(
            folder,
            *(make_trajectory(step, 0, n, reward=reward) for n, reward in enumerate(rewards)),
            *(make_trajectory(step, 1, n, reward=float(n % 2)) for n in range(8)),
        )
    with Viewer(folder) as running:
        answer = running.get("prompt?sample=0")
    assert (answer["first_solved"], answer["forgotten"]) == (1, 3)


def test_an_unknown_run_is_an_error(viewer: Viewer) -> None:
    """A sentence says that there is none."""
    assert viewer.client.get("/api/compare?experiment=new&against=other").status_code == 404


def test_the_page_leads_to_both_runs_of_a_prompt(browser: Browser, viewer: Viewer) -> None:
    """*Against* shows the same; a prompt that flipped leads to its rollouts of both runs, four and four."""
    with look(browser, viewer) as looking:
        page = looking.go("#/?experiment=new&against=old")
        looking.wait("() => document.querySelector('.comparison .is-worse')")
        assert "This run is worse: reward" in page.inner_text(".comparison")
        assert looking.serious_faults() == []
        page.click(".flips >> text=sample 0")
        looking.wait("() => document.querySelectorAll('.column-head').length === 8")
        assert looking.address() == "#/step/2/sample/0?experiment=new&against=old"
        assert "rollout 0 of A" in page.inner_text(".heads")
        assert "Next to each rollout is one of A, old: 4 rollouts, mean reward 0.750" in page.inner_text("main")
        assert looking.serious_faults() == []
        crumbs = page.get_by_role("navigation", name="breadcrumbs").inner_text().replace("\n", " ")
        assert "new · run run" in crumbs
        page.click("text=This prompt by step")
        looking.wait("() => document.querySelectorAll('.prompt-page .rewards a').length === 8")
        assert looking.address() == "#/sample/0?experiment=new"
        assert "never solved" in page.inner_text(".prompt-page")
        assert looking.serious_faults() == []
        page.go_back()
        page.click("text=without A")
        looking.wait("() => document.querySelectorAll('.column-head').length === 4")
        assert looking.faults == []
