"""A span of something that is done, with the times that the program gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace import Span, StatusCode

from otel_rollout import semconv
from otel_rollout.guard import clock
from otel_rollout.guard.log_once import warn_once
from otel_rollout.record.attribute_values import read_attribute, read_tag, read_time
from otel_rollout.record.call import attributes_of
from otel_rollout.record.llm import describe_request, describe_response
from otel_rollout.record.snapshot import take_snapshot
from otel_rollout.text.sanitize import replace_surrogates

if TYPE_CHECKING:
    from otel_rollout.record.recording_span import RolloutSpan
    from otel_rollout.record.runtime import RunningPipeline
    from otel_rollout.record.trajectory_state import TrajectoryState


class Recorded(NamedTuple):
    """The arguments of `Trajectory.record`."""

    name: str
    kind: str
    start_time: int | None
    end_time: int | None
    input: Any
    output: Any
    error: BaseException | str | None
    attributes: dict[str, Any]


def record_span(
    pipeline: RunningPipeline, trajectory: TrajectoryState, parent: Span, given: Recorded
) -> RolloutSpan | None:
    """Record a span; return None if it isn't sampled."""
    kind = given.kind if type(given.kind) is str else ""
    if kind not in semconv.SPAN_KINDS:
        warn_once("kind of a recorded span", "record(kind=…): a kind is one of %s; CHAIN is taken", semconv.SPAN_KINDS)
        kind = "CHAIN"
    name = str(read_tag(given.name))
    end_time = read_time(given.end_time) or clock.monotonic_ns() + trajectory.clock_offset
    start_time = read_time(given.start_time) or end_time
    role = given.attributes.get(semconv.ROLE) or (getattr(parent, "attributes", None) or {}).get(semconv.ROLE)
    span = pipeline.tracer.start_child(name, parent.get_span_context(), trajectory, attributes_of(kind, name))
    if span is None:
        return None
    span.start_time, span.depth = start_time, getattr(parent, "depth", 0) + _is_scope(parent)
    try:
        _describe(pipeline, span, trajectory, given, is_user=role == semconv.USER)
    finally:
        span.end(end_time)
    return span


def _is_scope(span: Span) -> bool:
    """Return True for an agent, a tool or an evaluator below the root, by its attributes."""
    kind = (getattr(span, "attributes", None) or {}).get(semconv.SPAN_KIND)
    return kind in semconv.SCOPES and getattr(span, "parent", None) is not None


def _describe(
    pipeline: RunningPipeline, span: RolloutSpan, trajectory: TrajectoryState, given: Recorded, *, is_user: bool
) -> None:
    if given.input is not None:
        pipeline.tracer.set_input(span, take_snapshot(given.input, pipeline.snapshot_budget))
    if given.kind == "LLM":
        request = describe_request(given.input if type(given.input) is dict else {})
        described = describe_response(request, given.output)
        if not is_user:
            described[semconv.TURN] = trajectory.add_turn(
                described.get(semconv.USAGE_INPUT_TOKENS, 0), described.get(semconv.USAGE_OUTPUT_TOKENS, 0)
            )
        span.set_attributes(described)
    if given.output is not None:
        span.output = take_snapshot(given.output, pipeline.snapshot_budget)
    span.set_attributes(
        {
            replace_surrogates(key): attribute
            for key, value in given.attributes.items()
            if (attribute := read_attribute(value)) is not None
        }
    )
    if issubclass(type(given.error), BaseException):
        span.fail(given.error)  # type: ignore[arg-type]  # as was just checked
    elif given.error is not None:
        span.set_status(StatusCode.ERROR, str(read_tag(given.error)))
