"""The tests' browser tells words that a page shows from words that are on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.servers.browser import Browser, is_in_view, wait_for_words

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAGE = """<!doctype html>
<p>in plain sight</p>
<div style="width: 200px; overflow: hidden; white-space: nowrap">
  the beginning <b>and then the end of a long line</b>
</div>
<div style="height: 50px; overflow: auto"><p style="margin-top: 300px">down in a pane</p></div>
<p style="display: none">not displayed</p>
<div style="position: relative; height: 40px">under a panel
  <div style="position: absolute; inset: 0; background: white"></div></div>
<p style="margin-top: 2000px">far below</p>
<script>setTimeout(() => document.body.prepend("a moment later"), 300)</script>
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    return page.as_uri()


def test_only_words_that_can_be_read_without_scrolling_are_in_view(browser: Browser, url: str) -> None:
    """Words are in view if the window shows them whole: not below it, cut off, hidden or covered."""
    words = ["in plain sight", "the beginning", "and then the end of a long line", "down in a pane", "far below"]
    with browser.open(url) as page:
        wait_for_words(page, "in plain sight", "a moment later")
        found = {one for one in [*words, "not displayed", "under a panel"] if is_in_view(page, one)}
    assert found == {"in plain sight", "the beginning"}


def test_missing_words_are_named_and_a_picture_is_taken(browser: Browser, url: str, tmp_path: Path) -> None:
    """Words that don't come into view in time raise an error that names them and the picture of the page."""
    picture = tmp_path / "page.png"
    with browser.open(url) as page, pytest.raises(AssertionError, match=r"'far below'.*out of view.*page\.png"):
        wait_for_words(page, "in plain sight", "far below", picture=picture, seconds=0.5)
    assert picture.stat().st_size > 0


def test_a_closed_page_leaves_no_event_loop(browser: Browser, url: str) -> None:
    """A test may call `asyncio.run` after it has closed a page, and open the next page then."""
    for _ in range(2):
        with browser.open(url) as page:
            wait_for_words(page, "in plain sight")
        asyncio.run(asyncio.sleep(0))
