"""verl's own agent loop in one process, with only the engine and the tokenizer's vocabulary faked."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import os
import uuid
from pathlib import Path

import numpy as np
import verl
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

FOLDER = Path(__file__).parent


def make_model(folder: Path) -> Path:
    """Write a model folder whose tokenizer knows every byte, and no weights."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    inner = Tokenizer(models.BPE({token: number for number, token in enumerate([*alphabet, *special])}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special[:1]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 259,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def make_config(model: Path, *overrides: str, fully_async: bool = False):
    """Return verl's whole configuration for this model."""
    folder = "experimental/fully_async_policy/config" if fully_async else "trainer/config"
    with initialize_config_dir(config_dir=str(Path(verl.__file__).parent / folder), version_base=None):
        return compose(
            config_name="fully_async_ppo_trainer" if fully_async else "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.mode=async",
                "actor_rollout_ref.rollout.prompt_length=1024",
                "actor_rollout_ref.rollout.response_length=1024",
                "actor_rollout_ref.rollout.n=2",
                "actor_rollout_ref.rollout.agent.num_workers=2",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                "actor_rollout_ref.rollout.multi_turn.enable=True",
                "actor_rollout_ref.rollout.multi_turn.format=hermes",
                f"actor_rollout_ref.rollout.multi_turn.function_tool_path={FOLDER / 'function_tools.py'}",
                f"actor_rollout_ref.rollout.multi_turn.tool_config_path={FOLDER / 'tools.yaml'}",
                "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
                f"reward.custom_reward_function.path={FOLDER / 'reward.py'}",
                "trainer.project_name=verl-project",
                "trainer.experiment_name=exp-1",
                *overrides,
            ],
        )


class Reference:
    """A stand-in for a Ray object reference, over a future of this process's event loop."""

    def __init__(self, result):
        self._result = asyncio.ensure_future(result)

    def __await__(self):
        return self._result.__await__()

    def future(self):
        """Return the same as a future for threads, as Ray does."""
        done = concurrent.futures.Future()

        def copy(result):
            if result.exception() is None:
                done.set_result(result.result())
            else:
                done.set_exception(result.exception())

        self._result.add_done_callback(copy)
        return done


class Remote:
    """A stand-in for a Ray actor handle, over an object of this process."""

    def __init__(self, target):
        self._target = target

    @property
    def __ray_call__(self):
        """Runs a function with the object, as Ray does in an actor."""
        return self._method(lambda function, *args: function(self._target, *args))

    def __getattr__(self, name):
        return self._method(getattr(self._target, name))

    @staticmethod
    def _method(method):
        class Method:
            @staticmethod
            def remote(*args, **kwargs):
                result = method(*args, **kwargs)
                if asyncio.iscoroutine(result):
                    return Reference(result)
                future = asyncio.get_running_loop().create_future()
                future.set_result(result)
                return Reference(future)

        return Method()


UNREADABLE = "{not json, and no end"
TOOL_CALLS: dict[str, list] = {
    "plan": [
        ("add", {"a": 1, "b": 2}),
        ("calculator", {"expression": "2*3"}),
    ],
    "broken": [
        ("fail", {"why": "no luck"}),
        ("nothing", {}),
        ("add", "{not json"),
        ("calculator", {"expression": "x"}),
    ],
    "garbled": [("add", UNREADABLE), ("add", {"a": 1, "b": 2})],
    "long": [],
    "stall": [("fail", {"why": "no answer in 0"})],
    "die": [("fail", {"why": "the process ends"})],
}
ANSWERS = {
    "vary": "After some thought, the answer is {}.",
    "brief": "It is {}.",
    "hopeless": "I have thought about it, and I can't tell.",
}
"""Answers to prompts by their first word; a rollout's own digits are put into the braces."""


class Engine:
    """Answers as a model would that was asked for a list of tool calls by the prompt's first word."""

    def __init__(self, tokenizer, *, aborts: int = 0, delay: float = 0.0, version: int = 4):
        self.tokenizer = tokenizer
        self.aborts = aborts
        self.delay = delay
        self.version = version
        self.requests = []

    async def generate(self, request_id, prompt_ids, sampling_params, image_data=None, video_data=None, **kwargs):
        """Return the next turn of the conversation, or its beginning where it is to be aborted."""
        from verl.workers.rollout.replica import TokenOutput

        self.requests.append(request_id)
        await asyncio.sleep(self.delay)
        text = self.tokenizer.decode(prompt_ids)
        user = text.split("<|im_start|>user\n", 1)[1].split("<|im_end|>", 1)[0]
        turn = text.count("<|im_start|>tool\n")
        half_done = not text.endswith("<|im_start|>assistant\n")
        calls = TOOL_CALLS.get(user.split()[0], [])
        if turn < len(calls):
            name, arguments = calls[turn]
            call = json.dumps({"name": name, "arguments": arguments})
            if arguments == UNREADABLE:
                call = call[:-1]
            answer = f"I call {name}. <tool_call>\n{call}\n</tool_call>"
        elif user.startswith("long"):
            answer = "x" * 4000
        elif user.split()[0] in ANSWERS:
            answer = ANSWERS[user.split()[0]].format(hashlib.sha256(f"{user} {request_id}".encode()).hexdigest()[:8])
        else:
            answer = f"The answer to {user!r} is {hashlib.sha256(user.encode()).hexdigest()[:8]}."
        ids = [*self.tokenizer.encode(answer, add_special_tokens=False), self.tokenizer.eos_token_id]
        stop = "completed"
        if half_done:
            ids = ids[len(self.tokenizer.encode(text.rsplit("<|im_start|>assistant\n", 1)[1])) :]
        elif self.aborts:
            self.aborts -= 1
            self.version += 1
            ids, stop = ids[:5], "aborted"
        ids = ids[: sampling_params.get("max_tokens") or 1024]
        extra = {"global_steps": self.version - (stop == "aborted"), "num_cached_tokens": 7}
        return TokenOutput(
            token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason=stop, num_preempted=0, extra_fields=extra
        )


def load_balancer_class():
    """Return verl's load balancer, wherever this version has it."""
    try:
        from verl.workers.rollout.router import GlobalRequestLoadBalancer
    except ImportError:
        from verl.workers.rollout.llm_server import GlobalRequestLoadBalancer
    actor = getattr(GlobalRequestLoadBalancer, "__ray_metadata__", None)
    return GlobalRequestLoadBalancer if actor is None else actor.modified_class


def make_worker(config, *, client_class=None, is_reward_late=False, **engine):
    """Return verl's worker with its real client, load balancer and reward worker, over fake engines."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.utils import hf_tokenizer
    from verl.workers.rollout.llm_server import LLMServerClient

    tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
    servers = {f"server-{number}": Remote(Engine(tokenizer, **engine)) for number in range(2)}
    client = (client_class or LLMServerClient)(
        config=config, load_balancer_handle=Remote(load_balancer_class()(servers))
    )
    return AgentLoopWorker(config, client, None, None if is_reward_late else [Remote(RewardLoopWorker(config))])


def make_batch(prompts: list[str], n: int, *, step: int | None = 3, validate: bool = False, indices=None, uids=True):
    """Return a batch as verl's trainer makes it: each prompt n times."""
    from verl.protocol import DataProto

    rows = len(prompts)
    columns = {
        "raw_prompt": object_array([[{"role": "user", "content": prompt}] for prompt in prompts]),
        "data_source": np.array(["arithmetic"] * rows, dtype=object),
        "reward_model": object_array([{"style": "rule", "ground_truth": "7"}] * rows),
        "extra_info": object_array([{}] * rows),
        "index": np.array(list(range(10, 10 + rows)) if indices is None else indices, dtype=object),
    }
    if uids:
        given = [f"uid-{number}" for number in range(rows)] if uids is True else uids
        columns["uid"] = np.array(given, dtype=object)
    batch = DataProto.from_dict(tensors={"dummy_tensor": __import__("torch").zeros(rows, 1)}, non_tensors=columns)
    batch = batch.repeat(repeat_times=n, interleave=True)
    batch.meta_info = {"validate": validate} if step is None else {"validate": validate, "global_steps": step}
    return batch


def object_array(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def digest(*outputs) -> str:
    """Return one hash of everything that training gets from these outputs."""
    hasher = hashlib.sha256()
    for output in outputs:
        for key in sorted(output.batch.keys()):
            hasher.update(key.encode() + output.batch[key].numpy().tobytes())
        for key in sorted(output.non_tensor_batch):
            hasher.update(f"{key}={output.non_tensor_batch[key].tolist()}".encode())
    return hasher.hexdigest()


def manager_of(config, workers, manager_class=None):
    """Return verl's manager over workers of this process."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager

    manager = object.__new__(manager_class or AgentLoopManager)
    manager.config, manager.rollout_config = config, config.actor_rollout_ref.rollout
    manager.agent_loop_workers = [Remote(worker) for worker in workers]
    manager.reward_loop_worker_handles = None
    return manager


def reward_manager_of(config, workers):
    """Return verl's manager of reward workers, over workers that are there, and no reward model's server."""
    from verl.experimental.reward_loop.reward_loop import RewardLoopManager
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    manager = object.__new__(RewardLoopManager)
    manager.config, manager.reward_model_manager = config, None
    manager.reward_loop_workers, manager.reward_manager_cls = workers, resolve_reward_manager_cls(config)
    return manager


class OwnEngine(Engine):
    """An engine that makes its tokenizer itself, in an actor."""

    def __init__(self, model, **options):
        from verl.utils import hf_tokenizer

        super().__init__(hf_tokenizer(model), **options)


def serve(config, reward_model: str | None = None):
    """Return verl's client and its reward workers; engine, load balancer and rewards are Ray actors."""
    import ray
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    model = config.actor_rollout_ref.model.path
    servers = {"server-0": ray.remote(OwnEngine).options(num_cpus=0).remote(model, version=4)}
    balancer = ray.remote(GlobalRequestLoadBalancer).options(num_cpus=0).remote(servers)
    reward_class = ray.remote(RewardLoopWorker).options(name="reward_loop_worker_0", num_cpus=0)
    client = LLMServerClient(config=config, load_balancer_handle=balancer)
    return client, [reward_class.remote(config, reward_model)]


class Inside(Remote):
    """A stand-in for a Ray actor handle, over an object that each process makes for itself when it first calls it."""

    def __init__(self, make, *args):
        super().__init__(None)
        self._made_by = make, args

    def __reduce__(self):
        """Take along how the object is made, not the object."""
        return Inside, (self._made_by[0], *self._made_by[1])

    def __getattr__(self, name):
        if self._target is None:
            make, args = self._made_by
            self._target = make(*args)
        return super().__getattr__(name)


def make_balancer(model):
    """Return verl's load balancer over one engine, both in this process."""
    return load_balancer_class()({"server-0": Remote(OwnEngine(model, version=4))})


def serve_inside(config):
    """Return what `serve` does, with engine, load balancer and rewards inside each agent loop's own actor."""
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.workers.rollout.llm_server import LLMServerClient

    balancer = Inside(make_balancer, config.actor_rollout_ref.model.path)
    return LLMServerClient(config=config, load_balancer_handle=balancer), [Inside(RewardLoopWorker, config)]


def start_transfer_queue():
    """Start verl's TransferQueue with one storage unit, and return its module."""
    import transfer_queue as tq
    from omegaconf import OmegaConf

    storage = {"num_data_storage_units": 1, "total_storage_size": 1000}
    tq.init(OmegaConf.create({"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": storage}}))
    return tq


def generate_v1(manager, prompts: list[str], *, step: int = 6, indices=None) -> dict[str, str]:
    """Have the v1 trainer's manager roll prompts out into the TransferQueue; return the prompt of each uid."""
    import transfer_queue as tq
    from verl.utils import tensordict_utils as tu

    data = make_batch(prompts, 1, step=step, indices=indices)
    columns = dict(data.non_tensor_batch)
    columns["uid"] = object_array([str(uuid.uuid4()) for _ in range(len(data))])
    uids = dict(zip(columns["uid"], prompts, strict=True))
    batch = tu.get_tensordict({"dummy_tensor": data.batch["dummy_tensor"], **columns})
    tu.assign_non_tensor_data(batch, "global_steps", step)
    tags = {uid: {"is_prompt": True, "global_steps": step, "status": "pending"} for uid in uids}
    tq.kv_batch_put(keys=list(tags), partition_id="train", tags=list(tags.values()))
    manager.generate_sequences(batch)

    async def wait() -> None:
        while True:
            tags = tq.kv_list("train").get("train", {})
            if all(tags.get(uid, {}).get("status") in ("finished", "failure") for uid in uids):
                return
            await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(wait(), 120))
    return uids


def facts_of(row) -> dict:
    """Return a trained row's facts, from its tensors token by token."""
    kept = [number for number, is_kept in enumerate(row["response_mask"].tolist()) if is_kept]
    mean = {name: sum(float(row[name][number]) for number in kept) / len(kept) for name in row}
    gaps = [abs(float(row["old_log_probs"][number]) - float(row["rollout_log_probs"][number])) for number in kept]
    found = {"advantage": mean["advantages"], "log_prob_gap": sum(gaps) / len(gaps), "log_prob_gap_max": max(gaps)}
    return found | {"entropy": mean["entropy"], "importance_weight": mean["rollout_is_weights"], "fate": "trained"}


os.environ.setdefault("RAY_AUTH_MODE", "disabled")
