"""A step whose rewards verl's old trainer has computed when the rollout is over, as with a colocated reward model."""

import asyncio
import json
import sys
from pathlib import Path

import harness
import ray
import torch

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])


class Handle(harness.Remote):
    """A Ray actor handle to an object that lives in an event loop of another thread."""

    def __init__(self, target, loop):
        super().__init__(target)
        self._loop = loop

    def _method(self, method):
        loop = self._loop

        class Method:
            @staticmethod
            def remote(*args):
                async def call():
                    result = method(*args)
                    return await result if asyncio.iscoroutine(result) else result

                return asyncio.run_coroutine_threadsafe(call(), loop)

        return Method()


async def main() -> None:
    import verl.utils.ray_utils

    verl.utils.ray_utils.auto_await = lambda function: function
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.reward import extract_reward

    model = harness.make_model(folder / "model")
    config = harness.make_config(
        model,
        "reward.reward_model.enable=True",
        f"reward.reward_model.model_path={model}",
        *options.get("overrides", []),
    )
    workers = [harness.make_worker(config, is_reward_late=True) for _ in range(2)]
    manager = harness.manager_of(config, workers)
    loop = asyncio.get_running_loop()
    trainer = object.__new__(RayPPOTrainer)
    trainer.reward_loop_manager = harness.reward_manager_of(
        config, [Handle(RewardLoopWorker(config), loop) for _ in range(4)]
    )
    ray.get = lambda references, timeout=None: [reference.result(timeout) for reference in references]

    # What the trainer's `fit` does with a batch, up to its rewards.
    prompts, n = options["prompts"], options["n"]
    output = await manager.generate_sequences(harness.make_batch(prompts, n, step=6))
    batch = harness.make_batch(prompts, n, step=6)
    batch = batch.union(output)
    # The trainer's thread asks them.
    manager.agent_loop_workers = [Handle(worker, loop) for worker in workers]
    batch.reorder(torch.tensor([4, 0, 5, 2, 1, 3]))
    columns = set(batch.non_tensor_batch)
    batch = batch.union(await asyncio.to_thread(trainer._compute_reward_colocate, batch))
    rewards, _ = extract_reward(batch)
    (folder / "digest").write_text(harness.digest(batch))
    given = zip(batch.non_tensor_batch["uid"], rewards.sum(-1).tolist(), strict=True)
    (folder / "rewards").write_text(json.dumps(list(given)))
    (folder / "columns").write_text(json.dumps([sorted(columns), sorted(batch.non_tensor_batch)]))


asyncio.run(main())
