"""A step of verl's old trainer, with late rewards, as of a colocated reward model, and training."""

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


class Actor:
    """The actor's workers, with log-probs and entropies made of the ids."""

    def compute_log_prob(self, batch):
        """Return them."""
        from verl.utils import tensordict_utils as tu

        made = {
            name: torch.nested.as_nested_tensor(
                [scale * ids for ids in batch["input_ids"].unbind()], layout=torch.jagged
            )
            for name, scale in (("log_probs", -0.01), ("entropy", 0.02))
        }
        return tu.get_tensordict(made, non_tensor_dict={"metrics": {"mfu": 0.1}})

    def update_actor(self, batch):
        """Train nothing."""
        from verl.utils import tensordict_utils as tu

        return tu.get_tensordict({"loss": torch.zeros(1)}, non_tensor_dict={"metrics": {"mfu": 0.1}})


def train(trainer, batch, rewards):
    """Do what the trainer's `fit` does with a batch after its rewards, and note each row's facts."""
    from verl.trainer.ppo import ray_trainer
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

    algorithm = trainer.config.algorithm
    old, _ = trainer._compute_old_log_prob(batch)
    entropies = old.batch.pop("entropys")
    batch = batch.union(old)
    batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = rewards
    batch, _ = compute_rollout_correction_and_add_to_batch(batch, algorithm.rollout_correction)
    batch = ray_trainer.compute_advantage(batch, adv_estimator="grpo", num_repeat=options["n"], config=algorithm)
    trainer._update_actor(batch)
    names = ["response_mask", "advantages", "old_log_probs", "rollout_log_probs", "rollout_is_weights"]
    rows = [
        {name: batch.batch[name][number] for name in names} | {"entropy": entropies[number]}
        for number in range(len(batch))
    ]
    uids = batch.non_tensor_batch["uid"].tolist()
    (folder / "facts").write_text(
        json.dumps([[uid, harness.facts_of(row)] for uid, row in zip(uids, rows, strict=True)])
    )
    return batch


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
        "++algorithm.rollout_correction.rollout_is=token",
        *options.get("overrides", []),
    )
    workers = [harness.make_worker(config, is_reward_late=True) for _ in range(2)]
    manager = harness.manager_of(config, workers)
    loop = asyncio.get_running_loop()
    trainer = object.__new__(RayPPOTrainer)
    trainer.config, trainer.actor_rollout_wg, trainer.distillation_config = config, Actor(), None
    trainer.reward_loop_manager = harness.reward_manager_of(
        config, [Handle(RewardLoopWorker(config), loop) for _ in range(4)]
    )
    ray.wait = lambda references, num_returns, timeout: (references, [])
    ray.get = lambda references, timeout=None: [reference.result(timeout) for reference in references]

    # What the trainer's `fit` does with a batch.
    prompts, n = options["prompts"], options["n"]
    output = await manager.generate_sequences(harness.make_batch(prompts, n, step=6))
    batch = harness.make_batch(prompts, n, step=6)
    batch.meta_info, output.meta_info = {"temperature": 1.0}, {}
    batch = batch.union(output)
    # The trainer's thread asks them.
    manager.agent_loop_workers = [Handle(worker, loop) for worker in workers]
    batch.reorder(torch.tensor([4, 0, 5, 2, 1, 3]))
    columns = set(batch.non_tensor_batch)
    batch = batch.union(await asyncio.to_thread(trainer._compute_reward_colocate, batch))
    rewards, _ = extract_reward(batch)
    given = zip(batch.non_tensor_batch["uid"], rewards.sum(-1).tolist(), strict=True)
    (folder / "rewards").write_text(json.dumps(list(given)))
    (folder / "columns").write_text(json.dumps([sorted(columns), sorted(batch.non_tensor_batch)]))
    batch = await asyncio.to_thread(train, trainer, batch, rewards)
    (folder / "digest").write_text(harness.digest(batch))


asyncio.run(main())
