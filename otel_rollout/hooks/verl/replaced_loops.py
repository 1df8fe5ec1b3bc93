"""Warn if `agent_loop_manager_class` puts a manager in the place of verl's, whose rollouts no hook of ours sees."""

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


_LOST: Final = "no warning comes if a class of your own replaces verl's agent loops"

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
)
