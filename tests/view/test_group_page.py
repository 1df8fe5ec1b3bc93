"""The page Group: the rollouts of a prompt side by side, in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.trace_folder.recordings import make_trajectory, write_folder
from tests.view.hostile import HARM, write_hostile
from tests.view.looking import accessibility_faults, go, harm_of, set_theme, texts, visited, wait_until
from tests.view.viewer import Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page

NO_REWARD = "\N{EN DASH}"


def telling_group(demo: Viewer) -> tuple[str, dict[str, Any]]:
    """Return the address and the answer of a group of step 1 whose rollouts differ after the prompt."""
    for group in demo.get("step/1")["groups"]:
        found = demo.get(f"step/1/group?sample={group['sample_index']}")
        if len({len(each["conversation"]) for each in found["rollouts"]}) > 1:
            return f"#/step/1/sample/{group['sample_index']}", found
    raise AssertionError("no group of the demo has rollouts that differ")


def said(utterance: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a message says, whatever its ids are."""
    calls = [(call["name"], str(call["arguments"])) for call in utterance["calls"]]
    return utterance["role"], utterance["text"].strip(), calls, utterance["is_error"]


def alike(conversations: list[list[dict[str, Any]]]) -> int:
    """Return the number of messages that all conversations begin with."""
    count = 0
    for messages in zip(*conversations, strict=False):
        if any(said(message) != said(messages[0]) for message in messages):
            break
        count += 1
    return count


def test_each_rollout_has_a_column_with_its_outcome(page: Page, demo: Viewer) -> None:
    """The head of a column has the rollout's number, reward, status, tokens and turns."""
    address, group = telling_group(demo)
    go(page, demo, address)
    heads = texts(page, ".column-head")
    assert len(heads) == len(group["rollouts"]) == 4
    for head, rollout in zip(heads, group["rollouts"], strict=True):
        summary = rollout["summary"]
        reward = NO_REWARD if summary["reward"] is None else f"{summary['reward']:g}"
        wanted = [f"rollout {summary['rollout_n']} ", reward, summary["status"], f"{summary['turns']} turn", "tokens"]
        assert [each for each in wanted if each not in head] == []


def test_the_common_beginning_is_folded_and_unfolds(page: Page, demo: Viewer) -> None:
    """The messages that all rollouts begin with are one line, which unfolds; the first turn after it is marked."""
    address, group = telling_group(demo)
    count = alike([each["conversation"] for each in group["rollouts"]])
    go(page, demo, address)
    fold = page.get_by_role("button", name=f"{count} messages alike in all 4 rollouts")
    assert page.locator(".common .message").count() == 0
    fold.click()
    page.locator(".common .message").first.wait_for()
    question = group["rollouts"][0]["conversation"][1]["text"]
    assert question.strip().split("\n")[0] in " ".join(texts(page, ".common"))
    assert "first difference" in texts(page, ".turn-name")[0]
    assert page.locator(".first-difference").count() == 1


def test_two_chosen_rollouts_are_compared(page: Page, demo: Viewer) -> None:
    """One tick says where each other first differs; two leave two columns and mark what differs; Escape shows all."""
    address, group = telling_group(demo)
    rollouts = group["rollouts"]
    other = next(at for at in range(1, 4) if alike([rollouts[0]["conversation"], rollouts[at]["conversation"]]) < 9)
    count = alike([rollouts[0]["conversation"], rollouts[other]["conversation"]])
    go(page, demo, address)
    for at in (0, other):
        page.get_by_role("checkbox", name=f"compare rollout {at}").check()
        if at == 0:
            page.locator(".compare-bar").get_by_text("Rollout 0").wait_for()
            [told] = texts(page, ".compare-bar")
            turns = {int(turn): names.split(", ") for turn, names in re.findall(r"turn (\d+) from ([\d, ]+\d)", told)}
    page.locator(".columns-row.heads .column-head").nth(2).wait_for(state="detached")
    [told] = texts(page, ".compare-bar")
    assert f"message {count + 1}." in told
    assert [turn for turn, names in turns.items() if str(other) in names] == [int(told.split("turn ")[1].split(",")[0])]
    assert page.locator(".turn mark.differs").count() > 0
    assert f"compare=0%2C{other}" in page.url
    page.locator("main h1").click()
    page.keyboard.press("Escape")
    page.locator(".column-head").nth(3).wait_for()
    assert page.locator("mark.differs").count() == 0


def test_columns_are_sorted_by_reward(page: Page, demo: Viewer) -> None:
    """Sorted by reward the best rollout is first, and the address keeps it."""
    address, group = telling_group(demo)
    go(page, demo, address)
    page.get_by_label("Sort by").select_option("reward")
    rewards = [each["summary"]["reward"] for each in group["rollouts"]]
    wanted = [f"{reward:g}" for reward in sorted((each for each in rewards if each is not None), reverse=True)]
    wanted += [NO_REWARD] * rewards.count(None)
    wait_until(page, "location.hash.includes('sort=reward')")
    assert texts(page, ".column-head .reward") == wanted


def test_the_same_prompt_at_another_step_is_one_click_away(page: Page, demo: Viewer) -> None:
    """A bar of the strip of steps leads to the prompt at that step."""
    address, group = telling_group(demo)
    go(page, demo, address)
    page.get_by_role("link", name="step 2: mean reward").click()
    wait_until(page, "location.hash.startsWith('#/step/2/sample/')")
    page.locator(".step-strip [aria-current]", has_text="2").wait_for()
    assert f"sample/{group['summary']['sample_index']}" in page.url


def test_j_and_k_lead_to_the_next_prompt_and_back(page: Page, demo: Viewer) -> None:
    """`j` shows the step's next prompt, and `k` the one before."""
    go(page, demo, "#/step/1/sample/0")
    page.keyboard.press("j")
    wait_until(page, "location.hash.startsWith('#/step/1/sample/1')")
    page.get_by_role("heading", name=demo.get("step/1/group?sample=1")["summary"]["prompt"][:40]).wait_for()
    page.keyboard.press("k")
    wait_until(page, "location.hash.startsWith('#/step/1/sample/0')")


def test_a_narrow_window_shows_one_rollout_at_a_time(page: Page, demo: Viewer) -> None:
    """In a window of 400 pixels one column is shown, and buttons lead to the others."""
    address, _ = telling_group(demo)
    page.set_viewport_size({"width": 400, "height": 800})
    try:
        go(page, demo, address)
        page.locator(".switcher").wait_for()
        page.locator(".switcher button").nth(2).click()
        page.get_by_role("link", name="rollout 2").wait_for()
        assert page.locator(".column-head").count() == 1
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    finally:
        page.set_viewport_size({"width": 1600, "height": 900})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible(page: Page, demo: Viewer, theme: str) -> None:
    """axe-core finds nothing serious, with the common beginning unfolded and two rollouts compared."""
    set_theme(page, theme)
    address, _ = telling_group(demo)
    go(page, demo, address)
    page.locator(".fold").click()
    faults = accessibility_faults(page)
    go(page, demo, f"{address}?compare=0,1")
    page.locator(".compare-bar").wait_for()
    assert faults + accessibility_faults(page) == []


@pytest.mark.parametrize("sample", ["..", ".", "What is 1+1?\nThink first.", "a\0b", "inno\u202ecent"])
def test_a_prompt_is_opened_whatever_its_name(page: Page, tmp_path: Path, sample: str) -> None:
    """A prompt's text can be its number: links lead to it, and the way to the page and the title show what it hides."""
    write_folder(tmp_path, *(make_trajectory(1, sample, rollout, reward=float(rollout)) for rollout in range(2)))
    with visited(page, tmp_path, "#/step/1"):
        page.locator("a[href*='/sample/']").first.click()
        page.locator(".rollout-name").nth(1).wait_for()
        shown = page.locator("nav").first.inner_text() + page.title()
        assert not set(shown) & set("\0\u202e")


def test_hostile_texts_are_only_shown(page: Page, tmp_path: Path) -> None:
    """Scripts, handlers, links and control characters in every field of a group are text on the page."""
    write_hostile(tmp_path / "traces")
    with visited(page, tmp_path / "traces", "#/step/1/sample/0"):
        page.locator(".fold").click()
        page.locator(".turn .message").first.wait_for()
        for summary in page.locator("summary").all():
            summary.click()
        page.get_by_role("checkbox").nth(0).check()
        page.get_by_role("checkbox").nth(1).check()
        page.locator("mark.differs").first.wait_for()
        assert HARM.split("\u202e")[0] in page.locator("main").inner_text()
        assert harm_of(page) == []
