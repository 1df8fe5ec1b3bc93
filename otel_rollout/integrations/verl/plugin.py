"""The entry point of verl's plugin group: importing this module hooks everything up.

verl imports it in its own `__init__`, in the driver and in every Ray actor that unpickles something of verl, before any
of the modules that trace. Each hook stands on its own: where one doesn't fit the installed verl, one warning says what
is not traced, and nothing is raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from otel_rollout.integrations.verl import (
    agent_loop,
    config,
    exits,
    generation,
    late_rewards,
    ops,
    rewards,
    rollout,
    tool_parsing,
    tools,
)
from otel_rollout.integrations.verl.import_hook import after_import
from otel_rollout.integrations.verl.patching import replace, report

__all__ = ["VARIABLE", "install"]

VARIABLE: Final = "OTEL_ROLLOUT_VERL"
"""`off` leaves verl as it is."""


def install() -> None:
    """Hook into verl's modules, each as soon as it has been imported; again does nothing."""
    for module, what, hook in _HOOKS:
        after_import(module, _guarded(what, hook))


def _guarded(what: str, hook: Callable[[Any], None]) -> Callable[[Any], None]:
    def run(module: Any) -> None:
        try:
            hook(module)
        except Exception as error:  # noqa: BLE001, RUF100 - verl goes on as it is
            report(what, error)

    return run


def _hook_trace(module: Any) -> None:
    for name in ("rollout_trace_op", "rollout_trace_attr", "RolloutTraceConfig"):
        getattr(module, name)
    module.rollout_trace_op = ops.rollout_trace_op
    module.rollout_trace_attr = rollout.rollout_trace_attr
    module.RolloutTraceConfig = config.RolloutTraceConfig


def _hook_run(module: Any) -> None:
    worker = module.AgentLoopWorker
    setattr(worker, agent_loop.TRUST_METHOD, agent_loop.trust_prompts)
    setattr(worker, late_rewards.TAKE_METHOD, late_rewards.take_carriers)
    replace(worker, "_run_agent_loop", agent_loop.trace_run, "sampling_params", "trajectory")


def _hook_worker(module: Any) -> None:
    replace(module.AgentLoopWorker, "__init__", agent_loop.trace_worker_init)
    replace(module.AgentLoopWorker, "generate_sequences", agent_loop.trace_worker_generate, "batch")


def _hook_score(module: Any) -> None:
    replace(module.AgentLoopWorker, "_compute_score", rewards.trace_compute_score, "outputs", "kwargs")


def _hook_manager(module: Any) -> None:
    replace(module.AgentLoopManager, "generate_sequences", agent_loop.trace_manager_generate, "prompts")


def _hook_queue_manager(module: Any) -> None:
    replace(module.AgentLoopManagerTQ, "generate_sequences", agent_loop.trace_queue_manager_generate, "prompts")


def _hook_client(module: Any) -> None:
    replace(module.LLMServerClient, "_acquire_server", _noting_server)


def _hook_engine_request(module: Any) -> None:
    replace(module.LLMServerClient, "_vllm_request_id", _noting_engine_request)


def _noting_server(original: Callable[..., Any]) -> Callable[..., Any]:
    async def _acquire_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        acquired = await original(self, *args, **kwargs)
        generation.note_server(acquired[0])
        return acquired

    return _acquire_server


def _noting_engine_request(original: Callable[..., Any]) -> Callable[..., Any]:
    def _vllm_request_id(self: Any, *args: Any, **kwargs: Any) -> Any:
        request_id = original(self, *args, **kwargs)
        generation.note_engine_request(request_id)
        return request_id

    return _vllm_request_id


def _hook_base_tool(module: Any) -> None:
    tools.trace_subclasses(module.BaseTool)


def _hook_function_tool(module: Any) -> None:
    replace(module.FunctionTool, "call", tools.trace_call)


def _hook_tool_parser(module: Any) -> None:
    module.logger.addFilter(tool_parsing.note_failure)


def _hook_tool_loop(module: Any) -> None:
    replace(module.ToolAgentLoop, "_call_tool", tools.trace_call_tool)
    module.AgentData.__rollout_payload__ = tools.agent_data_payload


def _hook_reward_worker(module: Any) -> None:
    replace(module.RewardLoopWorker, "__init__", rewards.trace_reward_init)
    replace(module.RewardLoopWorker, "compute_score", rewards.trace_reward_score, "data")


def _hook_reward_manager(module: Any) -> None:
    replace(module.RewardLoopManager, "compute_rm_score", late_rewards.trace_compute_rm_score, "data")


def _hook_trainer(module: Any) -> None:
    replace(module.PPOTrainer, "_compute_reward_colocate", late_rewards.trace_compute_reward_colocate, "batch")


_AGENT_LOOP: Final = "verl.experimental.agent_loop.agent_loop"

_HOOKS: Final[tuple[tuple[str, str, Callable[[Any], None]], ...]] = (
    ("verl.utils.rollout_trace", "nothing is traced", _hook_trace),
    (_AGENT_LOOP, "trajectories have verl's own numbers, and those of the v1 trainer are not traced", _hook_run),
    (_AGENT_LOOP, "trajectories are numbered and sampled by verl, and the root has no final text", _hook_worker),
    (_AGENT_LOOP, "rewards and what else is known of a trajectory at its end are not recorded", _hook_score),
    (_AGENT_LOOP, "groups that are split over workers are numbered by worker", _hook_manager),
    ("verl.trainer.ppo.v1.agent_loop_tq", "rollout.sample_index is the uid", _hook_queue_manager),
    ("verl.workers.rollout.llm_server", "servers are not recorded", _hook_client),
    ("verl.workers.rollout.llm_server", "engine request ids are not recorded", _hook_engine_request),
    ("verl.tools.base_tool", "tools that override execute are only traced as calls of the agent loop", _hook_base_tool),
    ("verl.tools.function_tool", "exceptions of function tools are recorded without a traceback", _hook_function_tool),
    ("verl.experimental.agent_loop.tool_agent_loop", "tool calls are not traced", _hook_tool_loop),
    (
        "verl.experimental.agent_loop.tool_parser",
        "calls that can't be read are not recorded",
        _hook_tool_parser,
    ),
    ("verl.experimental.reward_loop.reward_loop", "the reward process is not linked", _hook_reward_worker),
    ("verl.experimental.reward_loop.reward_loop", "rewards that come late are not traced", _hook_reward_manager),
    ("verl.trainer.ppo.v1.trainer_base", "the v1 trainer's rewards that come late are not traced", _hook_trainer),
    ("ray", "the last step's traces may be lost at the end", exits.flush_before_shutdown),
)
"""Which module, what is lost where the hook doesn't fit, and the hook."""


if os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "false", "no"):
    install()
