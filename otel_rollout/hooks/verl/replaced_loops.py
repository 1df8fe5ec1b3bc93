"""Warn of a manager or a replay buffer in the place of verl's that no hook of ours sees."""

from __future__ import annotations

import sys
from typing import Any, Final

from otel_rollout.guard.log_once import warn_once
from otel_rollout.hooks import Call, Hook, after

_COVERED: Final = "uni_agent."
"""The package of managers with hooks of their own."""
_is_traced: Final[set[bool]] = set()
"""True is in it if the configuration of a trainer of this process has a backend for traces."""


def _note_configuration(call: Call) -> None:
    _is_traced.add(bool(call.arguments["config"].actor_rollout_ref.rollout.trace.get("backend")))


def _check_manager(call: Call, result: Any) -> None:
    if call.arguments["description"] != "AgentLoopManager" or True not in _is_traced:
        return
    agent_loop = sys.modules.get("verl.experimental.agent_loop.agent_loop")
    verls = getattr(agent_loop, "AgentLoopManager", None)
    if isinstance(verls, type) and isinstance(result, type) and issubclass(result, verls):
        return
    name = str(call.arguments["fqn"])
    if not name.startswith(_COVERED):
        warn_once(
            "verl agent_loop_manager_class",
            "verl: rollouts are not traced: agent_loop_manager_class=%s replaces verl's agent loops. Trajectories, "
            "turns, tool calls, rewards, advantages and fates are missing (docs/how-to/verl.md, What is not covered)",
            name,
        )


def _check_buffer(call: Call, result: Any) -> None:
    """Warn of a sampler that throws groups away without verl's `_clear_groups`."""
    module = sys.modules.get("verl.trainer.ppo.v1.replay_buffer")
    clear = getattr(getattr(module, "ReplayBuffer", None), "_clear_groups", None)
    if True not in _is_traced or getattr(type(result), "_clear_groups", None) is clear:
        return
    warn_once(
        "verl custom_sampler",
        "verl: custom_sampler=%s throws groups away by code of its own: their fates are not recorded "
        "(docs/how-to/verl.md, What is not covered)",
        type(result).__qualname__,
    )


_LOST: Final = "no warning comes if a class of your own replaces verl's agent loops"
_LOST_FATES: Final = "no warning says which fates are not recorded"

HOOKS: Final = (
    *(
        Hook(module, f"{trainer}.__init__", _LOST, _note_configuration, needs=("config",), while_off=True)
        for module, trainer in (
            ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer"),
            ("verl.trainer.ppo.ray_trainer", "RayPPOTrainer"),
            ("verl.experimental.one_step_off_policy.ray_trainer", "OneStepOffRayTrainer"),
        )
    ),
    Hook(
        "verl.utils.import_utils",
        "load_class_from_fqn",
        _LOST,
        after(_check_manager),
        needs=("fqn", "description"),
        while_off=True,
    ),
    Hook(
        "verl.trainer.ppo.v1.trainer_base",
        "PPOTrainer._build_replay_buffer",
        _LOST_FATES,
        after(_check_buffer),
        while_off=True,
    ),
)
