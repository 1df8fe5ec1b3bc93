"""The entry point for verl's plugin group: importing this module installs all hooks.

verl imports it in its own `__init__`, in the driver and in each Ray actor that unpickles an object of verl, before any
of the modules that trace. Hooks are independent: if one doesn't fit the installed verl, one warning names what
isn't traced.
"""

from __future__ import annotations

from typing import Final

from otel_rollout.hooks import Hook, Patch, install_hooks
from otel_rollout.hooks.verl import (
    agent_loop,
    config,
    exits,
    fates,
    generation,
    late_rewards,
    replaced_loops,
    rewards,
    rollout_trace,
    tools,
    uni_agent,
)
from otel_rollout.settings import Setting, read_bool

SWITCH: Final = Setting("OTEL_ROLLOUT_VERL", read_bool, True, "`off` leaves verl as it is")

HOOKS: Final[tuple[Hook | Patch, ...]] = (
    *config.HOOKS,
    *rollout_trace.HOOKS,
    *agent_loop.HOOKS,
    *generation.HOOKS,
    *tools.HOOKS,
    *rewards.HOOKS,
    *late_rewards.HOOKS,
    *fates.HOOKS,
    *replaced_loops.HOOKS,
    *exits.HOOKS,
)
"""All changes to verl and Ray, besides the functions that verl decorates itself (`rollout_trace.OPS`)."""


if SWITCH.value():
    install_hooks((*HOOKS, *uni_agent.HOOKS))
