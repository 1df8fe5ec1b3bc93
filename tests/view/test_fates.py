"""Advantage, fate and a reward's color on all pages, of a run whose roots have them; and what needs room for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_trajectory
from tests.view.looking import ROWS, Looking

MINUS = "\u2212"
BEST = "reward reward-6"
"""The class of the best reward of a step: 0 in a run of penalties."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prompts with a penalty for each second rollout; one rollout is filtered, and one has no end."""
    path = tmp_path_factory.mktemp("fates") / "traces"
    writer = FolderWriter(path)
    for sample in range(2):
        for rollout in range(2):
            values = {
                semconv.ADVANTAGE: 0.707 - 1.414 * rollout,
                semconv.FATE: "filtered" if sample and rollout else "trained",
            }
            if sample and rollout:
                values[semconv.FATE_REASON] = "reward is 0 in the whole group"
            writer.write(make_trajectory(100, sample, rollout, reward=-float(rollout), **values))
    writer.write(make_trajectory(100, 2, 0)[:2])
    writer.close()
    return path


def rows(looking: Looking) -> list[list[str]]:
    """Return the texts of the first six columns of the table."""
    looking.page.wait_for_selector(ROWS)
    return looking.page.eval_on_selector_all(
        ROWS, "rows => rows.map(row => [...row.children].slice(0, 6).map(cell => cell.innerText))"
    )


class TestFates:
    """The places of advantage and fate."""

    def test_of_a_step(self, looking):
        """A figure counts the fates; a click on one shows its trajectories, with columns for both."""
        page = looking.go("#/step/100")
        tile = page.locator(".tile", has=page.locator(".tile-title").get_by_text("Fate", exact=True))
        assert tile.inner_text().splitlines() == ["Fate", "60% trained", "trained 3", "filtered 1"]
        tile.get_by_role("link", name="filtered 1").click()
        looking.wait("rows => document.querySelectorAll(rows).length === 1", ROWS)
        assert rows(looking) == [["1", "1", "✓ completed", f"{MINUS}1", f"{MINUS}0.707", "filtered"]]

    def test_of_a_group(self, looking):
        """The head of each column has them."""
        page = looking.go("#/step/100/sample/1")
        page.locator(".rollout-head").nth(1).wait_for()
        outcomes = [" ".join(text.split()) for text in page.locator(".rollout-outcome").all_inner_texts()]
        assert outcomes == ["0 ✓ completed A +0.707 trained", f"{MINUS}1 ✓ completed A {MINUS}0.707 filtered"]

    def test_of_a_trajectory(self, looking):
        """Its head has them, written as in its group."""
        looking.go("#/step/100/sample/1/rollout/0")
        facts = looking.page.locator(".facts")
        facts.wait_for()
        assert " ".join(facts.inner_text().split()).startswith("0 ✓ completed A +0.707 trained")

    def test_reason(self, looking):
        """A trajectory that training threw away says why, on its page and at its column's fate."""
        looking.go("#/step/100/sample/1/rollout/1")
        looking.page.locator(".facts .fate-reason").get_by_text("reward is 0 in the whole group").wait_for()
        looking.go("#/step/100/sample/1")
        looking.page.locator(".rollout-head .fate[title='reward is 0 in the whole group']").wait_for()

    @pytest.mark.parametrize(
        "address",
        [
            "#/step/100?tab=trajectories",
            "#/step/100/sample/1",
            "#/step/100/sample/1/rollout/0",
            "#/search?q=hello",
        ],
    )
    def test_a_reward_has_the_color_of_its_place_in_the_step(self, looking, address):
        """A reward of 0 is the best in a run of penalties, on every page."""
        page = looking.go(address)
        badge = page.locator("main .reward").get_by_text("0", exact=True).first
        badge.wait_for()
        looking.wait(
            "classes => [...document.querySelectorAll('main .reward')].filter(each => each.innerText === '0')"
            ".every(each => each.className === classes)",
            BEST,
        )


class TestRoom:
    """Texts that need room."""

    def test_the_table_of_a_live_run_fits(self, looking):
        """With open trajectories too, all its columns are in a window of 1,280 pixels."""
        size = looking.page.viewport_size
        looking.page.set_viewport_size({"width": 1280, "height": 800})
        looking.go("#/").wait_for_selector(ROWS)
        assert looking.page.get_by_role("columnheader", name="Open").count() == 1
        table = looking.page.locator("[role=table]").first
        hidden = table.evaluate("table => table.scrollWidth - table.clientWidth")
        looking.page.set_viewport_size(size)
        assert hidden <= 0

    def test_the_place_is_read_in_a_narrow_window(self, looking):
        """The last of the breadcrumbs isn't cut, whatever is before it."""
        size = looking.page.viewport_size
        looking.page.set_viewport_size({"width": 400, "height": 800})
        looking.go("#/step/100/sample/1/rollout/0")
        last = looking.page.locator(".breadcrumbs li").last
        last.get_by_text("Rollout 0").wait_for()
        hidden = last.evaluate("place => place.scrollWidth - place.clientWidth")
        looking.page.set_viewport_size(size)
        assert hidden <= 0
