"""One step of verl's agent loop in Ray actors, by the old manager or by the v1 trainer's; then `ray.shutdown()`."""

import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path

import harness
import ray

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])


@ray.remote(num_cpus=0)
class EngineActor(harness.Engine):
    """An engine in an actor."""

    def __init__(self, model):
        from verl.utils import hf_tokenizer

        super().__init__(hf_tokenizer(model), version=4)


def main() -> None:
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=True)
    config = harness.make_config(harness.make_model(folder / "model"), *options.get("overrides", []))
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    servers = {"server-0": EngineActor.remote(config.actor_rollout_ref.model.path)}
    balancer = ray.remote(GlobalRequestLoadBalancer).options(num_cpus=0).remote(servers)
    client = LLMServerClient(config=config, load_balancer_handle=balancer)
    rewards = [ray.remote(RewardLoopWorker).options(name="reward_loop_worker_0", num_cpus=0).remote(config)]
    if options.get("v1"):
        run_v1(config, client, rewards)
    else:
        from verl.experimental.agent_loop.agent_loop import AgentLoopManager

        manager = AgentLoopManager.create(config, client, None, rewards)
        batch = harness.make_batch(options["prompts"], options["n"], step=6, indices=options.get("indices"))
        output = manager.generate_sequences(batch)
        (folder / "digest").write_text(harness.digest(output))
    end = options.get("end", "ray.shutdown")
    if end == "ray.kill":
        wait_for(lambda: count_roots() == options["trajectories"])
        for name in agent_loops():
            ray.kill(ray.get_actor(name))
    elif end == "__ray_terminate__":
        actors = [ray.get_actor(name) for name in agent_loops()]
        processes = ray.get([actor.__ray_call__.remote(lambda self: os.getpid()) for actor in actors])
        for actor in actors:
            actor.__ray_terminate__.remote()
        wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
        (folder / "at the end of the actors").write_text(str(count_roots()))
    if end != "exit":
        ray.shutdown()


def agent_loops() -> list[str]:
    return [name for name in ray.util.list_named_actors() if name.startswith("agent_loop_worker_")]


def count_roots() -> int:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sum(json.loads(line)["parent_id"] is None for line in lines)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it does not come to pass")
        time.sleep(0.1)


def run_v1(config, client, rewards) -> None:
    import transfer_queue as tq
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
    from verl.utils import tensordict_utils as tu

    tq.init(
        OmegaConf.create(
            {
                "backend": {
                    "storage_backend": "SimpleStorage",
                    "SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 1000},
                }
            }
        )
    )
    manager = AgentLoopManagerTQ.create(config, client, None, rewards)
    data = harness.make_batch(options["prompts"], 1, step=6, indices=options.get("indices"))
    columns = dict(data.non_tensor_batch)
    columns["uid"] = harness.object_array([str(uuid.uuid4()) for _ in range(len(data))])
    batch = tu.get_tensordict({"dummy_tensor": data.batch["dummy_tensor"], **columns})
    tu.assign_non_tensor_data(batch, "global_steps", 6)
    manager.generate_sequences(batch)
    uids = list(columns["uid"])

    async def wait() -> None:
        while True:
            tags = tq.kv_list("train").get("train", {})
            if all(tags.get(uid, {}).get("status") in ("finished", "failure") for uid in uids):
                return
            await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(wait(), 120))
    (folder / "status").write_text(json.dumps(tq.kv_list("train")["train"]))


main()
