"""What a person sees of a trajectory in trackio's page."""

from __future__ import annotations

import pytest

from otel_rollout.export.outcome import DELIVERED
from otel_rollout_trackio import TrackioSpanExporter
from tests.exporters.trackio.spans import make_trajectory
from tests.servers.browser import wait_for_words

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WORDS = "How many apples are left in the third basket?"


class TestTraces:
    """The tab Traces."""

    def test_a_trajectory_is_a_conversation_with_its_reward(self, trackio_server, browser, tmp_path):
        """The list has prompt, step and status; the opened row has reward, tags, the ops' tree and the chat."""
        exporter = TrackioSpanExporter(server_url=trackio_server.address, write_token=trackio_server.write_token)
        assert exporter.send(make_trajectory(project="page", words=WORDS, reward=0.625)) == DELIVERED
        exporter.shutdown()

        with browser.open(f"{trackio_server.address}/traces?project=page") as page:
            wait_for_words(page, WORDS, "success", "3.00s", picture=tmp_path / "list.png")
            page.get_by_text(WORDS).first.click()
            wait_for_words(
                page,
                "reward: 0.625",
                "sample_index: 12",
                "rollout_n: 1",
                "calculator",
                "It is 51.",
                picture=tmp_path / "trajectory.png",
            )
            page.get_by_text("Conversation", exact=True).click()
            page.get_by_text("tool calls").first.wait_for()
            roles = page.locator(".message").evaluate_all("all => all.map(one => one.dataset.role)")
            assert roles == ["user", "assistant", "tool", "assistant"]
