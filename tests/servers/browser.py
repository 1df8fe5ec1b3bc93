"""The browser of the tests of what a page shows: Debian's chromium, headless, driven by Playwright.

One chromium serves a test process; each page has a profile of its own. Playwright's synchronous API keeps an event loop
running in the thread that uses it, so it runs only while a page is open: other tests call `asyncio.run` there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .process import ServerProcess, answers_http, free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Browser", "chromium_program", "is_in_view", "wait_for_words"]

WIDTH, HEIGHT = 1600, 900
SECONDS_TO_SHOW = 60.0
MILLISECONDS_BETWEEN_LOOKS = 100
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic", "--no-first-run")

_IS_IN_VIEW = """
words => {
  const plain = text => text.replace(/\\s+/g, " ");
  const isInside = (box, clip) =>
    box.left >= clip.left - 2 && box.right <= clip.right + 2 &&
    box.top + box.height / 2 > clip.top && box.top + box.height / 2 < clip.bottom;
  const isShown = (element, box) => {
    if (!box.width || !box.height || !isInside(box, {left: 0, top: 0, right: innerWidth, bottom: innerHeight})) {
      return false;
    }
    for (let around = element; around !== document.body; around = around.parentElement) {
      if (getComputedStyle(around).overflow !== "visible" && around.clientWidth &&
          !isInside(box, around.getBoundingClientRect())) return false;
    }
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return top !== null && top.contains(element);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const start = node.data.indexOf(words);
    if (start < 0 && !plain(node.data).includes(words)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    if (start >= 0) {
      range.setStart(node, start);
      range.setEnd(node, start + words.length);
    }
    const boxes = [...range.getClientRects()];
    if (boxes.length && boxes.every(box => isShown(node.parentElement, box))) return true;
  }
  return false;
}
"""
"""True if the words, in one text node, are wholly inside the window, and nothing lies over them or cuts them off."""


def chromium_program() -> str | None:
    """Return the path of chromium; None if it isn't installed."""
    return shutil.which("chromium")


class Browser:
    """One headless chromium, and pages in it.

    Args:
        program: The path of chromium.
        uncaptured: See `ServerProcess`.
    """

    def __init__(self, program: str, *, uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        # A relative folder is one in the process's own working folder.
        command = [program, "--headless=new", *OPTIONS, f"--remote-debugging-port={port}", "--user-data-dir=profile"]
        self.process = ServerProcess(
            "chromium",
            [*command, "about:blank"],
            lambda: answers_http(f"{self._address}/json/version"),
            uncaptured=uncaptured,
        )

    @contextmanager
    def open(self, url: str, *, storage: Mapping[str, object] | None = None) -> Iterator[Page]:
        """Open a page of 1600 by 900 pixels in a profile of its own; `asyncio.run` can't be called meanwhile.

        Args:
            url: The address.
            storage: What the page finds in its local storage, as JSON.
        """
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.connect_over_cdp(self._address)
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
            try:
                page = context.new_page()
                page.set_default_timeout(SECONDS_TO_SHOW * 1000)
                for key, value in (storage or {}).items():
                    page.add_init_script(f"localStorage.setItem({json.dumps(key)}, {json.dumps(json.dumps(value))})")
                page.goto(url)
                yield page
            finally:
                context.close()
                browser.close()

    def __enter__(self) -> Browser:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.process.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.stop()


def is_in_view(page: Page, words: str) -> bool:
    """Return True if the page shows the words now, without scrolling and not covered."""
    return bool(page.evaluate(_IS_IN_VIEW, words))


def wait_for_words(page: Page, *words: str, picture: Path | None = None, seconds: float = SECONDS_TO_SHOW) -> None:
    """Wait until a page shows all of the words without scrolling.

    Args:
        page: The page.
        *words: Texts, each of which is in one line or one element of the page.
        picture: Where a picture of the page goes if it doesn't.
        seconds: How long to wait.

    Raises:
        AssertionError: It doesn't in this time; the message says which words are missing.
    """
    deadline = time.monotonic() + seconds
    while missing := [one for one in words if not is_in_view(page, one)]:
        if time.monotonic() > deadline:
            if picture is not None:
                page.screenshot(path=picture)
            below = [one for one in missing if page.get_by_text(one).count()]
            raise AssertionError(
                f"{page.url} doesn't show {missing} after {seconds:g} s"
                + (f"; {below} are on it, out of view" if below else "")
                + (f"; picture: {picture}" if picture is not None else "")
            )
        page.wait_for_timeout(MILLISECONDS_BETWEEN_LOOKS)
