"""A browser's page of a viewer, and what tests ask of one: faults of the page, faults of accessibility."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.browser import Browser
from tests.view.viewer import TOKEN, Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = [
    "ROWS",
    "SECONDS_TO_SHOW",
    "Looking",
    "accessibility_faults",
    "go",
    "harm_of",
    "look",
    "set_theme",
    "texts",
    "visited",
    "wait_until",
]

ROWS = "[role=table] .table-rows [role=row]"
SECONDS_TO_SHOW = 120.0
MILLISECONDS_BETWEEN_LOOKS = 10

AXE = Path(__file__).parent / "vendor" / "axe.js"
_SERIOUS = """
async () => {
  const {violations} = await axe.run(document, {resultTypes: ["violations"]});
  return violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map(({html, failureSummary}) => html + " " + failureSummary)}`);
}
"""


_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x00\x1b"
_CUT = """
() => [...document.querySelectorAll(
    "main h1:not(.hidden-label), main h2, main th, main [role=columnheader], main .tile-title, main .chart-title")]
  .filter(heading => {
    const range = document.createRange();
    range.selectNodeContents(heading);
    const [text, box] = [range.getBoundingClientRect(), heading.getBoundingClientRect()];
    return text.width && (text.left < box.left - 1 || text.right > box.right + 1 || text.bottom > box.bottom + 1);
  })
  .map(heading => heading.innerText)
"""


class Looking:
    """A page of a viewer.

    Args:
        page: The browser's page.
        viewer: The viewer.
        faults: What the page complained of: exceptions, refusals of the content security policy, answers that failed.
    """

    def __init__(self, page: Page, viewer: Viewer, faults: list[str]) -> None:
        self.page = page
        self.viewer = viewer
        self.faults = faults

    def go(self, address: str) -> Page:
        """Go to an address of the pages, from `#` on, and return the page."""
        self.page.goto(f"{self.viewer.address}/{address}")
        return self.page

    def wait(self, condition: str, argument: object = None) -> None:
        """Wait until a JavaScript expression holds."""
        wait_until(self.page, condition, argument)

    def address(self) -> str:
        """Return the address from `#` on."""
        return "#" + self.page.url.partition("#")[2]

    def wait_for_address(self, address: str) -> None:
        """Wait until the page has an address."""
        self.wait("address => location.hash === address", address)

    @contextmanager
    def beside(self, viewer: Viewer) -> Iterator[Looking]:
        """Open the pages of another viewer; Playwright runs once in a thread."""
        page = self.page.context.new_page()
        try:
            yield _opened(page, viewer)
        finally:
            page.close()

    def cut_headings(self, width: int) -> list[str]:
        """Return the headings that don't fit into their places in a window of a width."""
        size = self.page.viewport_size
        assert size is not None
        self.page.set_viewport_size({"width": width, "height": size["height"]})
        found: list[str] = self.page.evaluate(_CUT)
        self.page.set_viewport_size(size)
        return found

    def serious_faults(self) -> list[str]:
        """Return the serious faults of accessibility."""
        return accessibility_faults(self.page)


@contextmanager
def look(browser: Browser, viewer: Viewer) -> Iterator[Looking]:
    """Open the pages of a viewer, as its address with the token does."""
    with browser.open("about:blank") as page:
        yield _opened(page, viewer)


def _opened(page: Page, viewer: Viewer) -> Looking:
    faults: list[str] = []
    page.set_default_timeout(SECONDS_TO_SHOW * 1000)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(f"{viewer.address}/?token={TOKEN}")
    return Looking(page, viewer, faults)


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
    # The content security policy refuses scripts of others, but not what a test evaluates.
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(_SERIOUS)
    return found


def harm_of(page: Page) -> list[str]:
    """Return the ways in which hostile texts got the better of the page; empty if they are only shown."""
    found = []
    if page.evaluate("window.harmed") is not None:
        found.append("a script ran")
    if page.locator("main script, main img, main iframe, main [onerror], main [onclick], main [style*='url(']").count():
        found.append("a text became markup")
    if page.locator("main [href^='javascript:' i]").count():
        found.append("a link runs a script")
    if any(each in page.evaluate("document.documentElement.outerHTML") for each in _TURNING):
        found.append("a character that turns or hides text is on the page")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("the page is wider than the window")
    return found
