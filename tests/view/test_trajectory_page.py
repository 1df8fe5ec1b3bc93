"""The page Trajectory: a conversation beside its spans, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import make_span, trace_id_of
from tests.view.hostile import HARM, LONG, write_broken, write_hostile, write_large
from tests.view.looking import accessibility_faults, go, harm_of, set_theme, texts, visited, wait_until
from tests.view.viewer import Viewer

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def failing(demo: Viewer) -> dict[str, Any]:
    """Return a trajectory of step 1 of which a tool failed."""
    for group in demo.get("step/1")["groups"]:
        for trace_id in group["trace_ids"] if group["tool_errors"] else ():
            found: dict[str, Any] = demo.get(f"trajectory/{trace_id}")
            if any(span["kind"] == "TOOL" and span["status"] == "error" for span in found["spans"]):
                return found
    raise AssertionError("no tool of the demo failed")


def address_of(trajectory: dict[str, Any]) -> str:
    """Return the address of a trajectory of step 1."""
    summary = trajectory["summary"]
    return f"#/step/1/sample/{summary['sample_index']}/rollout/{summary['rollout_n']}"


def test_the_conversation_has_each_message_and_each_tool_with_its_result(
    page: Page, demo: Viewer, failing: dict[str, Any]
) -> None:
    """A call of a tool is one card with its arguments and its result; a failed one is marked."""
    go(page, demo, address_of(failing))
    page.locator(".tool-card").first.wait_for()
    told = failing["conversation"]
    assert texts(page, ".message .role") == [each["role"] for each in told if each["role"] != "tool"]
    cards = texts(page, ".tool-card")
    calls = [call for each in told for call in each["calls"]]
    assert len(cards) == len(calls)
    for card, call in zip(cards, calls, strict=True):
        assert [each for each in (call["name"], *map(str, call["arguments"].values())) if each not in card] == []
    failed = [each["text"] for each in told if each["role"] == "tool" and each["is_error"]]
    assert failed
    assert texts(page, ".tool-card.failed .result > .long-text") == [" ".join(text.split()) for text in failed]
    page.locator(".traceback summary").first.click()
    page.get_by_text("Traceback (most recent call last)").first.wait_for()


def test_a_span_and_its_message_are_marked_together(page: Page, demo: Viewer, failing: dict[str, Any]) -> None:
    """A click on a span marks its message, one on a message's duration its span; the address keeps the choice."""
    go(page, demo, address_of(failing))
    page.get_by_role("option", name="turn 2").click()
    turn = next(span for span in failing["spans"] if span["turn"] == 2)
    page.locator(f".message.selected[data-span='{turn['span_id']}']").wait_for()
    assert f"span={turn['span_id']}" in page.url
    failed = next(span for span in failing["spans"] if span["kind"] == "TOOL" and span["status"] == "error")
    page.locator(f".tool-card[data-span='{failed['span_id']}'] .span-link").click()
    row = page.locator(f"#span-{failed['span_id']}[aria-selected='true']")
    row.wait_for()
    assert failed["error"].split(": ")[-1] in page.locator(".span-panel .span-error").inner_text()
    address = page.evaluate("location.hash")
    go(page, demo, "#/step/1")
    go(page, demo, address)
    row.wait_for()
    page.keyboard.press("Escape")
    page.locator(".span-panel").wait_for(state="detached")


def test_the_waterfall_is_used_by_keys(page: Page, demo: Viewer, failing: dict[str, Any]) -> None:
    """The arrow keys choose spans one after another."""
    go(page, demo, address_of(failing))
    page.get_by_role("listbox", name="spans").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.locator("[role=option][aria-selected='true']", has_text="turn 1").wait_for()
    page.keyboard.press("ArrowUp")
    page.locator("[role=option][aria-selected='true']", has_text="AgentLoop.run").wait_for()


def test_the_panel_has_the_whole_span(page: Page, demo: Viewer, failing: dict[str, Any]) -> None:
    """The panel shows every attribute of a span, and copies the span as JSON."""
    span = next(span for span in failing["spans"] if span["turn"] == 1)
    go(page, demo, f"{address_of(failing)}?span={span['span_id']}")
    page.locator(".span-panel").wait_for()
    shown = page.locator(".span-panel").inner_text()
    assert [key for key in span["attributes"] if key not in shown] == []
    page.locator(".span-panel").get_by_role("button", name="Copy JSON").click()
    page.locator(".span-panel").get_by_text("Copied").wait_for()
    copied = orjson.loads(page.evaluate("navigator.clipboard.readText()"))
    assert (copied["span_id"], copied["attributes"]) == (span["span_id"], span["attributes"])


def test_a_turn_has_its_rendered_prompt(page: Page, tmp_path: Path) -> None:
    """The prompt of a later turn is the text of the turns before it and its own, as the engine got it."""
    trace_id = trace_id_of(1, 0, 0)
    tags = dict(zip(semconv.TAGS, (1, 0, 0), strict=False))
    turns = [
        ({"prompt_text": "<user>2 * 3?<assistant>"}, {"response_text": "<call>2 * 3"}),
        ({"prompt_text": "<tool>6<assistant>", "prompt_ids_start": 9}, {"response_text": "It is 6."}),
    ]
    writer = FolderWriter(tmp_path)
    spans = [
        make_span(
            "generate",
            number,
            trace_id,
            seconds=(float(number), number + 0.5),
            attributes={
                semconv.SPAN_KIND: "LLM",
                **tags,
                semconv.REQUEST_ID: "conversation",
                semconv.INPUT_VALUE: orjson.dumps(given).decode(),
                semconv.OUTPUT_VALUE: orjson.dumps(said).decode(),
            },
        )
        for number, (given, said) in enumerate(turns, 2)
    ]
    root = {semconv.SPAN_KIND: "AGENT", **tags, semconv.STATUS: "completed"}
    writer.write([*spans, make_span("rollout", 1, trace_id, parent=None, attributes=root, seconds=(1.0, 5.0))])
    writer.close()
    with visited(page, tmp_path, f"#/step/1/sample/0/rollout/0?span={3:016x}"):
        shown = page.locator(".span-panel .payload", has_text="rendered prompt")
        shown.locator("summary").click()
        text = shown.locator(".payload-text").inner_text()
    assert "<user>2 * 3?<assistant><call>2 * 3<tool>6<assistant>" in text


def test_the_command_and_the_trace_id_are_copied(page: Page, demo: Viewer, failing: dict[str, Any]) -> None:
    """Buttons copy the command that shows the trajectory in a terminal, and its trace id."""
    go(page, demo, address_of(failing))
    trace_id = failing["summary"]["trace_id"]
    page.get_by_role("button", name="Copy trace id").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == trace_id
    page.get_by_role("button", name="Copy command").click()
    wait_until(page, "async () => (await navigator.clipboard.readText()).startsWith('otel-rollout show')")
    folder = demo.get("run")["folders"][0]
    assert page.evaluate("navigator.clipboard.readText()") == f"otel-rollout show {folder} --trace {trace_id} --chat"


def test_j_k_and_g_lead_to_the_rollouts_beside_it_and_to_the_group(
    page: Page, demo: Viewer, failing: dict[str, Any]
) -> None:
    """`j` shows the prompt's next rollout, `k` the one before, `g` the group."""
    group = f"#/step/1/sample/{failing['summary']['sample_index']}"
    go(page, demo, f"{group}/rollout/1")
    page.locator(".waterfall-row").first.wait_for()
    for key, rollout in (("j", 2), ("k", 1)):
        page.keyboard.press(key)
        wait_until(page, f"location.hash === '{group}/rollout/{rollout}'")
        page.locator(".waterfall-row").first.wait_for()
    page.keyboard.press("g")
    wait_until(page, f"location.hash === '{group}'")


def test_a_trace_id_is_an_address(page: Page, demo: Viewer, failing: dict[str, Any]) -> None:
    """The address with a trajectory's trace id shows it, with its place in the breadcrumbs."""
    go(page, demo, f"#/trajectory/{failing['summary']['trace_id']}")
    page.get_by_role("navigation", name="breadcrumbs").get_by_text(
        f"Sample {failing['summary']['sample_index']}"
    ).wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible(page: Page, demo: Viewer, failing: dict[str, Any], theme: str) -> None:
    """axe-core finds nothing serious, with a span that failed in the panel."""
    set_theme(page, theme)
    failed = next(span for span in failing["spans"] if span["kind"] == "TOOL" and span["status"] == "error")
    go(page, demo, f"{address_of(failing)}?span={failed['span_id']}")
    page.locator(".span-panel").wait_for()
    assert accessibility_faults(page) == []


def test_a_prefix_break_is_shown_at_its_first_token(page: Page, tmp_path: Path) -> None:
    """A turn whose prompt replaces a token says which, and marks it among the ids."""
    write_broken(tmp_path / "traces")
    with visited(page, tmp_path / "traces", "#/step/1/sample/0/rollout/0"):
        page.get_by_role("option", name="turn 2").click()
        page.locator(".span-panel .prefix-break").wait_for()
        assert "First at token 3: 20 became 99." in texts(page, ".span-panel .prefix-break")[0]
        page.locator(".span-panel .token-ids summary").first.click()
        assert texts(page, "mark.broken") == ["99"]


def test_hostile_texts_are_only_shown(page: Page, tmp_path: Path) -> None:
    """Scripts, handlers, links and control characters in every field of a trajectory are text on the page."""
    write_hostile(tmp_path / "traces")
    with visited(page, tmp_path / "traces", "#/step/1/sample/0/rollout/0"):
        for place in range(3):
            page.locator(".waterfall-row").nth(place).click()
            page.locator(".waterfall-row[aria-selected='true']").wait_for()
            for summary in page.locator("main summary").all():
                if summary.is_visible():
                    summary.click()
            assert HARM.split("\u202e")[0] in page.locator("main").inner_text()
            assert harm_of(page) == []


def _show_large(page: Page, folder: Path, turns: int) -> None:
    """Show the last of many turns, then all of a text of 10 MB."""
    write_large(folder, turns)
    long, many = (f"{trace_id_of(1, 0, rollout):032x}" for rollout in range(2))
    with visited(page, folder, f"#/trajectory/{many}"):
        page.locator(".message", has_text="turn number 0").wait_for()
        page.locator(".conversation").evaluate("element => { element.scrollTop = element.scrollHeight }")
        page.locator(".message", has_text=f"turn number {turns - 1}").wait_for()
        assert page.locator(".message").count() < 100
        assert page.locator(".waterfall-row").count() < 100
        page.evaluate("address => { location.hash = address }", f"#/trajectory/{long}")
        page.get_by_role("option", name="turn 1").click()
        panel = page.locator(".span-panel")
        panel.get_by_role("button", name="characters more").first.click()
        panel.get_by_role("button", name="Show all 10,000,").first.click()
        panel.locator(".piece").nth(LONG // 20_000 - 1).wait_for(state="attached")
        assert panel.evaluate("element => element.textContent.length") > LONG


def test_a_text_of_10_mb_and_many_turns_stay_usable(page: Page, tmp_path: Path) -> None:
    """Of 2,000 turns only those in view are in the document, and 10 MB of text are cut until they are asked for."""
    _show_large(page, tmp_path / "traces", 2_000)


@pytest.mark.slow
def test_100_000_turns_stay_usable(page: Page, tmp_path: Path) -> None:
    """Of 100,000 turns only those in view are in the document."""
    page.set_default_timeout(240_000)
    _show_large(page, tmp_path / "traces", 100_000)
