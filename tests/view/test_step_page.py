"""The page Step: its figures, and its groups and trajectories as rows."""

from __future__ import annotations

import json

from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import write_folder
from tests.view.looking import ROWS, Looking
from tests.view.made_run import made_trajectory, write_made_run
from tests.view.viewer import Viewer

WRITE = write_made_run
STEP = "#/step/2?experiment=first"

_GO_ON_AT_ONCE = """
new MutationObserver((_, observer) => {
  if (document.querySelector("main")) {
    observer.disconnect();
    location.hash = "#/step/99";
  }
}).observe(document, {childList: true, subtree: true});
"""
_COLORED_ROWS = """
over => {
  const canvas = over.parentElement.querySelector("canvas");
  const scale = canvas.width / canvas.getBoundingClientRect().width;
  const [box, all] = [over.getBoundingClientRect(), canvas.getBoundingClientRect()];
  const count = (from, to) => {
    const {data} = canvas.getContext("2d").getImageData(
      (box.right - all.left - box.width * 0.06) * scale, (box.top - all.top + box.height * from) * scale,
      box.width * 0.05 * scale, box.height * (to - from) * scale);
    let colored = 0;
    for (let at = 0; at < data.length; at += 4) {
      const [red, green, blue, alpha] = data.slice(at, at + 4);
      if (alpha > 99 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) colored += 1;
    }
    return colored;
  };
  return {top: count(0, 0.5), bottom: count(0.5, 1)};
}
"""
"""The colored pixels of the scatter's right edge, in its upper and lower half."""


def column(looking: Looking, number: int) -> list[str]:
    """Return the texts of a column of the table."""
    return looking.page.eval_on_selector_all(
        ROWS, "(rows, number) => rows.map(row => row.children[number].innerText)", number
    )


def tile(looking: Looking, title: str) -> list[str]:
    """Return the lines of a figure of the step."""
    exact = looking.page.locator(".tile-title").get_by_text(title, exact=True)
    return looking.page.locator(".tile", has=exact).inner_text().splitlines()


class TestFigures:
    """The figures on top."""

    def test_say_how_the_step_went(self, looking):
        """Rewards, groups without signal, truncated, errors and tools are those of the step."""
        looking.go(STEP).wait_for_selector(ROWS)
        assert tile(looking, "Mean reward")[1] == "0.522"
        assert tile(looking, "Groups without signal")[1:] == ["33%", "1 all best", "1 all worst"]
        assert tile(looking, "Truncated")[1:] == ["4.2%", "1 of 24", "those with a reward", "1 with the worst"]
        assert tile(looking, "Errors")[1:] == ["4.2%", "1 of 24"]
        assert tile(looking, "Tool errors")[1:] == ["17%", "4 of 24 calls"]

    def test_truncated_answers_with_a_reward_are_one_click_away(self, looking):
        """The figure of truncated trajectories leads to those with a reward."""
        page = looking.go(STEP)
        page.get_by_role("link", name="with a reward").click()
        looking.wait("rows => document.querySelectorAll(rows).length === 1", ROWS)
        assert [column(looking, number) for number in range(4)] == [["2"], ["3"], ["✂ truncated"], ["0"]]

    def test_a_bar_of_rewards_leads_to_its_trajectories(self, looking):
        """The bar of a reward opens the trajectories that have it."""
        page = looking.go(STEP)
        page.get_by_role("link", name="reward 1: 12").click()
        looking.wait("rows => document.querySelectorAll(rows).length === 12", ROWS)
        assert set(column(looking, 3)) == {"1"}

    def test_a_point_leads_to_its_trajectory(self, looking):
        """A point's own reward stands above the scatter, which doesn't move for it; a click opens the trajectory."""
        page = looking.go(STEP)
        over = page.locator(".chart", has_text="Reward over output tokens").locator(".u-over")
        over.wait_for()
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        assert box is not None
        for across in range(0, int(box["width"]), 4):
            for down in range(0, int(box["height"]), 12):
                page.mouse.move(box["x"] + across, box["y"] + down)
                if over.evaluate("element => element.style.cursor") == "pointer":
                    assert page.locator(".scatter-point b").inner_text() in ("0", "1")
                    assert over.bounding_box() == box
                    page.mouse.click(box["x"] + across, box["y"] + down)
                    looking.wait("() => location.hash.includes('/rollout/')")
                    return
        raise AssertionError("no point is found")

    def test_points_at_the_most_tokens_are_all_drawn(self, looking):
        """Answers that end at the token limit have the same place on the axis: right and wrong ones are there."""
        page = looking.go(STEP)
        over = page.locator(".chart", has_text="Reward over output tokens").locator(".u-over")
        over.wait_for()
        # Of the step, rollout 3 of each prompt: one right, four wrong, one of them truncated.
        drawn = over.evaluate(_COLORED_ROWS)
        assert drawn["top"] > 0
        assert drawn["bottom"] > drawn["top"]
        page.locator(".chart").get_by_text("equal rewards are spread").wait_for()

    def test_a_tool_leads_to_its_failed_calls(self, looking):
        """The tools stand with their failures, which a click finds."""
        page = looking.go(STEP)
        tools = page.locator("section.chart", has_text="Tools")
        tools.get_by_role("link", name="4", exact=True).click()
        looking.wait("() => location.hash.startsWith('#/search?')")
        looking.wait("rows => document.querySelectorAll(rows).length === 4", ROWS)


class TestGroups:
    """The rows of groups."""

    def test_show_rewards_and_what_gives_no_signal(self, looking):
        """A group has a cell for each rollout, its share of solved ones, and a mark if all rewards are equal."""
        looking.go(STEP).wait_for_selector(ROWS)
        assert column(looking, 0) == ["0", "1", "2", "3", "4", "5"]
        assert column(looking, 2) == ["100%", "0%", "50%", "67%", "50%", "50%"]
        assert column(looking, 3) == ["all best", "all worst", "", "", "", ""]
        row = looking.page.locator(ROWS).nth(3)
        assert row.locator(".cell").evaluate_all("cells => cells.map(cell => cell.title)") == [
            "rollout 0: reward 1, completed",
            "rollout 1: reward 1, completed",
            "rollout 2: reward 0, completed",
            "rollout 3: reward none, error",
        ]

    def test_filters_stay_in_the_address(self, looking):
        """A filter and a text narrow the rows; who gets the address sees the same rows."""
        page = looking.go(STEP)
        page.get_by_role("combobox", name="Signal").select_option("some")
        page.get_by_role("combobox", name="Tools").select_option("errors")
        page.get_by_label("text in the prompt").fill("QUESTION 4")
        looking.wait_for_address("#/step/2?experiment=first&signal=some&tools=errors&q=QUESTION+4")
        page.reload()
        page.wait_for_selector(ROWS)
        assert column(looking, 0) == ["4"]
        page.get_by_role("button", name="Clear").click()
        looking.wait("rows => document.querySelectorAll(rows).length === 6", ROWS)

    def test_keys_lead_to_a_group_and_to_the_next_step(self, looking):
        """`j` and Enter open a group, Escape comes back, `]` goes to the next step, `t` to its timeline."""
        page = looking.go(STEP)
        page.wait_for_selector(ROWS)
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        looking.wait_for_address("#/step/2/sample/1?experiment=first")
        page.keyboard.press("Escape")
        looking.wait_for_address(STEP)
        page.wait_for_selector(ROWS)
        page.keyboard.press("]")
        looking.wait_for_address("#/step/3?experiment=first")
        page.keyboard.press("t")
        looking.wait_for_address("#/step/3/timeline?experiment=first")

    def test_a_cell_leads_to_its_rollout(self, looking):
        """A reward's cell opens the trajectory that has it."""
        page = looking.go(STEP)
        page.locator(ROWS).nth(2).locator(".cell").nth(3).click()
        looking.wait_for_address("#/step/2/sample/2/rollout/3?experiment=first")


class TestStatus:
    """How a trajectory ended."""

    def test_a_cancelled_trajectory_is_cancelled_on_every_page(self, looking, tmp_path):
        """Its last generation's finish reason, `stop`, never stands for its status."""
        write_folder(
            tmp_path,
            made_trajectory(1, 0, 0, reward=None, status="cancelled", finish_reason="stop"),
            made_trajectory(1, 0, 1, finish_reason="stop"),
        )
        title = "cancelled, finish reason stop"
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as own:
            page = own.go("#/step/1?tab=trajectories")
            page.locator(".status-cancelled").wait_for()
            assert page.locator(".status-cancelled").get_attribute("title") == title
            page = own.go("#/step/1/sample/0")
            page.locator(".status-cancelled").wait_for()
            assert page.locator(".status-cancelled").get_attribute("title") == title
            page = own.go("#/step/1/sample/0/rollout/0")
            facts = page.locator(".facts")
            facts.wait_for()
            assert "⊘ cancelled finish reason stop" in " ".join(facts.inner_text().split())
            assert own.faults == []


class TestOtherPrograms:
    """Traces that know nothing of rollouts."""

    def test_are_known_by_service_and_name(self, looking, tmp_path):
        """Beside no sample and no rollout a row has the service and the name, which leads to the trace."""
        span = {
            "traceId": "a" * 32,
            "spanId": "b" * 16,
            "name": "GET /search",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "9",
        }
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "search-engine"}}]}
        line = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
        (tmp_path / "otlp.jsonl").write_text(json.dumps(line) + "\n")
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as other:
            page = other.go("#/step/none?tab=trajectories")
            page.wait_for_selector(ROWS)
            assert [column(other, number) for number in (0, 1, 2)] == [
                ["search-engine"],
                ["GET /search"],
                ["✓ completed"],
            ]
            page.get_by_role("link", name="GET /search").click()
            other.wait_for_address(f"#/trajectory/{'a' * 32}")
            page.get_by_text("No messages: its spans say what it did.").wait_for()
            assert other.faults == []


class TestLive:
    """A step that is being written."""

    def test_rows_come_without_a_jump(self, looking, tmp_path):
        """New groups come while the table stays where it was scrolled, with the row that was chosen."""
        writer = FolderWriter(tmp_path)
        for sample in range(200):
            writer.write(made_trajectory(1, sample, 0))
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as live:
            page = live.go("#/step/1")
            page.wait_for_selector(ROWS)
            page.keyboard.press("j")
            page.evaluate("document.querySelector('[role=table]').scrollTop = 2000")
            page.locator(f"{ROWS}[aria-rowindex='70']").wait_for()
            before = page.evaluate("document.querySelector('[role=table]').scrollTop")
            for sample in range(200, 220):
                writer.write(made_trajectory(1, sample, 0))
            page.get_by_role("link", name="Groups · 220").wait_for()
            after = page.evaluate("document.querySelector('[role=table]').scrollTop")
            page.keyboard.press("Enter")
            live.wait_for_address("#/step/1/sample/0")
            assert (before, live.faults) == (after, [])
        writer.close()


class TestSize:
    """A large step."""

    def test_only_rows_in_view_are_in_the_document(self, looking, tmp_path):
        """Of hundreds of trajectories some dozens stand in the document, and the last one is reached by its key."""
        write_folder(tmp_path, *(made_trajectory(1, rollout // 8, rollout % 8) for rollout in range(480)))
        with Viewer(tmp_path) as viewer, looking.beside(viewer) as large:
            page = large.go("#/step/1?tab=trajectories")
            page.wait_for_selector(ROWS)
            table = page.get_by_role("table", name="trajectories")
            assert table.get_attribute("aria-rowcount") == "481"
            page.evaluate("document.querySelector('[role=table]').scrollTop = 1e9")
            page.locator(f"{ROWS}[aria-rowindex='481']").wait_for()
            assert page.locator(ROWS).count() < 100


class TestFaults:
    """What goes wrong."""

    def test_a_step_that_is_not_there_says_so(self, looking):
        """The server's sentence stands on the page, with a way on."""
        with looking.beside(looking.viewer) as other:
            page = other.go("#/step/99")
            alert = page.get_by_role("alert")
            alert.wait_for()
            assert "There is no step 99" in alert.inner_text()
            assert alert.get_by_role("link", name="All steps").get_attribute("href") == "#/"

    def test_an_address_that_changes_as_the_page_opens(self, looking):
        """The page that is asked for before the first one was painted is shown."""
        page = looking.page.context.new_page()
        try:
            page.add_init_script(_GO_ON_AT_ONCE)
            page.goto(looking.viewer.address)
            page.get_by_role("alert").get_by_text("There is no step 99").wait_for(timeout=120_000)
        finally:
            page.close()
