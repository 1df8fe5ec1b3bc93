"""Rollouts of several conversations on the pages Trajectory, Group and Step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.view.looking import Looking, set_theme, texts
from tests.view.made_tree import NO_TREE, READS_OTHERWISE, WITH_COMPACTION, WITH_SUBAGENTS, write_trees

if TYPE_CHECKING:
    from playwright.sync_api import Page

WRITE = write_trees
CROSS: Final = "\N{MULTIPLICATION SIGN}"
GROUP = "#/step/1/sample/0"
TREE = f"{GROUP}/rollout/{WITH_COMPACTION}"
LANES = [
    "main 2 turns",
    "fork 1 turn",
    "researcher 1 2 turns",
    f"researcher 2 2 turns {CROSS} not trained",
    f"reader 1 turn {CROSS} not trained",
    "compacted 1 turn",
]
_TOOK = "from turn 1, back in turn 8 2 turns 600 → 20 tokens"
FOLDED = [
    "main 2 turns 600 → 20 tokens unfold all",
    "▸ fork from the prompt 1 turn 200 → 10 tokens inferred I know it without asking.",
    f"▸ sub-agent researcher 1 {_TOOK} It says that the first has 2,220 m.",
    f"▸ sub-agent researcher 2 {_TOOK} {CROSS} not trained The second has 1,410 m.",
    "compacted: replaces 4 messages from turn 8 1 turn 200 → 10 tokens inferred",
]


def fresh(looking: Looking, address: str) -> Page:
    """Show a page that nothing is unfolded on."""
    looking.go("#/")
    looking.wait("!document.querySelector('.trajectory-page, .group-page')")
    return looking.go(address)


def said(looking: Looking) -> list[str]:
    """Return the texts of the messages in the chat, and of its heads."""
    return texts(looking.page, ".conversation .said, .conversation .conversation-head")


class TestTrajectory:
    """The page Trajectory."""

    def test_each_conversation_has_a_lane(self, looking: Looking) -> None:
        """A lane has a conversation's name and turns, and a cross if it isn't trained on."""
        page = fresh(looking, TREE)
        page.locator(".lane-names li").nth(5).wait_for()
        assert texts(page, ".lane-names li") == LANES
        assert page.locator("svg.lanes text").all_text_contents() == [CROSS, CROSS]
        assert page.locator(".turn-lanes .edge").count() == 8

    def test_sub_agents_and_forks_are_folded_where_they_are_called(self, looking: Looking) -> None:
        """The chat has main's messages once, and a head for each other conversation, which says what it took."""
        page = fresh(looking, TREE)
        page.locator(".conversation-head").nth(4).wait_for()
        assert texts(page, ".conversation-head") == FOLDED
        shown = [text for text in said(looking) if text and text not in FOLDED]
        assert shown == [
            "Which bridge is longer?",
            "I ask two researchers.",
            "The researchers say: 2,220 m and 1,410 m.",
            "The first one is longer.",
            "Summary: the first bridge has 2,220 m, the second 1,410 m. Answer.",
            "The first one, by 810 m.",
        ]

    def test_a_conversation_unfolds_with_those_in_it(self, looking: Looking) -> None:
        """What parallel sub-agents said stands in two blocks, and a sub-agent's own is a block in its block."""
        page = fresh(looking, TREE)
        page.get_by_role("button", name="sub-agent researcher 2").click()
        page.get_by_role("button", name="sub-agent reader").click()
        page.locator(".in-branch", has_text="It says 1,410 m.").first.wait_for()
        assert list(filter(None, texts(page, ".in-branch .said"))) == [
            "How long is the second bridge?",
            "I let somebody read.",
            "Page 7, please.",
            "It says 1,410 m.",
            "The reader says 1,410 m.",
            "The second has 1,410 m.",
        ]
        page.get_by_role("button", name="unfold all").click()
        page.get_by_role("button", name="fold all", exact=True).click()
        page.locator(".in-branch").first.wait_for(state="detached")

    def test_a_dot_leads_to_its_turn(self, looking: Looking) -> None:
        """A dot and a link of a head unfold what a turn is in, show its message and mark its span."""
        page = fresh(looking, TREE)
        picture = page.get_by_role("slider", name="turn")
        step = picture.evaluate("element => element.clientWidth") / 9
        picture.click(position={"x": 5.5 * step, "y": 4.5 * 22})
        page.locator(".message.selected", has_text="It says 1,410 m.").wait_for()
        page.locator("[role=option][aria-selected=true]", has_text="turn 6, reader").wait_for()
        assert picture.get_attribute("aria-valuetext") == "turn 6 of reader, not trained"
        page.locator(".conversation-head", has_text="compacted").get_by_role("button", name="turn 8").click()
        page.locator(".message.selected", has_text="The first one is longer.").wait_for()

    def test_the_lanes_are_used_by_keys(self, looking: Looking) -> None:
        """Left and right lead to the turns before and after, up and down to the nearest turn of the lane beside."""
        page = fresh(looking, TREE)
        picture = page.get_by_role("slider", name="turn")
        picture.focus()
        for key, turn in (
            ("End", 9),
            ("ArrowLeft", 8),
            ("ArrowDown", 2),
            ("ArrowDown", 3),
            ("ArrowRight", 4),
            ("Home", 1),
        ):
            picture.press(key)
            looking.wait("turn => document.querySelector('[role=slider]').ariaValueNow === turn", str(turn))

    def test_one_conversation_alone_looks_as_ever(self, looking: Looking) -> None:
        """Without other conversations there are no lanes and no heads."""
        page = fresh(looking, f"{GROUP}/rollout/{NO_TREE}")
        page.locator(".message", has_text="The first one is longer.").wait_for()
        assert page.locator(".turn-lanes, .conversation-head").count() == 0
        assert page.locator("[role=option]", has_text="turn 2").inner_text().split("\n")[0] == "generate turn 2"


class TestGroup:
    """The page Group."""

    def test_rollouts_are_aligned_by_turns_of_main(self, looking: Looking) -> None:
        """Sub-agents are folded in the turn that called them: main's next turn stands beside the others'."""
        page = fresh(looking, GROUP)
        page.locator(".turn-name").nth(2).wait_for()
        assert texts(page, ".turn-name") == ["Turn 1 of main ≠ first difference", "Turn 2 of main", "Turn 3 of main"]
        second = page.locator(".columns-row.turn").nth(1)
        assert second.get_by_text("The first one is longer.").count() == 4
        assert texts(page, ".columns-row.turn .cell:nth-child(2) .conversation-head") == [
            "▸ sub-agent researcher 1 2 turns 600 → 20 tokens It says that the first has 2,220 m.",
            f"▸ sub-agent researcher 2 2 turns 600 → 20 tokens {CROSS} not trained The second has 1,410 m.",
        ]

    def test_each_head_has_the_lanes_of_its_rollout(self, looking: Looking) -> None:
        """A rollout's head counts its other conversations and draws them; one without any has neither."""
        page = fresh(looking, GROUP)
        page.locator(".column-head").nth(3).wait_for()
        assert page.locator(".column-head .small-lanes").count() == 3
        assert "3 sub-agents 1 fork 1 compaction" in texts(page, ".column-head")[WITH_COMPACTION]
        assert "sub-agent" not in texts(page, ".column-head")[NO_TREE]
        words = page.locator(".small-lanes").first.get_attribute("aria-label") or ""
        assert "reader 1 turn, 200 → 10 tokens, not trained" in words

    def test_the_first_difference_may_be_inside_a_sub_agent(self, looking: Looking) -> None:
        """Rollouts whose main conversations are alike differ in what a sub-agent says, and it is marked there."""
        page = fresh(looking, f"{GROUP}?compare={WITH_SUBAGENTS},{READS_OTHERWISE}")
        page.locator(".compare-bar").wait_for()
        assert "first differ in turn 1, in researcher, message 4." in texts(page, ".compare-bar")[0]
        for head in page.get_by_role("button", name="sub-agent researcher 1").all():
            head.click()
        page.locator("mark.differs").nth(1).wait_for()
        assert "Humber" in " ".join(texts(page, "mark.differs"))

    def test_a_sub_agent_unfolds_in_its_column(self, looking: Looking) -> None:
        """Its messages stand below its head; a second click folds them."""
        page = fresh(looking, GROUP)
        head = page.get_by_role("button", name="sub-agent researcher 2").first
        head.click()
        page.locator(".cell .in-branch", has_text="I let somebody read.").wait_for()
        head.click()
        page.locator(".cell .in-branch").wait_for(state="detached")


class TestStep:
    """The page Step."""

    def test_trajectories_have_columns_for_what_they_have(self, looking: Looking) -> None:
        """Conversations, sub-agents, compactions and forks are columns, blank for a rollout that has none."""
        page = fresh(looking, "#/step/1?tab=trajectories")
        page.locator("[role=columnheader]", has_text="Sub-agents").wait_for()
        headers = texts(page, "[role=columnheader]")
        at = headers.index("Conversations")
        assert headers[at : at + 4] == ["Conversations", "Sub-agents", "Compactions", "Forks"]
        rows = [texts(page, f"[role=table] .table-rows [role=row]:nth-child({n}) [role=cell]") for n in range(1, 5)]
        assert sorted(row[at : at + 4] for row in rows) == [
            ["", "", "", ""],
            ["4", "3", "", ""],
            ["4", "3", "", ""],
            ["6", "3", "1", "1"],
        ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 400])
@pytest.mark.parametrize("address", [TREE, GROUP])
def test_the_pages_are_accessible_and_fit(looking: Looking, address: str, width: int, theme: str) -> None:
    """axe-core finds nothing serious with a conversation unfolded, and the page is no wider than the window."""
    page = looking.page
    set_theme(page, theme)
    page.set_viewport_size({"width": width, "height": 900})
    try:
        fresh(looking, address)
        if width == 400 and address == GROUP:
            page.locator(".switcher button").nth(WITH_COMPACTION).click()
        page.get_by_role("button", name="sub-agent researcher 2").first.click()
        page.locator(".in-branch").first.wait_for()
        assert looking.serious_faults() == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    finally:
        page.set_viewport_size({"width": 1600, "height": 900})
        set_theme(page, "light")
