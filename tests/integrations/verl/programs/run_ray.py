"""One step of verl's agent loop in Ray actors, by the old manager or by the v1 trainer's; then `ray.shutdown()`."""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import harness
import ray

folder = Path(sys.argv[1])
options = json.loads(sys.argv[2])


def main() -> None:
    # Without the idle workers that Ray starts for each CPU beforehand: here no task runs in one.
    ray.init(num_cpus=8, include_dashboard=False, _system_config={"prestart_worker_first_driver": False})
    model = harness.make_model(folder / "model")
    late = [
        "reward.reward_model.enable=True",
        f"reward.reward_model.model_path={model}",
        "reward.reward_model.rollout.name=vllm",
        "reward.custom_reward_function.path=null",
    ]
    config = harness.make_config(model, *(late if options.get("late") else []), *options.get("overrides", []))
    client, rewards = harness.serve(config, serve_reward_model() if options.get("late") else None)
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


class RewardModel(BaseHTTPRequestHandler):
    """Answers as vLLM's server of a discriminative reward model does."""

    def do_POST(self):
        """Score a text."""
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        body = json.dumps({"data": [{"probs": [float(len(text) % 5)]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused):
        """Say nothing."""


def serve_reward_model() -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), RewardModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_port}"


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
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ

    tq = harness.start_transfer_queue()
    manager = AgentLoopManagerTQ.create(config, client, None, None if options.get("late") else rewards)
    harness.generate_v1(manager, options["prompts"], indices=options.get("indices"))
    rows = tq.kv_list("train")["train"]
    (folder / "status").write_text(json.dumps(rows))
    if options.get("late"):
        score_late(config, manager, rewards, {key: tag for key, tag in rows.items() if tag["status"] == "success"})


def score_late(config, manager, rewards, rows) -> None:
    """Have the v1 trainer compute rewards as with a colocated reward model, in another order than that of the rows."""
    import transfer_queue as tq
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
    from verl.utils import hf_tokenizer

    trainer = object.__new__(PPOTrainerSync)
    trainer.config, trainer.agent_loop_manager = config, manager
    trainer.tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
    trainer.reward_loop_manager = harness.reward_manager_of(config, rewards)
    keys = sorted(rows, reverse=True)
    trainer._compute_reward_colocate(tq.KVBatchMeta(partition_id="train", keys=keys, tags=[rows[key] for key in keys]))
    scores = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["rm_scores"])["rm_scores"]
    given = {key: float(score.sum()) for key, score in zip(keys, scores.unbind(), strict=True)}
    (folder / "rewards").write_text(json.dumps(given))


main()
