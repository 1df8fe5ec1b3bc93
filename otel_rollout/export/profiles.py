"""Attribute profiles: what one backend wants beside the standard attributes, on a plain OTLP route to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack, destination_of, refused_here
from otel_rollout.export.outcome import Outcome
from otel_rollout.processing.shrink import replace_attributes

__all__ = ["PROFILES", "ProfiledSpanExporter", "weave_profile"]

_PREFIX: Final = "rollout."
_WEAVE_NAMES: Final = {semconv.INPUT_VALUE: "inputs", semconv.OUTPUT_VALUE: "outputs"}
# Beside `inputs`, Weave would take `input`, which it makes of `input.mime_type`, for the call's inputs.
_WEAVE_LEFT_OUT: Final = frozenset({semconv.INPUT_MIME_TYPE, semconv.OUTPUT_MIME_TYPE})


def weave_profile(span: ReadableSpan) -> ReadableSpan:
    """Return a span as Weave's OTLP endpoint reads it: payload as inputs and output, tags as filterable attributes.

    Source: https://docs.wandb.ai/weave/guides/tracking/otel

    Args:
        span: A finished span.
    """
    attributes: dict[str, Any] = {}
    for key, value in (span.attributes or {}).items():
        if key in _WEAVE_LEFT_OUT:
            continue
        attributes[_WEAVE_NAMES.get(key, key)] = value
        if key.startswith(_PREFIX):
            attributes[f"wandb.attributes.{key[len(_PREFIX) :]}"] = value
    # Without an attribute that it knows, Weave nests all of them, and no filter finds the tags.
    attributes["weave.span.kind"] = attributes.get(semconv.SPAN_KIND, "CHAIN")
    step = attributes.get(semconv.STEP)
    if type(step) is int and step >= 0:
        attributes["wandb.wb_run_step"] = step
    if span.parent is None:
        attributes["wandb.display_name"] = _display_name(span.name, attributes)
    return replace_attributes(span, attributes)


def _display_name(name: str, attributes: Mapping[str, Any]) -> str:
    parts = [("step", semconv.STEP), ("sample", semconv.SAMPLE_INDEX), ("rollout", semconv.ROLLOUT_N)]
    return " · ".join([name, *(f"{label} {attributes[key]}" for label, key in parts if key in attributes)])


PROFILES: Final[Mapping[str, Callable[[ReadableSpan], ReadableSpan]]] = {"weave": weave_profile}
"""The profiles by the names that `otlp_profile` takes."""


class ProfiledSpanExporter(OutcomeSpanExporter):
    """Applies a profile to each span on its way to another exporter.

    Args:
        exporter: Where the spans go.
        profile: Makes the span that this exporter gets.
    """

    def __init__(self, exporter: OutcomeSpanExporter, profile: Callable[[ReadableSpan], ReadableSpan]) -> None:
        self._exporter: Any = exporter
        self._profile = profile
        self.side_work = exporter.side_work
        self.max_batch_bytes = exporter.max_batch_bytes

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`, each in the form that the profile gives it."""
        try:
            profiled = [self._profile(span) for span in spans]
        except Exception as error:  # of whatever a span holds
            return refused_here(error)
        outcome: Outcome = self._exporter.send(profiled)
        return outcome

    @property
    def destination(self) -> str | None:
        """The exporter's destination."""
        return destination_of(self._exporter)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return the exporter's lines of text on how to find trajectories."""
        lines: list[str] = self._exporter.where_to_look(project_name, experiment_name)
        return lines

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Ask the exporter's backend which of `spans` it has."""
        answer: ReadBack = self._exporter.read_back(spans)
        return answer

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def after_fork(self) -> None:
        """Tell the exporter that it is in a forked child."""
        self._exporter.after_fork()
