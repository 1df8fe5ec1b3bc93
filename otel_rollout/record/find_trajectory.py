"""Find a trajectory by what its trainer calls it: in this process, or where its exporter stores it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout.guard.log_once import call_user_function
from otel_rollout.record import runtime
from otel_rollout.record.attribute_values import read_scalar
from otel_rollout.record.handle import Place, latest, tags_of
from otel_rollout.record.trajectory import Trajectory, of_handle, of_place

if TYPE_CHECKING:
    from otel_rollout.record.runtime import RunningPipeline


def find_trajectory(
    step: Any = None,
    sample_index: Any = None,
    rollout_n: Any = None,
    validate: bool = False,
    *,
    experiment: str | None = None,
    run: str | None = None,
    attempt: int | None = None,
) -> Trajectory:
    """Return the trajectory that a trainer or an importer only identifies by these values.

    It looks among the latest 32,768 trajectories of this process, then in the trace folder that the process writes, if
    it does: then it reads files, and may take a while.

    Args:
        step: The training step.
        sample_index: The prompt's index in the dataset, or a text.
        rollout_n: The index of the rollout among the n of its prompt.
        validate: True in a validation pass.
        experiment: The experiment; `init`'s if None.
        run: The run (`OTEL_ROLLOUT_RUN_ID`); any if None.
        attempt: The number among the trajectories with these values, from 0 in the order of their starts; the latest if
            None.

    Returns:
        The trajectory; if there is none, one without a trace: `trace_id` is None, and `annotate` warns and counts.
    """
    pipeline = runtime.pipeline
    if pipeline is None:
        return Trajectory(sample_index, step, rollout_n, "", validate)
    name = pipeline.experiment_name if experiment is None else experiment
    tags = tags_of(step, sample_index, rollout_n, validate=validate, experiment_name=name)
    places = latest(tags) or _stored(pipeline, tags)
    places = [place for place in places if run is None or place.run == run]
    number = len(places) - 1 if attempt is None else read_scalar(attempt)
    is_known = type(number) is int and 0 <= number < len(places)
    return of_place(places[number]) if is_known else of_handle("unknown")


def _stored(pipeline: RunningPipeline, tags: dict[str, Any]) -> Sequence[Place]:
    """Return the trajectories with these tags that an exporter finds where it stores them."""
    for exporter in pipeline.exporters.values():
        look_up = getattr(exporter, "find_trajectories", None)
        found = () if look_up is None else call_user_function("find_trajectories", look_up, tags)
        if type(found) is list and found:
            sampled = TraceFlags(TraceFlags.SAMPLED)
            return [
                Place(SpanContext(int(trace_id, 16), root_id, is_remote=True, trace_flags=sampled), tags, run)
                for trace_id, root_id, run in found
            ]
    return ()
