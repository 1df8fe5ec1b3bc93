"""Phoenix's own pages: the words of a turn, the reward, and a group's rollouts, without scrolling."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout_phoenix import PhoenixSpanExporter
from tests.servers.browser import Browser, wait_for_words

from .conftest import SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS_TO_SHOW = 60.0
QUESTION, ANSWERS = "What is six times seven?", ("It is fifty-four.", "It is forty-two.")


@rollout_trace_op(kind="LLM")
def generate(messages: list[dict[str, str]], prompt_ids: list[int], answer: str) -> dict[str, Any]:
    """Answer, as a client of OpenAI's API does, with token ids beside the messages."""
    message = {"role": "assistant", "content": answer}
    return {"token_ids": prompt_ids, "choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.fixture(scope="module")
def pages(phoenix: Any) -> dict[str, str]:
    """The addresses of the pages of one group: its lists, its session, and the trajectory with the right answer."""
    project = f"pages-{uuid.uuid4().hex[:8]}"
    otel_rollout.init(project, "exp", backend=PhoenixSpanExporter(endpoint=phoenix.address))
    for number, answer in enumerate(ANSWERS):
        with rollout_trace_attr(12, 7, number, name="trajectory"):
            generate([{"role": "user", "content": QUESTION}], list(range(200)), answer)
            annotate(input=QUESTION, output=answer, reward=0.25 + number, rewards={"correct": number == 1})
    assert otel_rollout.flush(SECONDS), otel_rollout.stats()
    otel_rollout.shutdown(10.0)
    [session] = phoenix.api.sessions(project)
    [turn] = phoenix.api.spans(project, name="generate", attribute="rollout.rollout_n:1")
    [right] = phoenix.api.spans(project, parent_id="null", attribute="rollout.rollout_n:1")
    base = f"{phoenix.address}/projects/{session['project_id']}"
    trace = f"{base}/traces/{right['context']['trace_id']}"
    return {
        "traces": f"{base}/traces",
        "sessions": f"{base}/sessions",
        "session": f"{base}/sessions/{session['id']}",
        "trace": trace,
        "turn": f"{trace}?selectedSpanNodeId={turn['id']}",
    }


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Any]:
    """One page for all tests: Phoenix's program is large, and loaded once."""
    with browser.open("about:blank") as page:
        yield page


Show = Callable[..., None]


@pytest.fixture
def shows(pages: dict[str, str], page: Any, tmp_path: Path) -> Show:
    """Open an address, and wait until the page shows words without scrolling."""

    def show(name: str, *words: str, width: int = 1600, height: int = 900) -> None:
        page.set_viewport_size({"width": width, "height": height})
        page.goto(pages[name], wait_until="domcontentloaded", timeout=SECONDS_TO_SHOW * 1000)
        wait_for_words(page, *words, picture=tmp_path / f"{name}.png", seconds=SECONDS_TO_SHOW)

    return show


class TestPages:
    """What a person sees first."""

    def test_a_turn_is_a_chat(self, shows: Show) -> None:
        """Of a turn, the question and the answer are shown as messages, in front of the token ids."""
        shows("turn", QUESTION, ANSWERS[1], "user", "assistant")

    def test_the_reward_of_a_trajectory(self, shows: Show) -> None:
        """A trajectory's page has the reward in its header, and the parts in its tree."""
        shows("trace", "reward", "1.25", "correct", "1.00")

    def test_the_rewards_of_a_list(self, shows: Show) -> None:
        """The list of traces has each trajectory's reward, and their mean over time."""
        shows("traces", "Trace annotation scores", "reward", "1.25", "0.25", width=1920, height=1080)

    def test_the_mean_of_a_group(self, shows: Show) -> None:
        """The list of sessions has the mean reward of each group."""
        shows("sessions", "Session annotation scores", "reward", "0.75", width=1920, height=1080)

    def test_rollouts_of_a_group_stand_together(self, shows: Show) -> None:
        """A session's page has both rollouts of a prompt with their answers, and the rewards' mean."""
        shows("session", *ANSWERS, "0.75")
