"""verl's `RolloutTraceConfig`, over `otel_rollout.init`: the same calls, attributes and defaults."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, ClassVar, Final

from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE

from otel_rollout import config
from otel_rollout.backends import Backend
from otel_rollout.integrations.verl.batch import is_selecting

__all__ = ["RolloutTraceConfig", "start_from"]

_logger: Final = logging.getLogger("otel_rollout")
_RUN_ID_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"

MAX_BATCH_SPANS: Final = 2048
"""Hundreds of trajectories run at once, and each has spans in every batch: MLflow's database takes as long for a
trajectory of a batch as for several spans. Bytes bound a batch as elsewhere."""


class RolloutTraceConfig(config.RolloutTraceConfig):
    """The process's trace configuration, as verl asks for it.

    Nothing here raises, whatever the configuration: a rollout without traces is better than none.
    """

    _instance: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = False

    @classmethod
    def init(
        cls,
        project_name: str | None,
        experiment_name: str | None,
        backend: Backend | None,
        token2text: bool = False,
        max_samples_per_step_per_worker: int | None = None,
    ) -> None:
        """Switch tracing on, unless it is on already or `backend` is None.

        Args:
            project_name: The project.
            experiment_name: What every trajectory is tagged with.
            backend: An exporter's name, names separated by commas, or `otel` for those of `OTEL_TRACES_EXPORTER`.
            token2text: Whether token ids are decoded beside the ids.
            max_samples_per_step_per_worker: How many samples of a step each worker traces; None for all.
        """
        instance = cls.get_instance()
        if instance.is_initialized:
            return
        instance.is_initialized = True
        instance.project_name, instance.experiment_name = project_name, experiment_name
        instance.token2text = bool(token2text)
        instance.max_samples_per_step_per_worker = max_samples_per_step_per_worker
        if not backend:
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
                project_name or "verl",
                experiment_name or "default",
                backend,
                instance.token2text,
                max_samples_per_step_per_worker,
                **settings,
            )
        except Exception as error:  # noqa: BLE001, RUF100 - training goes on without traces
            _logger.warning("verl: nothing is traced: trace.backend=%s: %s", backend, error)
        else:
            core = config.RolloutTraceConfig.get_instance()
            instance.backend, instance.client = core.backend, core.client

    @property
    def max_samples_per_step_per_worker(self) -> int | None:
        """How many samples of a step each worker traces; None where the plugin picks them.

        verl picks with numpy's global generator, which the traced program may draw from as well.
        """
        return None if is_selecting() else self.max_samples

    @max_samples_per_step_per_worker.setter
    def max_samples_per_step_per_worker(self, samples: int | None) -> None:
        self.max_samples = samples

    @classmethod
    def reset(cls) -> None:
        """Switch tracing off and forget everything; for tests."""
        cls.forget()
        config.RolloutTraceConfig.reset()


def start_from(trainer_config: Any) -> None:
    """Switch tracing on in a process in which verl does not, from verl's whole configuration.

    Args:
        trainer_config: What `actor_rollout_ref.rollout.trace` is part of.
    """
    trace = trainer_config.actor_rollout_ref.rollout.trace
    RolloutTraceConfig.init(
        trace.get("project_name"),
        trace.get("experiment_name"),
        trace.get("backend"),
        trace.get("token2text", False),
        trace.get("max_samples_per_step_per_worker"),
    )


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
