"""The same in Ray actors: verl's old manager and the v1 trainer's, up to a `ray.shutdown()` right after the step."""

from __future__ import annotations

import functools
import json

import pytest

from tests.integrations.verl.conftest import Run, RunProgram, traced

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
]

SECONDS = 1200


@pytest.fixture(name="run_program")
def run_ray_program(run_program: RunProgram) -> RunProgram:
    """Runs a program as elsewhere, with the time that seven processes take to import verl on a machine that is busy."""
    return functools.partial(run_program, seconds=SECONDS)


def check_whole(run: Run, *, has_late_rewards: bool = False) -> None:
    """Assert that nothing is missing, that no two are the same and that the reward process is linked."""
    ids = {span["span_id"] for span in run.spans}
    assert all(span["parent_id"] in ids for span in run.spans if span["parent_id"])
    roots = [root["attributes"] for root in run.roots()]
    assert len(roots) == 6
    keys = ("rollout.step", "rollout.sample_index", "rollout.rollout_n", "rollout.validate")
    assert len({tuple(root[key] for key in keys) for root in roots}) == 6
    assert all(("rollout.reward" in root) is not has_late_rewards for root in roots)
    assert len({root["session.id"] for root in roots}) == 3
    assert len({span["resource"]["rollout.run_id"] for span in run.spans}) == 1
    for trace in run.traces():
        [score] = [span for span in trace if span["name"] == "RewardLoopWorker.compute_score"]
        assert score["parent_id"] == trace[0]["span_id"]
        assert score["pid"] != trace[0]["pid"]
        assert score["attributes"]["rollout.sample_index"] == trace[0]["attributes"]["rollout.sample_index"]


class TestRay:
    """Whole programs under Ray."""

    def test_manager(self, run_program: RunProgram) -> None:
        """All trajectories of the last step are there after `ray.shutdown()`, a group split over workers included."""
        run = run_program("run_ray.py", overrides=traced(), prompts=["plan a", "plan b", "long c"], n=2)
        check_whole(run)
        assert {root["attributes"]["rollout.rollout_n_from"] for root in run.roots()} == {"batch"}
        assert {root["attributes"]["rollout.sample_index"] for root in run.roots()} == {10, 11, 12}

    def test_end_of_the_driver(self, run_program: RunProgram) -> None:
        """All of the last step is there as well where the driver ends without `ray.shutdown()`."""
        prompts = ["plan a", "plan b", "long c"]
        check_whole(run_program("run_ray.py", overrides=traced(), prompts=prompts, n=2, end="exit"))

    def test_actor_that_exits(self, run_program: RunProgram) -> None:
        """An actor that ends while spans are still queued delivers all of them before it is gone."""
        run = run_program(
            "run_ray.py",
            overrides=traced(),
            prompts=["plan a", "plan b", "long c"],
            n=2,
            end="__ray_terminate__",
            variables={"VERL_TEST_SECONDS_PER_EXPORT": "2"},
        )
        check_whole(run)
        assert (run.folder / "at the end of the actors").read_text() == "6"

    def test_actor_that_is_killed(self, run_program: RunProgram) -> None:
        """At the end of a step an actor sends what it has at once: ray.kill(), which gives no time, loses none."""
        run = run_program(
            "run_ray.py",
            overrides=traced(),
            prompts=["plan a", "plan b", "long c"],
            n=2,
            end="ray.kill",
            trajectories=6,
            variables={"OTEL_BSP_SCHEDULE_DELAY": "3600000"},
        )
        check_whole(run)

    def test_v1(self, run_program: RunProgram) -> None:
        """The v1 trainer's trajectories are traced; a dataset index that two prompts share gives way to their uid."""
        prompts, indices = ["plan a", "plan b", "long c"], [5, 6, 6]
        run = run_program("run_ray.py", v1=True, overrides=traced(), prompts=prompts, n=2, indices=indices)
        check_whole(run)
        assert {root["attributes"]["rollout.rollout_n_from"] for root in run.roots()} == {"session_id"}
        origins = {
            root["attributes"]["rollout.dataset_index"]: root["attributes"]["rollout.sample_index_from"]
            for root in run.roots()
        }
        assert origins == {5: "index", 6: "uid"}
        tags = json.loads((run.folder / "status").read_text()).values()
        assert {tag["status"] for tag in tags} == {"success", "finished"}

    def test_v1_with_late_rewards(self, run_program: RunProgram) -> None:
        """A colocated reward model's rewards stand in their trajectories, though the v1 trainer names no rows there."""
        run = run_program("run_ray.py", v1=True, late=True, overrides=traced(), prompts=["plan a", "plan b", "c"], n=2)
        check_whole(run, has_late_rewards=True)
        found = {}
        for root, *others in run.traces():
            [score] = [span for span in others if span["name"] == "RewardLoopWorker.compute_score"]
            key = f"{root['attributes']['rollout.uid']}_{root['attributes']['rollout.rollout_n']}_0"
            found[key] = score["attributes"]["rollout.reward"]
        assert found == json.loads((run.folder / "rewards").read_text())
