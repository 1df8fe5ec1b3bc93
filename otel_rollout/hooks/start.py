"""Start tracing in a trainer's process, with the names that the trainer's configuration has."""

from __future__ import annotations

from typing import Any

from otel_rollout import config
from otel_rollout.errors import AlreadyInitializedError
from otel_rollout.guard.log_once import warn_once
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record import runtime


def start_tracing(
    library: str, project_name: str | None = None, experiment_name: str | None = None, **settings: Any
) -> None:
    """Call `otel_rollout.init` for a trainer; where `init` was called before, that call holds.

    It never raises: a wrong setting is logged once, and the trainer goes on untraced.

    Args:
        library: The trainer's name, for the log.
        project_name: The project; `library` if empty.
        experiment_name: The experiment, such as the name of the run; `default` if empty.
        **settings: Other arguments of `otel_rollout.init`; without `backend=`, `OTEL_TRACES_EXPORTER` is the backend.
    """
    if runtime.pipeline is not None:
        return
    try:
        config.init(project_name or library, experiment_name or "default", **settings)
    except AlreadyInitializedError:
        # The program has switched tracing off.
        return
    except BaseException as error:
        if is_programs(error):
            raise
        warn_once(f"{library} {error}", "%s: nothing is traced: %s", library, error)
