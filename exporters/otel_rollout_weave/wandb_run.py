"""The W&B run that this process belongs to, without importing wandb."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

__all__ = ["run_of_process"]

_logger = logging.getLogger(__name__)


def run_of_process(project_id: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return `entity/project/run` of the run that is active here; None where there is none in this project.

    A run of another project is left out: Weave shows calls beside a run only where both share the project.

    Args:
        project_id: The Weave project, as `entity/project`.
        environment: The environment; the process's own where None.
    """
    given = os.environ if environment is None else environment
    # A trainer that logs to W&B has imported wandb; importing it here would take seconds.
    run = getattr(sys.modules.get("wandb"), "run", None)
    entity, project = project_id.split("/")
    if run is not None:
        run_id, run_entity, run_project = run.id, run.entity or entity, run.project or project
    else:
        # Worker processes know the run from the environment that the trainer hands on.
        run_id = given.get("WANDB_RUN_ID")
        run_entity, run_project = given.get("WANDB_ENTITY") or entity, given.get("WANDB_PROJECT") or project
    if not run_id or "/" in run_id or ":" in run_id:
        return None
    if (run_entity, run_project) != (entity, project):
        _warn_of_other_project(f"{run_entity}/{run_project}/{run_id}", project_id)
        return None
    return f"{project_id}/{run_id}"


_warned: set[tuple[str, str]] = set()


def _warn_of_other_project(run: str, project_id: str) -> None:
    if (run, project_id) not in _warned:
        _warned.add((run, project_id))
        _logger.warning(
            "the W&B run %s is in another project than Weave's %s, so calls are not associated with it; "
            "use the same entity and project for both",
            run,
            project_id,
        )
