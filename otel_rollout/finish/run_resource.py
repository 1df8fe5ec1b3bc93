"""The run in the resource of spans that another provider made: the project given to `init`, and the run's id."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.finish.span_copies import copy_span

__all__ = ["RunResource", "is_unnamed"]

_UNNAMED: Final = "unknown_service"
"""The start of the SDK's default for `service.name`."""
_OF_THE_RUN: Final = (semconv.PROJECT_NAME, semconv.RUN_ID, semconv.OPENINFERENCE_PROJECT)


class RunResource:
    """Names the run in resources that don't, and keeps everything else of them.

    Args:
        resource: The resource of the run's own spans.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        # A process has one resource in general, and equal resources in a batch should be one object.
        self._last: tuple[Resource, Resource] | None = None

    def named(self, span: ReadableSpan) -> ReadableSpan:
        """Return a copy of a span with the run in its resource; `span` itself if the run is there."""
        theirs = span.resource
        if theirs is self.resource:
            return span
        last = self._last
        if last is None or last[0] is not theirs:
            self._last = last = theirs, self._merge(theirs)
        return copy_span(span, dict(span.attributes or {}), resource=last[1])

    def _merge(self, theirs: Resource) -> Resource:
        ours = self.resource.attributes
        replaced = {*_OF_THE_RUN, *([semconv.SERVICE_NAME] if is_unnamed(theirs) else [])}
        attributes: dict[str, Any] = {
            key: value for key, value in ours.items() if key in replaced or key not in theirs.attributes
        }
        return theirs.merge(Resource(attributes))


def is_unnamed(resource: Resource) -> bool:
    """Return True if nobody has named the resource's service."""
    return str(resource.attributes.get(semconv.SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED)
