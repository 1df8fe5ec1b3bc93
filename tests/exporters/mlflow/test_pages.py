"""MLflow's own pages in a browser: the words of a turn, the reward, two rollouts side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from tests.servers.browser import Browser, wait_for_words

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# The page has shown its hints, and the assistant's panel, which opens itself on the first visit.
SEEN = {
    "mlflow.detectIssues.guidanceShown_v1": True,
    "mlflow.flagForReview.guidanceShown_v1": True,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
    "mlflow.assistant.panelOpen_v1": False,
}
BEGINNINGS = (
    '{"reward": 0.75, "rollout": 0, "output": "The answer',
    '{"reward": 0.25, "rollout": 1, "output": "The answer',
)
"""As much of the outputs as the list has place for."""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculator",
            "description": "Evaluates an expression.",
            "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
        },
    }
]
Open = Callable[[str], AbstractContextManager["Page"]]


@rollout_trace_op(name="generate", kind="LLM")
def generate(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Ask for the tool once, then answer, as OpenAI's API does."""
    if messages[-1]["role"] == "tool":
        message: dict[str, Any] = {"role": "assistant", "content": f"The answer is {messages[-1]['content']}."}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    call = {"name": "calculator", "arguments": '{"expression": "6 * 7"}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
    }
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


class Words:
    """A tokenizer of two texts, told apart by their first token."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return "What is 6 times 7?" if ids[0] == 0 else "I take the calculator for that."


class Policy:
    """A policy as trainers have it: token ids in, token ids out."""

    def __init__(self) -> None:
        self.tokenizer = Words()

    @rollout_trace_op(name="decode", kind="LLM")
    def decode(self, prompt_ids: list[int]) -> dict[str, Any]:
        """Return a turn's ids."""
        return {"token_ids": [1, *prompt_ids]}


def rollout(number: int) -> None:
    """Trace one rollout of a prompt; its answer and its reward are its own."""
    with rollout_trace_attr(sample_index=12, step=7, rollout_n=number, name="agent_loop"):
        messages = [
            {"role": "system", "content": "You are a calculator."},
            {"role": "user", "content": "What is 6 times 7?"},
        ]
        Policy().decode([0, *(random.randrange(50_000) for _ in range(500))])
        messages += [
            generate(messages, TOOLS)["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "call_1", "content": str(42 + number)},
        ]
        answer = generate(messages, TOOLS)["choices"][0]["message"]
        parts = {"correct": {"value": number == 0, "explanation": "compared with 42"}}
        otel_rollout.annotate(reward=0.75 - number / 2, rewards=parts, output=answer["content"])


@pytest.fixture(scope="module")
def address(mlflow_server: Any) -> str:
    """The address of the list of an experiment with two rollouts of one prompt."""
    from mlflow.tracking import MlflowClient

    project = f"pages-{random.getrandbits(40)}"
    patch = pytest.MonkeyPatch()
    with patch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", mlflow_server.address)
        otel_rollout.init(project, "exp-1", backend="mlflow", token2text=True)
        for number in range(2):
            rollout(number)
        assert otel_rollout.shutdown(60)
    experiment = MlflowClient(mlflow_server.address).get_experiment_by_name(project)
    return f"{mlflow_server.address}/#/experiments/{experiment.experiment_id}/traces"


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The list of traces as a person sees it who opens the experiment."""
    with browser.open(address, storage=SEEN) as opened:
        wait_for_words(opened, "What is 6 times 7?")
        yield opened


def scroll_to(page: Page, words: str, *, picture: Any) -> None:
    """Scroll the last text with these words into view, and wait until it is shown."""
    page.get_by_text(words).last.scroll_into_view_if_needed()
    wait_for_words(page, words, picture=picture)


def test_list_tells_rollouts_apart(page: Page, tmp_path: Any) -> None:
    """The list's default view shows the prompt, the reward, the rollout, the answer, and the session by its sample."""
    picture = tmp_path / "list.png"
    wait_for_words(page, "What is 6 times 7?", *BEGINNINGS, picture=picture)
    assert page.get_by_text("s12 · step 7 · ").first.is_visible()


def test_trace_shows_words_and_reward(page: Page, tmp_path: Any) -> None:
    """A trace opens with the conversation, the answer and the reward; a turn shows its words before its token ids."""
    page.get_by_text("The answer is 42.").first.click()
    picture = tmp_path / "trace.png"
    wait_for_words(page, "You are a calculator.", "6 * 7", "0.75", picture=picture)
    scroll_to(page, "The answer is 42.", picture=picture)

    page.get_by_text("generate", exact=True).first.click()
    picture = tmp_path / "turn.png"
    wait_for_words(page, "You are a calculator.", "Tool calls", "6 * 7", "tool_calls", picture=picture)
    # The tools that the model may call are folded.
    wait_for_words(page, "Click to Expand", picture=picture)

    page.get_by_text("decode", exact=True).first.click()
    picture = tmp_path / "ids.png"
    wait_for_words(page, "What is 6 times 7?", "I take the calculator for that.", picture=picture)


def test_two_rollouts_side_by_side(page: Page, tmp_path: Any) -> None:
    """Compare shows two rollouts of a prompt beside each other, each with its answer and its reward."""
    for row in (1, 2):
        page.get_by_role("checkbox").nth(row).click()
    page.get_by_role("button", name="Actions for selected traces").click()
    page.get_by_role("menuitem", name="Compare").click()
    picture = tmp_path / "compare.png"
    wait_for_words(page, "0.75", "0.25", picture=picture)
    for answer in ("The answer is 42.", "The answer is 43."):
        scroll_to(page, answer, picture=picture)


def test_rollouts_of_a_prompt_in_a_session(page: Page, tmp_path: Any) -> None:
    """Grouped by session the rollouts of a prompt are in one row, and below it each with its reward."""
    page.get_by_role("button", name="Group traces by session").click()
    page.get_by_text("s12 · step 7 · ").first.wait_for()
    page.get_by_role("button", name="Expand").first.click()
    picture = tmp_path / "sessions.png"
    wait_for_words(page, *BEGINNINGS, picture=picture)
