"""Steps of verl's v1 trainer on its own replay buffer and TransferQueue, with only the actor's network faked.

Beside the traces it leaves `facts`: what training decided of each rollout, read from the tensors.
"""

import json
import sys
from pathlib import Path

import harness
import ray
import torch

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])
facts: dict[str, dict] = {}


def main() -> None:
    ray.init(num_cpus=8, include_dashboard=False, _system_config={"prestart_worker_first_driver": False})
    reward = f"reward.custom_reward_function.path={harness.FOLDER / 'training_reward.py'}"
    correction = [f"++algorithm.rollout_correction.{each}" for each in ("rollout_is=token", "bypass_mode=False")]
    overrides = [reward, "algorithm.adv_estimator=grpo", "trainer.critic_warmup=0", *correction]
    # Each process imports verl and torch, which takes longer than all that it does here: so there are few.
    overrides.append("actor_rollout_ref.rollout.agent.num_workers=1")
    config = harness.make_config(harness.make_model(folder / "model"), *overrides, *options["overrides"])
    client, rewards = harness.serve_inside(config)
    train(config, client, rewards)
    (folder / "facts").write_text(json.dumps(facts))
    ray.shutdown()


class Actor:
    """The actor's workers, with log-probs and entropies made of the ids."""

    def compute_log_prob(self, batch):
        """Write them into the TransferQueue."""
        import transfer_queue as tq
        from tensordict import TensorDict

        ids = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["input_ids"])
        rows = ids["input_ids"].unbind()
        made = {
            name: torch.nested.as_nested_tensor([scale * row for row in rows], layout=torch.jagged)
            for name, scale in (("log_probs", -0.01), ("entropy", 0.02))
        }
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(made, len(rows)))
        return batch

    def update_actor(self, batch):
        """Train nothing."""
        return {"metrics": {"mfu": [0.1], "loss": [0.5]}}


def train(config, client, rewards) -> None:
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1 import trainer_base
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    tq = harness.start_transfer_queue()
    manager = AgentLoopManagerTQ.create(config, client, None, rewards)
    trainer = object.__new__(PPOTrainerSync)
    trainer.config, trainer.agent_loop_manager, trainer.actor_rollout_wg = config, manager, Actor()
    trainer.distillation_config = None
    kinds = {"trainer_config": {}, "sampler_kwargs": {}, "refill_fn": lambda number: number, "poll_interval": 0.1}
    kinds |= {"max_off_policy_strategy": "drop", "filter_groups_metric": "reward"}
    buffer = ReplayBufferAsync("separate_async", max_off_policy_threshold=2, **kinds)

    def advantages(batch):
        return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])[
            "advantages"
        ]

    def without_hook(batch):
        hooked = trainer_base.compute_advantage_for_multi_trajectories
        trainer_base.compute_advantage_for_multi_trajectories = hooked.__wrapped__
        trainer._compute_advantage(trainer._compute_old_log_prob(batch, {}), {})
        trainer_base.compute_advantage_for_multi_trajectories = hooked
        return advantages(batch).values()

    def step(batch) -> None:
        batch = upsample_batch_to_divisible_size(batch, 3, trainer_eos(config))
        metrics = {}
        plain = without_hook(batch)
        for part in ("_compute_old_log_prob", "_compute_advantage", "_update_actor"):
            batch = getattr(trainer, part)(batch, metrics)
        note(tq, batch)
        assert torch.equal(advantages(batch).values(), plain)
        assert metrics["actor/loss"] == 0.5
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)

    prompts = harness.generate_v1(manager, ["vary old"], step=2)
    prompts |= harness.generate_v1(manager, ["vary a", "hopeless b", "brief c", "vary d"], step=6)
    rows = {row: tag for row, tag in tq.kv_list("train")["train"].items() if not tag.get("is_prompt")}
    batch, metrics = buffer.sample(6, "train", 1)
    (folder / "metrics").write_text(json.dumps(metrics, default=str))
    step(batch)
    # Then as the synchronous trainer does it: one group of the two that are left is too many.
    prompts |= harness.generate_v1(manager, ["vary e"], step=7)
    rows |= {row: tag for row, tag in tq.kv_list("train")["train"].items() if not tag.get("is_prompt")}
    buffer = ReplayBuffer("sync", max_off_policy_threshold=None, train_batch_size=1, gen_batch_size=1, **kinds)
    step(buffer.sample(7, "train", 1)[0])
    assert not [row for row, tag in tq.kv_list("train").get("train", {}).items() if not tag.get("is_prompt")]
    (folder / "prompts").write_text(json.dumps({row: prompts[row.split("_")[0]] for row in rows}))


def trainer_eos(config) -> int:
    from verl.utils import hf_tokenizer

    return hf_tokenizer(config.actor_rollout_ref.model.path).eos_token_id


def note(tq, batch) -> None:
    names = ["response_mask", "advantages", "old_log_probs", "rollout_log_probs", "rollout_is_weights", "entropy"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    columns = {name: list(data[name].unbind()) for name in names}
    for number, (row, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if not tag.get("is_padding"):
            facts[row] = harness.facts_of({name: column[number] for name, column in columns.items()})


if __name__ == "__main__":
    main()
