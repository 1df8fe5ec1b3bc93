"""Sample trajectories: all rollouts of a prompt or none, so that they can be compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from otel_rollout import semconv
from otel_rollout.record import runtime
from otel_rollout.record.context import SILENCE, current_frame

_RUN_ID_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"


def select_samples(indices: Iterable[Hashable], max_samples: int | None = None, *, step: int | None = None) -> set[int]:
    """Return the positions in a batch of the trajectories to trace: all rollouts of up to N samples.

    As verl does with `max_samples_per_step_per_worker`, each worker picks N of the unique samples in its part of a
    step. The choice is a hash that differs from step to step; it draws no random number from the trainer's generator.

    Args:
        indices: The sample index of each trajectory of the batch, shape (batch,).
        max_samples: N; if None, the setting `max_samples_per_step_per_worker`; if that is unset too, all.
        step: The training step.
    """
    samples = [index.item() if hasattr(index, "item") else index for index in indices]
    if max_samples is None and runtime.pipeline is not None:
        max_samples = runtime.pipeline.settings.max_samples_per_step_per_worker
    if max_samples is None:
        return set(range(len(samples)))
    unique = sorted(set(samples), key=lambda sample: _digest(step, sample))
    picked = set(unique[: max(0, max_samples)])
    return {position for position, sample in enumerate(samples) if sample in picked}


class RolloutSampleRatio(TraceIdRatioBased):
    """Keeps a share of the samples of each step, with all their rollouts.

    The decision is a hash of run, experiment, step and sample, the same in every worker. The run is the setting
    `run_id` (`OTEL_ROLLOUT_RUN_ID`); if it is unset, every run keeps the same samples.
    For a span without these tags the trace id decides, as in `traceidratio`.
    """

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide for the root of a trace."""
        attributes = attributes or {}
        sample = attributes.get(semconv.SAMPLE_INDEX)
        if sample is None:
            return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        digest = _digest(_run_id(), attributes.get(semconv.EXPERIMENT_NAME), attributes.get(semconv.STEP), sample)
        if digest < self.bound:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        """Return the sampler's name and ratio."""
        return f"RolloutSampleRatio{{{self.rate}}}"


class SilenceableSampler(Sampler):
    """Drops spans that start in silence (`trace=False`); another sampler decides on the rest.

    `always_on` and `traceidratio` need it, as they ignore the parent; parent-based samplers don't.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(self, parent_context: Context | None, *args: Any, **kwargs: Any) -> SamplingResult:
        """Decide for one span."""
        context = get_current() if parent_context is None else parent_context
        if current_frame(context) is SILENCE:
            return SamplingResult(Decision.DROP)
        return self._sampler.should_sample(parent_context, *args, **kwargs)

    def get_description(self) -> str:
        """Return the other sampler's description."""
        return self._sampler.get_description()


def sample_ratio_sampler(argument: str | None) -> Sampler:
    """Return the sampler `rollout_sample_ratio` for `OTEL_TRACES_SAMPLER_ARG`; spans inside follow their root.

    Args:
        argument: The ratio as text; empty means 1.

    Raises:
        ValueError: The argument is not a ratio from 0 to 1.
    """
    try:
        ratio = float(argument or 1.0)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError("rollout_sample_ratio takes a ratio from 0 to 1")
    return ParentBased(RolloutSampleRatio(ratio))


def _run_id() -> str:
    pipeline = runtime.pipeline
    # A program under opentelemetry-instrument has this sampler without our `init`.
    run_id = pipeline.settings.run_id if pipeline is not None else os.environ.get(_RUN_ID_VARIABLE)
    return run_id or ""


def _digest(*parts: Any) -> int:
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")
