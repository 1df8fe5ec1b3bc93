"""Explain how to find trajectories in an OTLP backend: OTLP itself only writes."""

from __future__ import annotations

from typing import Final

from otel_rollout.export.http import shown_url

__all__ = ["NO_WAY", "where_to_look"]

NO_WAY: Final = "OTLP has no way to ask a receiver what it has; for a Phoenix, the backend `phoenix` has one"


def where_to_look(endpoint: str, project_name: str) -> list[str]:
    """Return lines of text on how to find trajectories.

    Args:
        endpoint: The endpoint that they were sent to.
        project_name: Their project.
    """
    return [
        f"The trajectories went to {shown_url(endpoint)} as project {project_name}.",
        "The root spans carry rollout.step, rollout.sample_index, rollout.reward and session.id, the same for all",
        "rollouts of one prompt.",
    ]
