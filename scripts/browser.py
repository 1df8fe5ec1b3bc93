"""The browser that takes the documentation's pictures: Debian's chromium, headless, driven by Playwright.

Playwright is in the environment `screenshots`. That is made with the Python that runs the script, so it is imported
from there, and the environment of this repository stays without it.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import site
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from environments import ensure
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["IMAGES", "open_browser", "open_page", "take_picture"]

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
SECONDS_TO_SHOW = 60
SECONDS_TO_SETTLE = 60
SECONDS_BETWEEN_LOOKS = 0.5
COLOURS = 256
"""The size of the palette: screenshots need few, and a picture with a palette is a third of the size."""


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start chromium, and end it.

    Yields:
        The browser; waiting for something on one of its pages fails after a minute.

    Raises:
        SystemExit: There is no chromium.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    (packages,) = (ensure("screenshots") / "lib").glob("python*/site-packages")
    site.addsitedir(str(packages))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def open_page(
    browser: Browser, url: str, *, width: int, height: int, storage: Mapping[str, object] | None = None
) -> Iterator[Page]:
    """Open a page in a profile of its own.

    Args:
        browser: The browser to open it in.
        url: The page.
        width: The window's width.
        height: The window's height.
        storage: The content of the page's local storage, as JSON.

    Yields:
        The page.
    """
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.set_default_timeout(SECONDS_TO_SHOW * 1000)
    for key, value in (storage or {}).items():
        page.add_init_script(f"localStorage.setItem({json.dumps(key)}, {json.dumps(json.dumps(value))})")
    try:
        page.goto(url)
        yield page
    finally:
        page.close()


def take_picture(page: Page, file: Path) -> None:
    """Take a picture of a page, once it has stopped to change.

    Args:
        page: The page.
        file: The picture's file.

    Raises:
        TimeoutError: It went on changing.
    """
    page.mouse.move(0, 0)
    deadline = time.monotonic() + SECONDS_TO_SETTLE
    before, now = b"", page.screenshot(animations="disabled")
    while now != before:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{page.url} still changes after {SECONDS_TO_SETTLE} s")
        page.wait_for_timeout(SECONDS_BETWEEN_LOOKS * 1000)
        before, now = now, page.screenshot(animations="disabled")
    file.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(now)) as taken:
        taken.convert("RGB").quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")
