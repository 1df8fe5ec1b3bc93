"""One walk through all pages in a browser, as somebody takes it who looks at a run."""

from __future__ import annotations

from pathlib import Path

from otel_rollout.look.view import STATIC, RunState, export_run
from tests.view.looking import ROWS, Looking
from tests.view.made_run import write_made_run

WRITE = write_made_run
STEP = "#/step/2?experiment=first"
GROUP = "#/step/2/sample/4?experiment=first"


def test_every_page_is_reached_and_shows_the_run(looking: Looking) -> None:
    """From the run to a span, by clicks and keys: each page has its figures, and none complains."""
    page = looking.go("#/?experiment=first")
    page.locator(ROWS).nth(2).wait_for()
    assert [text.split("\n")[:4] for text in page.locator(ROWS).all_inner_texts()] == [
        ["1", "6", "24", "0.348"],
        ["2", "6", "24", "0.522"],
        ["3", "6", "24", "0.696"],
    ]
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    looking.wait_for_address(STEP)
    page.get_by_role("heading", name="Step 2").wait_for()
    page.locator(ROWS).nth(5).wait_for()
    assert page.locator(".tile", has_text="Mean reward").first.inner_text().splitlines()[1] == "0.522"

    page.get_by_role("link", name="Trajectories").click()
    page.locator(ROWS).nth(10).wait_for()
    page.get_by_role("link", name="Timeline").click()
    looking.wait_for_address("#/step/2/timeline?experiment=first")
    looking.wait("document.querySelector('.timeline-lanes canvas')?.width > 0")

    looking.go(STEP)
    page.locator(ROWS).nth(4).locator("a").first.click()
    looking.wait_for_address(GROUP)
    page.locator(".column-head").nth(3).wait_for()
    page.get_by_role("link", name="rollout 1").first.click()
    looking.wait_for_address("#/step/2/sample/4/rollout/1?experiment=first")
    page.locator(".message", has_text="It is 41.").wait_for()
    page.locator(".waterfall-row", has_text="calculate").click()
    page.locator(".span-panel", has_text="division by zero").wait_for()

    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.get_by_label("text to search for").fill("it is 23")
    page.get_by_role("button", name="Search").click()
    page.locator("mark", has_text="It is 23").first.wait_for()
    looking.go(GROUP)
    page.get_by_role("link", name="This prompt by step").click()
    looking.wait_for_address("#/sample/4?experiment=first")
    page.locator(".prompt-page").wait_for()
    looking.go("#/live").get_by_role("heading").first.wait_for()
    looking.go("#/?experiment=first").get_by_label("Against").select_option("second")
    page.locator(".comparison").wait_for()
    assert looking.faults == []


def test_an_export_opens_from_the_disk(looking: Looking, folder: Path, tmp_path: Path) -> None:
    """Exported pages show the run without a server, and complain of nothing."""
    export_run(RunState([folder]), STATIC, tmp_path / "out")
    faults: list[str] = []
    page = looking.page.context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(f"{(tmp_path / 'out' / 'index.html').as_uri()}{GROUP}")
    page.locator(".column-head").nth(3).wait_for()
    page.close()
    assert faults == []
