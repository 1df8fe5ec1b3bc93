"""A browser's page of a viewer, and what tests ask of one: faults of the page, faults of accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.browser import Browser
from tests.view.pages import SECONDS_TO_SHOW, wait_until
from tests.view.viewer import TOKEN, Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Looking", "look"]

AXE = Path(__file__).parent / "vendor" / "axe.js"
_SERIOUS = """
async () => {
  const {violations} = await axe.run(document, {resultTypes: ["violations"]});
  return violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map(({html, failureSummary}) => html + " " + failureSummary)}`);
}
"""


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
        """Return the serious faults of accessibility, as axe-core finds them."""
        # The content security policy refuses scripts of others, but not what a test evaluates.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[str] = self.page.evaluate(_SERIOUS)
        return found


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
