"""Some batches through verl's agent loop in this process; the digest of its results goes to the folder given."""

import asyncio
import collections
import json
import sys
import threading
from pathlib import Path

import harness

import otel_rollout

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])


async def main() -> None:
    # It runs the manager in a thread with a loop of its own, where the workers of this process can't follow.
    import verl.utils.ray_utils

    verl.utils.ray_utils.auto_await = lambda function: function
    threads = watch_tokenizers() if options.get("watch_tokenizers") else None
    model = harness.make_model(folder / "model")
    if options.get("untraced_first"):
        (folder / "untraced").write_text(harness.digest(*await outputs(harness.make_config(model))))
    (folder / "digest").write_text(
        harness.digest(*await outputs(harness.make_config(model, *options.get("overrides", []))))
    )
    if threads is not None:
        assert otel_rollout.flush(60)
        (folder / "threads").write_text(json.dumps({str(key): sorted(names) for key, names in threads.items()}))


async def outputs(config) -> list:
    """Return what training gets of each batch."""
    client_class = None
    if options.get("fully_async"):
        from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient as client_class
    workers = [
        harness.make_worker(config, client_class=client_class, **options.get("engine", {}))
        for _ in range(options.get("workers", 1))
    ]
    if options.get("bad_tokenizer"):
        for worker in workers:
            vars(worker)["_otel_rollout_tokenizer"].decode = lambda ids, **kwargs: 1 / 0
    manager = harness.manager_of(config, workers)
    found = []
    for given in options["batches"]:
        batch = dict(given)
        is_padded = batch.pop("padded", False)
        data = harness.make_batch(batch.pop("prompts"), batch.pop("n"), **batch)
        if is_padded:
            # As the trainer does before it validates.
            from verl.protocol import pad_dataproto_to_divisor

            data, _ = pad_dataproto_to_divisor(data, len(workers))
        found.append(
            await (manager.generate_sequences(data) if len(workers) > 1 else workers[0].generate_sequences(data))
        )
        assert "otel_rollout_rows" not in data.meta_info
    return found


def watch_tokenizers() -> dict:
    """Return the names of the threads that decode with each tokenizer, as they come."""
    threads = collections.defaultdict(set)
    tokenizer_class = harness.PreTrainedTokenizerFast
    original = tokenizer_class._decode

    def _decode(self, *args, **kwargs):
        threads[id(self)].add(threading.current_thread().name)
        return original(self, *args, **kwargs)

    tokenizer_class._decode = _decode
    return threads


asyncio.run(main())
