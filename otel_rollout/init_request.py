"""What `init` was asked for, to be compared with a second call."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from opentelemetry.trace import TracerProvider

from otel_rollout.errors import AlreadyInitializedError
from otel_rollout.settings import Settings

__all__ = ["InitRequest"]


@dataclass(frozen=True)
class InitRequest:
    """The arguments of `init`, with every setting resolved.

    Args:
        project_name: The project.
        experiment_name: What every trajectory is tagged with.
        backends: Names of exporters, and exporters.
        tracer_provider: The provider that was given, if one was.
        settings: The settings.
    """

    project_name: str
    experiment_name: str
    backends: list[Any]
    tracer_provider: TracerProvider | None
    settings: Settings

    def require_same(self, other: InitRequest) -> None:
        """Compare this request with a later one.

        Raises:
            AlreadyInitializedError: The later one asks for something else.
        """
        differences = []
        for mine, theirs in ((self, other), (self.settings, other.settings)):
            for field in fields(mine):
                before, now = getattr(mine, field.name), getattr(theirs, field.name)
                if field.name != "settings" and before != now:
                    differences.append(f"{field.name} was {before!r}, now {now!r}")
        if differences:
            raise AlreadyInitializedError(
                f"init was called before with other settings: {'; '.join(differences)}; call shutdown() first"
            )
