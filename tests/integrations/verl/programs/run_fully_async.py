"""verl's own `FullyAsyncRollouter` in this process, from its dataset to its message queue, over fake engines."""

import asyncio
import json
import sys
from pathlib import Path

import harness
import pandas as pd
import ray

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])


def write_dataset(path: Path) -> Path:
    """Write a dataset of the prompts given."""
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "data_source": "arithmetic",
            "reward_model": {"style": "rule", "ground_truth": "7"},
            "extra_info": {"index": 0, "split": "train"},
        }
        for prompt in options["prompts"]
    ]
    pd.DataFrame(rows).to_parquet(path)
    return path


class Servers:
    """The engines' manager, as far as the rollouter uses it."""

    @staticmethod
    def get_active_server_count() -> int:
        """Return how many there are."""
        return 2


async def main() -> None:
    from verl.experimental.fully_async_policy.fully_async_rollouter import (
        FullyAsyncAgentLoopManager,
        FullyAsyncRollouter,
    )
    from verl.experimental.fully_async_policy.message_queue import MessageQueue, MessageQueueClient
    from verl.utils import hf_tokenizer
    from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

    dataset = write_dataset(folder / "train.parquet")
    config = harness.make_config(
        harness.make_model(folder / "model"),
        f"data.train_files={dataset}",
        f"data.val_files={dataset}",
        "data.train_batch_size=0",
        "data.gen_batch_size=1",
        "data.shuffle=False",
        "data.dataloader_num_workers=0",
        "data.return_raw_chat=True",
        "actor_rollout_ref.hybrid_engine=False",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        f"trainer.total_epochs={options['epochs']}",
        "trainer.device=cpu",
        *options.get("overrides", []),
        fully_async=True,
    )
    workers = [
        harness.make_worker(config, client_class=FullyAsyncLLMServerClient, **options.get("engine", {}))
        for _ in range(2)
    ]
    # The class behind the actor: a method of an actor in another process could not reach these workers.
    rollouter_class = FullyAsyncRollouter.__ray_metadata__.modified_class
    rollouter = rollouter_class(config, hf_tokenizer(config.actor_rollout_ref.model.path))
    rollouter._init_async_objects()
    rollouter.async_rollout_manager = harness.manager_of(config, workers, FullyAsyncAgentLoopManager)
    rollouter.llm_server_manager = Servers()
    await rollouter.set_max_required_samples()
    queue = MessageQueueClient(harness.Remote(MessageQueue.__ray_metadata__.modified_class(config, 100)))
    await rollouter.set_message_queue_client(queue)
    await rollouter._streaming_generation_main()
    outputs = []
    while (sample := await queue.get_sample()) is not None:
        sample = sample[0] if isinstance(sample, tuple) else sample
        if sample is None:
            break
        outputs.append(ray.cloudpickle.loads(sample))
    outputs.sort(key=lambda sample: sample.sample_id)
    (folder / "digest").write_text(harness.digest(*(sample.full_batch for sample in outputs)))
    (folder / "samples").write_text(json.dumps([sample.sample_id for sample in outputs]))


asyncio.run(main())
