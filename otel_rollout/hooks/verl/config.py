"""Start `otel_rollout` from verl's `RolloutTraceConfig.init`, with the same settings; verl's own tracing stays off."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE

from otel_rollout.hooks import Arguments, Call, Hook, Observer, start_tracing
from otel_rollout.hooks.guard import call_library
from otel_rollout.record import runtime

_RUN_ID_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"
_MAX_SAMPLES: Final = "max_samples_per_step_per_worker"

MAX_BATCH_SPANS: Final = 2048
"""Hundreds of trajectories run simultaneously, and each has spans in every batch: MLflow's database takes as long for a
trajectory of a batch as for several spans. Bytes bound a batch as elsewhere."""


class _Start(Observer):
    """`RolloutTraceConfig.init`: we trace, and verl gets `backend=None`.

    verl gets no number of samples either: it picks them with numpy's global generator, which the traced program may
    use as well.
    """

    def __init__(self, call: Call) -> None:
        start_from(call.arguments)

    def changed(self, call: Call) -> Arguments | None:
        """Return the arguments without a backend."""
        if not call.arguments["backend"]:
            return None
        return call.replaced({name: None for name in ("backend", _MAX_SAMPLES) if call.arguments.get(name) is not None})


def start(
    project_name: Any, experiment_name: Any, backend: Any, token2text: Any = False, max_samples: Any = None
) -> None:
    """Start tracing, unless it is on already or `backend` is empty; never raises.

    The backend `otel` stands for the exporters of `OTEL_TRACES_EXPORTER`.
    """
    if not backend or runtime.pipeline is not None:
        return
    if backend == "otel":
        backend = os.environ.get(OTEL_TRACES_EXPORTER, "").strip() or "otlp"
    settings: dict[str, Any] = {}
    if not os.environ.get(OTEL_BSP_MAX_EXPORT_BATCH_SIZE):
        settings["max_batch_spans"] = MAX_BATCH_SPANS
    if not os.environ.get(_RUN_ID_VARIABLE):
        settings["run_id"] = _run_id()
    start_tracing(
        "verl",
        project_name,
        experiment_name,
        backend=backend,
        token2text=bool(token2text),
        max_samples_per_step_per_worker=max_samples,
        **settings,
    )


def start_from(trace: Any) -> None:
    """Switch tracing on by verl's trace settings.

    Args:
        trace: A mapping: the arguments of `RolloutTraceConfig.init`, or `actor_rollout_ref.rollout.trace`.
    """
    start(*map(trace.get, ("project_name", "experiment_name", "backend", "token2text", _MAX_SAMPLES)))


def max_samples() -> int | None:
    """Return the number of samples of a step that each worker traces; None for all."""
    pipeline = runtime.pipeline
    return None if pipeline is None else pipeline.settings.max_samples_per_step_per_worker


def _run_id() -> str | None:
    """Return an id of the Ray job; without it each of the job's processes would be a run of its own."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    message = f"verl: each process is a run of its own: set {_RUN_ID_VARIABLE} (%r)"
    run_id: str | None = call_library("verl run id", message, _job_of, ray)
    return run_id


def _job_of(ray: Any) -> str:
    context = ray.get_runtime_context()
    # An older Ray has no get_session_name; its internals don't change any more.
    session = getattr(context, "get_session_name", lambda: context.worker.node.session_name)()
    return f"{session}-{context.get_job_id()}"


HOOKS: Final = (
    Hook(
        "verl.utils.rollout_trace",
        "RolloutTraceConfig.init",
        "nothing is traced",
        _Start,
        needs=("project_name", "experiment_name", "backend"),
        while_off=True,
    ),
)
