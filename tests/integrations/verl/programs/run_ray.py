"""One step of verl's agent loop in Ray actors, by the old manager or by the v1 trainer's; then `ray.shutdown()`."""

import asyncio
import json
import sys
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
    if not options.get("just_exit"):
        ray.shutdown()


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
