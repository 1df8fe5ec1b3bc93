"""What is queued in the actors reaches the backends before Ray kills them: it gives them no time at the end."""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Any, Final

from otel_rollout.integrations.verl.hook import Call, Hook, Observer, Patch

__all__ = ["HOOKS", "flush_actors"]

_logger: Final = logging.getLogger("otel_rollout")

ACTOR_NAMES: Final = ("agent_loop_worker_", "reward_loop_worker_")
"""How verl names the actors in which we trace."""

SECONDS_TO_FLUSH: Final = 30.0


class _Shutdown(Observer):
    """`ray.shutdown()`, which waits for the actors' traces."""

    def __init__(self, call: Call) -> None:
        flush_actors(sys.modules["ray"])


def flush_at_exit(ray: Any) -> None:
    """Have the end of the driver wait for the actors' traces.

    Args:
        ray: The module. Its own handler was registered when it was imported, so it runs after this one.
    """
    atexit.unregister(flush_actors)
    atexit.register(flush_actors, ray)


def flush_actors(ray: Any) -> None:
    """Flush in every actor of verl that traces, as long as Ray runs and this is its driver.

    Args:
        ray: The module.
    """
    try:
        if not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.SCRIPT_MODE:
            return
        names = [name for name in ray.util.list_named_actors() if name.startswith(ACTOR_NAMES)]
        flushed = [ray.get_actor(name).__ray_call__.remote(_flush) for name in names]
        if flushed:
            ray.wait(flushed, num_returns=len(flushed), timeout=SECONDS_TO_FLUSH)
    except Exception as error:  # noqa: BLE001, RUF100 - the program ends, in whatever state its actors are
        _logger.warning("verl: the last traces of the actors may be lost: %s", error)


def _flush(actor: Any) -> bool:
    from otel_rollout import flush

    return flush(SECONDS_TO_FLUSH)


_LOST: Final = "the last step's traces may be lost at the end"

HOOKS: Final = (
    Hook("ray", "shutdown", _LOST, _Shutdown, while_off=True),
    Patch("ray", "is_initialized", _LOST, flush_at_exit),
)
