"""The W&B run that this process belongs to, without importing wandb."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from otel_rollout.safety.log_once import warn_once

__all__ = ["run_of_process"]


def run_of_process(project_id: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return `entity/project/run` of the active run; None if there is none in this project.

    A run of another project is left out: Weave shows calls beside a run only if both are in one project.

    Args:
        project_id: The Weave project, as `entity/project`.
        environment: The environment; the process's own if None.
    """
    given = os.environ if environment is None else environment
    # A trainer that logs to W&B has imported wandb; importing it here would take seconds.
    run = getattr(sys.modules.get("wandb"), "run", None)
    entity, project = project_id.split("/")
    if run is not None:
        run_id, run_entity, run_project = run.id, run.entity or entity, run.project or project
    else:
        # Worker processes inherit the run from the trainer's environment.
        run_id = given.get("WANDB_RUN_ID")
        run_entity, run_project = given.get("WANDB_ENTITY") or entity, given.get("WANDB_PROJECT") or project
    if not run_id or "/" in run_id or ":" in run_id:
        return None
    if (run_entity, run_project) != (entity, project):
        run = f"{run_entity}/{run_project}/{run_id}"
        warn_once(
            f"W&B run {run} {project_id}",
            "the W&B run %s is in another project than Weave's %s, so calls are not associated with it; "
            "use the same entity and project for both",
            run,
            project_id,
        )
        return None
    return f"{project_id}/{run_id}"
