"""The pages Run, Step and Search of a run whose every field was written to harm them."""

from __future__ import annotations

import pytest

from tests.view.hostile import write_hostile

WRITE = write_hostile
MARKUP = "main img, main script, main style, main iframe, a[href^='javascript'], main [onerror]"
SHOWN = "U+202E"
"""A character that turns the direction of writing, as the pages show it."""


@pytest.mark.parametrize(
    "address",
    [
        "#/",
        "#/step/1",
        "#/step/1?tab=trajectories",
        "#/search?q=harmed",
        "#/search?q=script&in=failed",
        "#/search?q=%3Cimg+src%3Dx+onerror%3D%27window.harmed+%3D+1%27%3E&in=error",
        "#/step/%3Cscript%3Ewindow.harmed=1%3C%2Fscript%3E?experiment=%3Cimg%20src=x%20onerror=window.harmed=1%3E",
    ],
)
def test_what_a_model_wrote_stays_text(looking, address):
    """No markup of a payload becomes an element, no code of it runs, and hidden characters are shown."""
    page = looking.go(address)
    page.reload()
    page.locator("[role=row] >> nth=1").or_(page.get_by_role("alert")).first.wait_for()
    text = page.locator("main").inner_text()
    is_error = page.get_by_role("alert").count() > 0
    assert page.evaluate("window.harmed") is None
    assert page.locator(MARKUP).count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "\u202e" not in text
    assert is_error or address == "#/" or SHOWN in text
    if is_error:
        # The only answer that may fail is that for no step.
        looking.faults[:] = [fault for fault in looking.faults if "Failed to load resource" not in fault]
