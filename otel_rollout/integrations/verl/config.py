"""verl's `RolloutTraceConfig.init` starts `otel_rollout`, with the same settings; verl's own tracing stays off."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE

from otel_rollout import config
from otel_rollout.integrations.verl.hook import Call, Hook, Observer
from otel_rollout.safety.log_once import warn_once
from otel_rollout.spans import runtime

__all__ = ["HOOKS", "max_samples", "start", "start_from"]

_RUN_ID_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"

MAX_BATCH_SPANS: Final = 2048
"""Hundreds of trajectories run at once, and each has spans in every batch: MLflow's database takes as long for a
trajectory of a batch as for several spans. Bytes bound a batch as elsewhere."""


class _Start(Observer):
    """`RolloutTraceConfig.init`: we trace in place of verl, which gets `backend=None`.

    It gets no number of samples either: verl picks them with numpy's global generator, which the traced program may
    draw from as well.
    """

    def __init__(self, call: Call) -> None:
        self._is_on = bool(call.arguments["backend"])
        start(
            call.arguments["project_name"],
            call.arguments["experiment_name"],
            call.arguments["backend"],
            call.arguments.get("token2text", False),
            call.arguments.get("max_samples_per_step_per_worker"),
        )

    def changed(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the arguments without a backend."""
        if not self._is_on:
            return None
        nothing: dict[str, Any] = {"backend": None}
        if call.arguments.get("max_samples_per_step_per_worker") is not None:
            nothing["max_samples_per_step_per_worker"] = None
        return call.replaced(nothing)


def start(
    project_name: Any, experiment_name: Any, backend: Any, token2text: Any = False, max_samples: Any = None
) -> None:
    """Switch tracing on, unless it is on already or `backend` is None; whatever the settings, nothing is raised.

    Args:
        project_name: The project.
        experiment_name: What every trajectory is tagged with.
        backend: An exporter's name, names separated by commas, or `otel` for those of `OTEL_TRACES_EXPORTER`.
        token2text: Whether token ids are decoded beside the ids.
        max_samples: How many samples of a step each worker traces; None for all.
    """
    if not backend or runtime.pipeline is not None:
        return
    if backend == "otel":
        backend = os.environ.get(OTEL_TRACES_EXPORTER, "").strip() or "otlp"
    settings: dict[str, Any] = {}
    if not os.environ.get(OTEL_BSP_MAX_EXPORT_BATCH_SIZE):
        settings["max_batch_spans"] = MAX_BATCH_SPANS
    run_id = _run_id()
    if run_id and not os.environ.get(_RUN_ID_VARIABLE):
        settings["run_id"] = run_id
    try:
        config.init(
            project_name or "verl", experiment_name or "default", backend, bool(token2text), max_samples, **settings
        )
    except Exception as error:  # noqa: BLE001, RUF100 - a rollout without traces is better than none
        warn_once(f"verl {backend}", "verl: nothing is traced: trace.backend=%s: %s", backend, error)


def start_from(trainer_config: Any) -> None:
    """Switch tracing on in a process in which verl does not, from verl's whole configuration.

    Args:
        trainer_config: What `actor_rollout_ref.rollout.trace` is part of.
    """
    trace = trainer_config.actor_rollout_ref.rollout.trace
    start(
        trace.get("project_name"),
        trace.get("experiment_name"),
        trace.get("backend"),
        trace.get("token2text", False),
        trace.get("max_samples_per_step_per_worker"),
    )


def max_samples() -> int | None:
    """Return how many samples of a step each worker traces; None for all."""
    pipeline = runtime.pipeline
    return None if pipeline is None else pipeline.settings.max_samples_per_step_per_worker


def _run_id() -> str | None:
    """Return one id for all processes of a Ray job: otherwise each would be a run of its own."""
    ray = sys.modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return None
        session = ray._private.worker._global_node.session_name  # noqa: SLF001 - nothing public names the session
        return f"{session}-{ray.get_runtime_context().get_job_id()}"
    except Exception:  # noqa: BLE001, RUF100 - private to Ray, and only a convenience
        return None


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
