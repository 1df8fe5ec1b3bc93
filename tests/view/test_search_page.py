"""The page Search: hits as they come, each with its place."""

from __future__ import annotations

from tests.view.looking import ROWS, Looking
from tests.view.made_run import STEPS, write_made_run

WRITE = write_made_run


def found(looking: Looking, text: str) -> None:
    """Wait until the line above the hits says how many there are."""
    looking.page.locator(".search-progress").get_by_text(text).wait_for()


class TestSearch:
    """What is found."""

    def test_a_text_is_found_from_any_page_by_its_key(self, looking):
        """`/` leads to the search; hits stand with the match marked; Enter opens the chosen one."""
        page = looking.go("#/step/2?experiment=first")
        page.wait_for_selector(ROWS)
        page.keyboard.press("/")
        page.get_by_label("text to search for").wait_for()
        page.keyboard.type("it is 23")
        page.get_by_label("step", exact=True).select_option("")
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Search").click()
        found(looking, f"{STEPS} trajectories in ")
        assert set(page.locator("mark").all_inner_texts()) == {"It is 23"}
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        looking.wait("() => /^#[/]trajectory[/][0-9a-f]{32}[?]span=/.test(location.hash)")

    def test_nothing_found_says_so(self, looking):
        """The page says that there is nothing, and how letters were compared."""
        page = looking.go("#/search?q=nowhere")
        page.get_by_text("Nothing is found. Capital letters don't matter.").wait_for()
        assert page.locator(ROWS).count() == 0
