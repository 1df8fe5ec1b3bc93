"""The entry point of verl's plugin group: importing this module hooks everything up.

verl imports it in its own `__init__`, in the driver and in every Ray actor that unpickles something of verl, before any
of the modules that trace. Each hook stands on its own: where one doesn't fit the installed verl, one warning says what
is not traced, and nothing is raised.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from otel_rollout.integrations.verl import (
    agent_loop,
    config,
    exits,
    generation,
    late_rewards,
    ops,
    patching,
    rewards,
    rollout,
    tool_parsing,
    tools,
)
from otel_rollout.integrations.verl.hook import Hook, Patch
from otel_rollout.integrations.verl.import_hook import after_import

__all__ = ["HOOKS", "VARIABLE", "install"]

VARIABLE: Final = "OTEL_ROLLOUT_VERL"
"""`off` leaves verl as it is."""

HOOKS: Final[tuple[Hook | Patch, ...]] = (
    *config.HOOKS,
    *rollout.HOOKS,
    *ops.HOOKS,
    *agent_loop.HOOKS,
    *generation.HOOKS,
    *tools.HOOKS,
    *tool_parsing.HOOKS,
    *rewards.HOOKS,
    *late_rewards.HOOKS,
    *exits.HOOKS,
)
"""All that is changed in verl and Ray, beside what verl decorates itself (`ops.OPS`)."""


def install() -> None:
    """Hook into verl's modules, each as soon as it has been imported; again does nothing."""
    for hook in HOOKS:
        after_import(hook.module, partial(patching.install, hook))


if os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "false", "no"):
    install()
