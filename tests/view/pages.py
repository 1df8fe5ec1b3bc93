"""The viewer's pages in a browser, for tests: opened at an address, watched for errors, judged for accessibility."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.browser import Browser
from tests.view.viewer import TOKEN, Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = [
    "SECONDS_TO_SHOW",
    "accessibility_faults",
    "go",
    "harm_of",
    "set_theme",
    "texts",
    "visited",
    "wait_until",
    "watched",
]

AXE = Path(__file__).parent / "vendor" / "axe.js"
SECONDS_TO_SHOW = 120.0
MILLISECONDS_BETWEEN_LOOKS = 10

_SHOWN_TEXT = "document.documentElement.outerHTML"
_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x00\x1b"


@contextmanager
def watched(browser: Browser) -> Iterator[Page]:
    """Open an empty page; an error in its scripts until it is closed raises AssertionError."""
    problems: list[str] = []
    with browser.open("about:blank") as page:
        page.set_default_timeout(SECONDS_TO_SHOW * 1000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        yield page
        assert not problems, problems


def go(page: Page, viewer: Viewer, address: str) -> None:
    """Show an address of a viewer's pages, and wait until it is read.

    Args:
        page: The page.
        viewer: The server.
        address: The part of the address from `#`.
    """
    if page.url.startswith(viewer.address):
        page.evaluate("address => { location.hash = address }", address)
    else:
        page.goto(f"{viewer.address}/?token={TOKEN}{address}")
    page.locator("main h1").first.wait_for()


@contextmanager
def visited(page: Page, folder: Path, address: str) -> Iterator[None]:
    """Show an address of a folder's pages, and leave it before its server ends.

    Args:
        page: The page.
        folder: The trace folder.
        address: The part of the address from `#`.
    """
    with Viewer(folder) as viewer:
        go(page, viewer, address)
        yield
        page.goto("about:blank")


def wait_until(page: Page, condition: str, argument: object = None) -> None:
    """Wait until a JavaScript expression, or function of the argument, holds.

    Playwright's `wait_for_function` looks a second time by an `eval` of the page's own, which its content security
    policy refuses.
    """
    deadline = time.monotonic() + SECONDS_TO_SHOW
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"this does not come: {condition}"
        page.wait_for_timeout(MILLISECONDS_BETWEEN_LOOKS)


def texts(page: Page, selector: str) -> list[str]:
    """Return the texts of elements, whitespace as single spaces."""
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def set_theme(page: Page, theme: str) -> None:
    """Show the page light or dark."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")


def accessibility_faults(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical on the page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{fault['id']}: {node['target']} {node['failureSummary']}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def harm_of(page: Page) -> list[str]:
    """Return the ways in which hostile texts got the better of the page; empty if they are only shown."""
    found = []
    if page.evaluate("window.harmed") is not None:
        found.append("a script ran")
    if page.locator("main script, main img, main iframe, main [onerror], main [onclick], main [style*='url(']").count():
        found.append("a text became markup")
    if page.locator("main [href^='javascript:' i]").count():
        found.append("a link runs a script")
    if any(each in page.evaluate(_SHOWN_TEXT) for each in _TURNING):
        found.append("a character that turns or hides text is on the page")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("the page is wider than the window")
    return found
