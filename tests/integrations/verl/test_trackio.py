"""`trace.backend=trackio`, which verl has too, with the plugin installed: trajectories in a real trackio."""

from __future__ import annotations

import pytest

from tests.integrations.verl.conftest import RunProgram, traced
from tests.servers.trackio_server import TrackioServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROMPTS = ["plan a", "long b"]


class TestTrackio:
    """verl's setting."""

    def test_each_trajectory_is_one_conversation(self, run_program: RunProgram, trackio_server: TrackioServer) -> None:
        """Two workers' trajectories are one run: a conversation each, with tags, reward, turns and tool calls."""
        run_program(
            "run_worker.py",
            variables={
                "TRACKIO_SERVER_URL": trackio_server.address,
                "TRACKIO_WRITE_TOKEN": trackio_server.write_token,
            },
            workers=2,
            batches=[{"prompts": PROMPTS, "n": 2, "step": 40, "indices": [1207, 1208]}],
            overrides=traced(
                "trainer.project_name=verl-trackio",
                "trainer.experiment_name=exp-1",
                "actor_rollout_ref.rollout.trace.token2text=True",
                backend="trackio",
            ),
        )

        stored = trackio_server.traces("verl-trackio")

        metadata = [trace["metadata"] for trace in stored]
        places = sorted((each["sample_index"], each["rollout_n"]) for each in metadata)
        assert places == [(1207, 0), (1207, 1), (1208, 0), (1208, 1)]
        assert {trace["step"] for trace in stored} == {40}
        assert len({trace["run_id"] for trace in stored}) == 1
        assert all(isinstance(each["reward"], float) for each in metadata)
        for trace in stored:
            roles = [message["role"] for message in trace["messages"]]
            assert (roles[0], roles[-1]) == ("user", "assistant")
            assert {span["kind"] for span in trace["spans"]} >= {"span", "generation"}
