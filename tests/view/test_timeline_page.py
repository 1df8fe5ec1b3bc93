"""The page Timeline: a lane for each trajectory of a step, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.view.hostile import write_hostile
from tests.view.looking import accessibility_faults, go, harm_of, set_theme, texts, visited, wait_until
from tests.view.viewer import Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

LANE = 18
"""Pixels of a large lane."""
_COLOR_AT = """
([x, y]) => {
  const canvas = document.querySelector(".timeline-lanes canvas");
  const ratio = canvas.width / canvas.clientWidth;
  const [red, green, blue] = canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data;
  return "#" + [red, green, blue].map(each => each.toString(16).padStart(2, "0")).join("");
}
"""


@pytest.fixture(scope="module")
def lanes(demo: Viewer) -> list[dict[str, Any]]:
    """Return the lanes of step 1, the latest end first."""
    found: list[dict[str, Any]] = demo.get("step/1/timeline")["lanes"]
    return found[::-1]


def show(page: Page, demo: Viewer, query: str = "?lanes=large") -> None:
    """Show the timeline of step 1 with large lanes."""
    go(page, demo, f"#/step/1/timeline{query}")
    wait_until(page, "document.querySelector('.timeline-lanes canvas')?.width > 0")


def name_of(lane: dict[str, Any]) -> str:
    """Return the name of a lane's trajectory."""
    return f"sample {lane['sample_index']}, rollout {lane['rollout_n']}"


def test_the_page_says_whom_the_step_waited_for(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """The heading has the time that the step waited for its last 5%, and leads to the last of them."""
    show(page, demo)
    late = max(1, len(lanes) // 20)
    seconds = (lanes[0]["end"] - lanes[late]["end"]) / 1e6
    heading = texts(page, "h1")[0]
    assert heading.startswith("Step 1 waited ")
    assert f"for {late} of {len(lanes)}: mostly " in heading
    shown = heading.split()[3]
    assert abs(float(shown) - (seconds if heading.split()[4] == "s" else seconds * 1000)) < 1
    page.get_by_role("link", name="the last one").click()
    wait_until(page, f"location.hash === '#/trajectory/{lanes[0]['trace_id']}'")


def test_segments_have_the_colours_of_the_legend(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """The middle of a generation of the first lane is drawn in the colour of generating."""
    show(page, demo)
    set_theme(page, "light")
    whole = lanes[0]["end"]
    numbers = lanes[0]["segments"]
    segments = [numbers[at : at + 5] for at in range(0, len(numbers), 5)]
    _, start, length, *_ = max((each for each in segments if each[0] == 0), key=lambda each: each[2])
    width = page.locator(".timeline-lanes canvas").evaluate("canvas => canvas.clientWidth")
    wanted = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--kind-generating').trim()")
    wait_until(
        page,
        f"([point, wanted]) => ({_COLOR_AT.strip()})(point) === wanted",
        [[(start + length / 2) / whole * width, 4], wanted],
    )


def test_the_pointer_shows_a_lane_and_a_click_opens_it(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """Over a lane its trajectory, status and durations are shown; a click leads to it."""
    show(page, demo)
    box = page.locator(".timeline-lanes").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * lanes[2]["start"] / lanes[0]["end"] + 6, box["y"] + 2.5 * LANE
    page.mouse.move(x, y)
    page.locator(".timeline-hover", has_text=name_of(lanes[2])).wait_for()
    assert "in all, ended at" in texts(page, ".timeline-hover")[0]
    page.mouse.click(x, y)
    wait_until(page, f"location.hash === '#/trajectory/{lanes[2]['trace_id']}'")


def test_lanes_are_used_by_keys(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """`j` and `k` choose a lane, whose name is announced; Enter opens it; `+` zooms and `0` shows the whole time."""
    show(page, demo)
    whole = texts(page, ".timeline-axis")[0]
    page.keyboard.press("+")
    wait_until(page, "whole => document.querySelector('.timeline-axis').innerText !== whole", whole)
    page.keyboard.press("0")
    wait_until(page, "document.querySelector('.timeline-controls button').disabled")
    assert texts(page, ".timeline-axis")[0] == whole
    for key in "jjjk":
        page.keyboard.press(key)
    page.get_by_role("status").filter(has_text=name_of(lanes[1])).wait_for()
    page.keyboard.press("Enter")
    wait_until(page, f"location.hash === '#/trajectory/{lanes[1]['trace_id']}'")


def test_the_wheel_zooms_with_ctrl(page: Page, demo: Viewer) -> None:
    """The wheel with ctrl zooms in; the button shows the whole time again."""
    show(page, demo)
    page.locator(".timeline-lanes").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.get_by_role("button", name="Whole time").click()
    wait_until(page, "document.querySelector('.timeline-controls button').disabled")


def test_the_order_of_lanes_is_in_the_address(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """Sorted by duration the longest is first, and the address keeps the order."""
    show(page, demo)
    page.get_by_label("Sort by").select_option("duration")
    wait_until(page, "location.hash.includes('sort=duration')")
    longest = max(lanes, key=lambda lane: lane["end"] - lane["start"])
    page.keyboard.press("j")
    page.get_by_role("status").filter(has_text=name_of(longest)).wait_for()


def test_a_table_has_the_trajectories_that_ended_last(page: Page, demo: Viewer, lanes: list[dict[str, Any]]) -> None:
    """The table names the lanes by their ends, marks those that the step waited for, and leads to them."""
    show(page, demo)
    page.get_by_text("As a table").click()
    page.locator(".plain-table").wait_for()
    rows = texts(page, ".plain-table tbody tr")
    assert len(rows) == min(50, len(lanes))
    assert [name_of(lane) in row for lane, row in zip(lanes, rows, strict=False)] == [True] * len(rows)
    assert ["last 5%" in row for row in rows[:2]] == [True, False]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible(page: Page, demo: Viewer, theme: str) -> None:
    """axe-core finds nothing serious, with the table unfolded."""
    set_theme(page, theme)
    show(page, demo)
    if not page.locator(".plain-table").is_visible():
        page.get_by_text("As a table").click()
    page.locator(".plain-table").wait_for()
    assert accessibility_faults(page) == []


def test_hostile_texts_are_only_shown(page: Page, tmp_path: Path) -> None:
    """Scripts, handlers, links and control characters in a trajectory's fields are text on the page."""
    write_hostile(tmp_path / "traces")
    with visited(page, tmp_path / "traces", "#/step/1/timeline?lanes=large"):
        page.get_by_text("As a table").click()
        page.locator(".plain-table").wait_for()
        page.locator(".timeline-lanes").hover(position={"x": 900, "y": 9})
        page.locator(".timeline-hover").wait_for()
        assert "<script>" in page.locator(".timeline-hover").inner_text()
        assert harm_of(page) == []
