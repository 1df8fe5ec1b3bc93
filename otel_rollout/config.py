"""Switching tracing on and off: `init`, `flush`, `shutdown`, `stats`, and verl's `RolloutTraceConfig` over them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Any, ClassVar, Final, TypeVar, cast

from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.trace import TracerProvider

from otel_rollout import process_exit
from otel_rollout.backends import Backend, backend_names, requested_backend
from otel_rollout.counts import Stats
from otel_rollout.errors import ConfigurationError
from otel_rollout.init_request import InitRequest
from otel_rollout.make_pipeline import make_pipeline
from otel_rollout.pipeline import Pipeline
from otel_rollout.safety import log_once
from otel_rollout.settings import resolve_settings
from otel_rollout.spans import runtime

__all__ = ["RolloutTraceConfig", "flush", "init", "shutdown", "stats"]

_logger = logging.getLogger("otel_rollout")
_lock = threading.RLock()

_Config = TypeVar("_Config", bound="RolloutTraceConfig")


def init(
    project_name: str,
    experiment_name: str,
    backend: Backend | None = None,
    token2text: bool = False,
    max_samples_per_step_per_worker: int | None = None,
    *,
    tracer_provider: TracerProvider | None = None,
    **settings: Any,
) -> None:
    """Switch tracing on for this process; every setting is checked here, nothing raises afterwards.

    Args:
        project_name: The project; in the backends the experiment (MLflow) or the project (Phoenix, Weave).
        experiment_name: What every trajectory is tagged with.
        backend: Where traces go: an exporter's name, names separated by commas, a `SpanExporter`, or a list of
            these. Where None, `OTEL_TRACES_EXPORTER`; where that is unset too, tracing is off.
        token2text: Whether token ids are decoded by the op's own `self.tokenizer`, on the delivery thread; False
            leaves it to `OTEL_ROLLOUT_TOKEN2TEXT`.
        max_samples_per_step_per_worker: How many samples of a step `select_samples` picks; None for all.
        tracer_provider: A provider of the application's whose spans ours are to be; where None, the global one if
            the application has set one, else a private one.
        **settings: Any other setting by its name, see docs/configuration.md.

    Raises:
        ConfigurationError: A setting can't work; the message names it, what was wrong and what would be right.
        UnknownExporterError: No exporter has this name.
        MissingExtraError: An exporter needs a package that isn't installed.
        AlreadyInitializedError: `init` was called before, with other settings.
    """
    for argument, value in (("project_name", project_name), ("experiment_name", experiment_name)):
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{argument}={value!r}: this should be a text that is not empty")
    given = {
        **settings,
        "token2text": token2text or None,
        "max_samples_per_step_per_worker": max_samples_per_step_per_worker,
    }
    with _lock:
        resolved = resolve_settings(given)
        asked = requested_backend(backend)
        request = InitRequest(project_name, experiment_name, asked, tracer_provider, resolved)
        if _state.request is not None:
            _state.request.require_same(request)
            return
        is_disabled = os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"
        pipeline = None
        if not is_disabled and (asked or tracer_provider is not None):
            pipeline = make_pipeline(request, is_backend_given=backend is not None)
        _state.request = request
        runtime.pipeline = pipeline
        RolloutTraceConfig.get_instance().describe(request, pipeline)
        if pipeline is not None:
            process_exit.install(shutdown_at_exit, after_fork)


def flush(timeout: float = 30.0) -> bool:
    """Wait until everything recorded so far is in the backends.

    Blocks the calling thread: in a coroutine use `await asyncio.to_thread(flush)`.

    Args:
        timeout: Seconds to wait at most.

    Returns:
        Whether every span recorded since the last flush is in every backend; True while tracing is off.
    """
    pipeline = _running()
    return pipeline.flush(timeout) if pipeline is not None else True


def shutdown(timeout: float | None = None) -> bool:
    """Deliver what is queued, switch tracing off and log one line on what was delivered and lost.

    Called at the exit of the process by itself. Afterwards `init` may be called again.

    Args:
        timeout: Seconds to wait at most; where None, the setting `shutdown_timeout_ms`.

    Returns:
        Whether every span is in every backend; True while tracing is off.
    """
    with _lock:
        pipeline = _running()
        if pipeline is not None:
            _state.last_pipeline = _state.unfinished = pipeline
        runtime.pipeline = None
        _state.request = None
        RolloutTraceConfig.forget()
    return pipeline is None or _finish(pipeline, timeout)


def shutdown_at_exit() -> None:
    """Shut down at the exit of the process, also where a `shutdown()` was cut short by an exception.

    A SIGTERM handler that calls `sys.exit` says what is happening already; Ctrl-C ends the wait.
    """
    while runtime.pipeline is not None or _state.unfinished is not None:
        with contextlib.suppress(SystemExit):
            shutdown()
            if _state.unfinished is not None:
                _finish(_state.unfinished, None)


def stats() -> Stats:
    """Return what was traced, delivered and lost so far; after `shutdown`, the final counts."""
    pipeline = _running() or _state.last_pipeline
    return pipeline.stats() if pipeline is not None else Stats()


def _running() -> Pipeline | None:
    return cast("Pipeline | None", runtime.pipeline)


def _finish(pipeline: Pipeline, timeout: float | None) -> bool:
    is_whole = pipeline.shutdown(pipeline.settings.shutdown_timeout_ms / 1000 if timeout is None else timeout)
    if _state.unfinished is pipeline:
        _state.unfinished = None
        if pipeline.queues:
            counts = pipeline.stats()
            is_quiet = is_whole and not counts.open_spans
            _logger.log(logging.INFO if is_quiet else logging.WARNING, "%s", counts)
    return is_whole


def after_fork() -> None:
    """Start empty in a forked child, with locks that no thread of the parent holds."""
    global _lock  # noqa: PLW0603 - a lock can't be freed by another thread than its own
    _lock = threading.RLock()
    # What the parent was shutting down is the parent's; its counts are asked for all the same.
    _state.unfinished = None
    for pipeline in {_running(), _state.last_pipeline}:
        if pipeline is not None:
            pipeline.after_fork()


class _State:
    """What the module remembers between calls."""

    request: InitRequest | None = None
    last_pipeline: Pipeline | None = None
    unfinished: Pipeline | None = None
    """The pipeline that `shutdown` has taken, until its spans are delivered or lost."""


_state: Final = _State()


class RolloutTraceConfig:
    """The configuration under the names that verl's users know.

    The interface is that of verl's class (`verl.utils.rollout_trace.RolloutTraceConfig`): class methods over one
    instance per process, and its attributes.
    """

    _instance: ClassVar[Any] = None

    def __init__(self) -> None:
        self.backend: str | None = None
        self.client: object | None = None
        self.token2text = False
        self.project_name: str | None = None
        self.experiment_name: str | None = None
        self.max_samples_per_step_per_worker: int | None = None
        self._initialized = False

    @classmethod
    def get_instance(cls: type[_Config]) -> _Config:  # noqa: PYI019 - Python 3.10 has no Self
        """Return the process's configuration."""
        if cls._instance is None:
            cls._instance = cls()
        instance: _Config = cls._instance
        return instance

    @classmethod
    def init(
        cls,
        project_name: str,
        experiment_name: str,
        backend: Backend | None,
        token2text: bool = False,
        max_samples_per_step_per_worker: int | None = None,
    ) -> None:
        """Switch tracing on: `otel_rollout.init` with verl's arguments; a `backend` of None is off, as in verl.

        Args:
            project_name: The project.
            experiment_name: What every trajectory is tagged with.
            backend: Where traces go; None for nowhere, unless `OTEL_TRACES_EXPORTER` says otherwise.
            token2text: Whether token ids are decoded beside the ids.
            max_samples_per_step_per_worker: How many samples of a step are traced by each worker; None for all.
        """
        init(project_name, experiment_name, backend, token2text, max_samples_per_step_per_worker)

    @classmethod
    def get_backend(cls) -> str | None:
        """Return the exporters' names as one comma list; None while tracing is off."""
        return cls.get_instance().backend

    @classmethod
    def get_client(cls) -> object | None:
        """Return the tracer provider; None while tracing is off."""
        return cls.get_instance().client

    @classmethod
    def enable_token2text(cls) -> bool:
        """Return whether token ids are decoded."""
        return cls.get_instance().token2text

    @classmethod
    def reset(cls) -> None:
        """Switch tracing off and forget everything; for tests."""
        shutdown(timeout=5.0)
        _state.last_pipeline = None
        log_once.forget()

    @classmethod
    def forget(cls) -> None:
        """Go back to how it was before `init`."""
        cls._instance = None

    def describe(self, request: InitRequest, pipeline: Pipeline | None) -> None:
        """Show what `init` was asked for."""
        self.project_name = request.project_name
        self.experiment_name = request.experiment_name
        self.max_samples_per_step_per_worker = request.settings.max_samples_per_step_per_worker
        self.token2text = request.settings.token2text
        if pipeline is not None:
            self.backend = backend_names(request.backends) or "otel"
            self.client = pipeline.provider
        self._initialized = True
