"""The page Run: a row and a point in each chart for every step."""

from __future__ import annotations

import threading
from itertools import product

import pytest

from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory
from tests.view.looking import ROWS, Looking
from tests.view.made_run import made_trajectory, write_made_run
from tests.view.viewer import Viewer, wait_for

WRITE = write_made_run
STEP_PAGES = ["#/step/2?experiment=first", "#/step/2?experiment=first&tab=trajectories"]


def cells(looking: Looking) -> list[list[str]]:
    """Return the texts of the table's rows."""
    return looking.page.eval_on_selector_all(
        ROWS, "rows => rows.map(row => [...row.children].map(cell => cell.innerText))"
    )


class TestRows:
    """The table of steps."""

    def test_has_a_row_for_each_step_with_its_figures(self, looking):
        """Steps of training stand in order, with prompts, trajectories, mean reward, and groups without signal."""
        looking.go("#/?experiment=first")
        looking.page.wait_for_selector(ROWS)
        rows = cells(looking)
        assert [row[:3] for row in rows] == [[str(step), "6", "24"] for step in (1, 2, 3)]
        assert [row[3] for row in rows] == ["0.348", "0.522", "0.696"]
        # Prompts 0 and 1; at step 3 prompt 3 too, whose only wrong rollout failed.
        assert [row[5] for row in rows] == ["33%", "33%", "50%"]
        assert looking.page.title() == f"first · run run · {looking.viewer.get('run')['title']} · otel-rollout"

    def test_validation_stands_apart(self, looking):
        """Validation has a table of its own, one click away."""
        page = looking.go("#/?experiment=first")
        page.get_by_role("link", name="Validation · 1").click()
        looking.wait("rows => document.querySelectorAll(rows).length === 1", ROWS)
        assert cells(looking)[0][:4] == ["2", "2", "2", "1"]

    def test_the_order_stays_in_the_address(self, looking):
        """A click on a column's title sorts, and who gets the address sees the same order."""
        page = looking.go("#/?experiment=first")
        page.get_by_role("button", name="Reward").click()
        looking.wait_for_address("#/?experiment=first&sort=-reward")
        page.reload()
        page.wait_for_selector(ROWS)
        assert [row[0] for row in cells(looking)] == ["3", "2", "1"]
        assert page.get_by_role("columnheader", name="Reward").get_attribute("aria-sort") == "descending"


class TestFindings:
    """What diagnose finds, on top."""

    def test_a_finding_leads_to_its_steps_and_its_evidence(self, looking, tmp_path):
        """A finding says how many; open, it has the steps and trajectories that it was found in; others have none."""
        writer = FolderWriter(tmp_path)
        for step, sample, rollout in product((1, 2), range(6), range(4)):
            error = "division by zero" if step == 1 and sample > 3 else None
            reward = float(rollout % 2 and error is None)
            writer.write(made_trajectory(step, sample, rollout, reward=reward, tool_error=error))
            writer.write(made_trajectory(step + 2, sample, rollout, reward=float(rollout % 2), experiment="second"))
        writer.close()
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as beside:
            page = beside.go("#/?experiment=first")
            finding = page.locator(".finding", has_text="failures: tool")
            finding.locator("summary").get_by_text("8 of 24").click()
            finding.get_by_role("link", name="1", exact=True).wait_for()
            finding.get_by_role("link", name="step 1 · sample 4 · rollout 0").click()
            beside.wait_for_address("#/step/1/sample/4/rollout/0?experiment=first")
            beside.go("#/?experiment=second").wait_for_selector(ROWS)
            assert page.locator(".finding", has_text="failures: tool").count() == 0

    def test_a_finding_of_validation_or_over_steps_says_so(self, looking, tmp_path):
        """A validation's finding isn't taken for one of training, nor a comparison of two steps for a count of them."""
        writer = FolderWriter(tmp_path)
        for step in range(1, 5):
            for sample in range(8):
                for rollout in range(4):
                    said = "x" if step > 2 else f"{sample} {rollout}"
                    writer.write(make_trajectory(step, sample, rollout, payload=f'"{said}"'))
        for sample in range(16):
            writer.write(make_trajectory(4, sample, validate=True, status="truncated"))
        writer.close()
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as beside:
            page = beside.go("#/?experiment=exp")
            finding = page.locator(".finding", has_text="truncated")
            finding.locator("summary").get_by_text("16 of 16 in validation").click()
            finding.get_by_role("link", name="step 4 validation · sample 0 · rollout 0").wait_for()
            page.locator(".finding", has_text="mode collapse").get_by_text("from step 1 to 4").wait_for()


class TestWays:
    """The ways to a step."""

    def test_keys_lead_to_a_step_and_back(self, looking):
        """`j` goes to the next row, Enter opens it, Escape goes up."""
        page = looking.go("#/?experiment=first")
        page.wait_for_selector(ROWS)
        for key in ("j", "j", "k", "j", "Enter"):
            page.keyboard.press(key)
        looking.wait_for_address("#/step/2?experiment=first")
        page.get_by_role("heading", name="Step 2").wait_for()
        assert page.title().startswith("Step 2 · ")
        page.keyboard.press("Escape")
        looking.wait_for_address("#/")

    def test_a_click_in_a_chart_leads_to_the_step(self, looking):
        """The point under the pointer is the step that opens."""
        page = looking.go("#/?experiment=first")
        chart = page.locator(".chart", has_text="Mean reward").locator(".u-over")
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 30)
        page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 30)
        looking.wait_for_address("#/step/3?experiment=first")

    def test_the_help_lists_the_keys_of_the_page(self, looking):
        """`?` shows the page's own keys and those of all pages; Escape closes it and stays on the page."""
        page = looking.go("#/?experiment=first")
        page.wait_for_selector(ROWS)
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keys")
        dialog.wait_for()
        text = dialog.inner_text()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert "next step" in text
        assert "search" in text
        assert looking.address() == "#/?experiment=first"


class TestComparison:
    """A second run over the first."""

    def test_a_second_experiment_is_drawn_over_the_first(self, looking):
        """`against` draws it dashed over the same charts; the values of both stand above each."""
        page = looking.go("#/?experiment=first")
        page.get_by_label("Against").select_option("second")
        looking.wait_for_address("#/?experiment=first&against=second")
        chart = page.locator(".chart", has_text="Mean reward")
        chart.get_by_text("reward, other").wait_for()
        box = chart.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 2, box["y"] + 30)
        looking.wait("() => document.querySelector('.chart .chart-step').textContent === 'step 1'")
        assert chart.locator(".chart-values b").all_inner_texts() == ["0.348", "0.500"]


class TestAccess:
    """Who can read it, and the pages that it leads to."""

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize(
        "address", ["#/?experiment=first&against=second", *STEP_PAGES, "#/search?q=calculate&in=tool"]
    )
    def test_has_no_serious_fault(self, looking, address, scheme):
        """axe-core finds no serious fault, contrast included."""
        looking.page.emulate_media(color_scheme=scheme)
        looking.go(address).wait_for_selector(ROWS)
        assert looking.serious_faults() == []

    def test_the_chosen_colors_stay(self, looking):
        """The switch takes light and dark over the system's, also after a reload."""
        page = looking.go("#/")
        page.emulate_media(color_scheme="light")
        for _ in range(2):
            page.get_by_role("button", name="Colors").click()
        page.reload()
        page.wait_for_selector(ROWS)
        dark = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
        page.get_by_role("button", name="Colors").click()
        assert dark == "dark"
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"

    @pytest.mark.parametrize("width", [400, 1920])
    def test_fits_the_window(self, looking, width):
        """Nothing is wider than the window but what scrolls by itself."""
        size = looking.page.viewport_size
        looking.page.set_viewport_size({"width": width, "height": 800})
        looking.go("#/?experiment=first").wait_for_selector(ROWS)
        overflow = looking.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        looking.page.set_viewport_size(size)
        assert overflow <= 0

    @pytest.mark.parametrize("address", ["#/?experiment=first&sort=-signal", *STEP_PAGES])
    def test_no_heading_is_cut(self, looking, address):
        """The titles of figures, charts and columns, the sorted one too, have their places."""
        looking.go(address).wait_for_selector(ROWS)
        assert looking.cut_headings(1280) + looking.cut_headings(1920) == []


class TestFaults:
    """What goes wrong."""

    def test_an_empty_folder_is_waited_for(self, looking, tmp_path):
        """Before the first trajectory the page says so, and leads to what runs; its row comes without a reload."""
        with Viewer(tmp_path / "later") as viewer, looking.beside(viewer) as waiting:
            waiting.page.get_by_role("heading", name="No trajectories yet").wait_for()
            assert waiting.page.get_by_role("link", name="What runs now").get_attribute("href") == "#/live"
            write_made_run(tmp_path / "later")
            waiting.page.wait_for_selector(ROWS)
            assert waiting.faults == []

    def test_a_run_that_takes_long_to_read_comes_by_itself(self, looking, folder, monkeypatch):
        """Its page says that it is being read, and then shows it, though no file has changed meanwhile."""
        may_end = threading.Event()
        with Viewer(folder) as viewer:
            read = viewer.state.run.steps
            monkeypatch.setattr(viewer.state.run, "steps", lambda: may_end.wait(120) and read())
            with looking.beside(viewer) as waiting:
                waiting.page.get_by_text("Reading the run …").wait_for()
                for _ in range(3):
                    with waiting.page.expect_request("**/api/run"):
                        pass
                may_end.set()
                waiting.page.wait_for_selector(ROWS)
                assert waiting.faults == []

    def test_another_token_is_told_from_a_server_that_is_gone(self, looking, folder):
        """A tab whose token is no longer right says what to open, and goes on once the browser has the new one."""
        with Viewer(folder) as viewer, looking.beside(viewer) as old:
            old.page.wait_for_selector(ROWS)
            token, viewer.application._token = viewer.application._token, "another"
            old.page.reload()
            old.page.locator(".banner").get_by_text("The server wants another token").wait_for()
            assert "This needs the token" in old.page.get_by_role("alert").inner_text()
            viewer.application._token = token
            old.page.wait_for_selector(ROWS)
            assert old.page.locator(".banner").count() == 0
            old.page.goto("about:blank")


class TestConnection:
    """The connection by which a page hears of changes."""

    def test_a_page_out_of_sight_has_none(self, looking, tmp_path):
        """A browser has six connections to a server: a hidden page needs none, and follows once it is seen."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0, 0))
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as beside:
            beside.go("#/").wait_for_selector(ROWS)
            open_requests = viewer._server.server_state.tasks
            wait_for(lambda: len(open_requests) == 1)
            show(beside, is_hidden=True)
            wait_for(lambda: not open_requests)
            writer.write(make_trajectory(2, 0, 0))
            show(beside, is_hidden=False)
            beside.wait(f"document.querySelectorAll({ROWS!r}).length === 2")
            assert beside.faults == []
        writer.close()


def show(looking: Looking, *, is_hidden: bool) -> None:
    """Tell a page that it is hidden, or to be seen again, as the browser does."""
    looking.page.evaluate(
        """isHidden => {
          Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
        }""",
        is_hidden,
    )
