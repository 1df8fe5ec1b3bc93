"""Flush the actors' queues before Ray kills them: it gives them no time at the end."""

from __future__ import annotations

import atexit
import sys
from typing import Any, Final

from otel_rollout.hooks import Call, Hook, Patch
from otel_rollout.hooks.guard import call_library

ACTOR_NAMES: Final = ("agent_loop_worker_", "reward_loop_worker_")
"""Name prefixes of verl's actors that trace."""

SECONDS_TO_FLUSH: Final = 30.0


def flush_actors(ray: Any) -> None:
    """Flush all of verl's actors that trace, if Ray runs and this process is its driver."""
    message = "verl: the last traces of the actors may be lost: %s"
    call_library("verl exit", message, _flush_actors, ray)


def _flush_actors(ray: Any) -> None:
    if not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.SCRIPT_MODE:
        return
    names = [name for name in ray.util.list_named_actors() if name.startswith(ACTOR_NAMES)]
    flushed = [ray.get_actor(name).__ray_call__.remote(_flush) for name in names]
    if flushed:
        ray.wait(flushed, num_returns=len(flushed), timeout=SECONDS_TO_FLUSH)


def _flush(actor: Any) -> bool:
    from otel_rollout import flush

    return flush(SECONDS_TO_FLUSH)


def _observe_shutdown(call: Call) -> None:
    flush_actors(sys.modules["ray"])


def _flush_at_exit(ray: Any) -> None:
    # Ray registered its own handler when it was imported, so it runs after this one.
    atexit.unregister(flush_actors)
    atexit.register(flush_actors, ray)


_LOST: Final = "the last step's traces may be lost at the end"

HOOKS: Final = (
    Hook("ray", "shutdown", _LOST, _observe_shutdown, while_off=True),
    Patch("ray", "is_initialized", _LOST, _flush_at_exit),
)
