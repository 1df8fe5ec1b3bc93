"""Switch tracing on and off: `init`, `flush`, `shutdown`, `stats`, and verl's `RolloutTraceConfig`."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import util as multiprocessing_util
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from opentelemetry.trace import TracerProvider

from otel_rollout.backends import Address, Backend, backend_names, is_backend_named, requested_backend
from otel_rollout.counts import Stats, lost_annotations, repeated_annotations, unread_answers, unread_usage
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.exporter import settings_of
from otel_rollout.guard.log_once import forget_warnings
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.guard.signal_safe_lock import SignalSafeLock
from otel_rollout.make_pipeline import InitRequest, make_pipeline
from otel_rollout.pipeline import Pipeline
from otel_rollout.record import handle, runtime
from otel_rollout.record.annotate import forget_facts
from otel_rollout.record.provider import application_provider, provider_of_config_file
from otel_rollout.record.start_trajectory import end_open, forget_open
from otel_rollout.settings import CHECKED_VARIABLES, VARIABLES, is_disabled, resolve_settings
from otel_rollout.text.near_miss import PREFIXES

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from otel_rollout.finish.span_draft import Transform
    from otel_rollout.settings import InitSettings

_logger = SafeLogger()
_lock = SignalSafeLock()

_Config = TypeVar("_Config", bound="RolloutTraceConfig")

SECONDS_AFTER_CTRL_C: Final = 1.0
"""The time for what is left after Ctrl-C, such as spans that go to disk."""
_ARGUMENTS: Final = (
    "backend",
    "project_name",
    "experiment_name",
    "endpoint",
    "headers",
    "tracer_provider",
    "transforms",
)
"""The arguments of `init` that are no settings."""


def init(
    project_name: str,
    experiment_name: str,
    backend: Backend | None = None,
    token2text: bool = False,
    max_samples_per_step_per_worker: int | None = None,
    *,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    tracer_provider: TracerProvider | None = None,
    transforms: Sequence[Transform] = (),
    **settings: Unpack[InitSettings],
) -> None:
    """Switch tracing on for this process; every setting is checked here, and nothing raises afterwards.

    Args:
        project_name: The project; in the backends the experiment (MLflow) or the project (Phoenix, Weave).
        experiment_name: A tag of every trajectory.
        backend: The destination of the traces: an exporter's name, names separated by commas, a `SpanExporter`, or a
            list of these. If None, `OTEL_TRACES_EXPORTER`; if that is unset too, the exporters of the tracer provider
            that the application has set; without one, tracing is off, and one log line reports it.
        token2text: Decode token ids by the op's own `self.tokenizer`, on the delivery thread; False leaves it to
            `OTEL_ROLLOUT_TOKEN2TEXT`.
        max_samples_per_step_per_worker: The number of samples per step that `select_samples` picks; None for all.
        endpoint: The URL for `otlp`, such as `http://localhost:4318`, in place of `OTEL_EXPORTER_OTLP_ENDPOINT`.
        headers: Sent with each request to it, besides the headers of `OTEL_EXPORTER_OTLP_HEADERS`.
        tracer_provider: An existing TracerProvider to create our spans with; if None, the application's global one if
            there is one, else a private one.
        transforms: Functions that change a span's name, attributes, input and output before its export, on the delivery
            thread: each gets a `SpanDraft`. If one raises, the span is sent without payload.
        **settings: Any other setting by its name, see docs/reference/configuration.md.

    Raises:
        ConfigurationError: A setting can't work; the message names it, what was wrong and what would be right.
        UnknownExporterError: No exporter has this name.
        MissingExtraError: An exporter needs a package that isn't installed.
        AlreadyInitializedError: `init` was called before with other settings.
    """
    given = {
        **settings,
        "token2text": token2text or None,
        "max_samples_per_step_per_worker": max_samples_per_step_per_worker,
    }
    _init(project_name, experiment_name, backend, Address(endpoint, headers), tracer_provider, given, transforms)


def _init(
    project_name: str,
    experiment_name: str,
    backend: Backend | None,
    address: Address,
    tracer_provider: TracerProvider | None,
    given: Mapping[str, Any],
    transforms: Sequence[Transform] = (),
    *,
    is_verls: bool = False,
) -> None:
    for argument, value in (("project_name", project_name), ("experiment_name", experiment_name)):
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{argument}={value!r}: this should be a non-empty string")
    if not isinstance(transforms, (list, tuple)) or not all(map(callable, transforms)):
        raise ConfigurationError(f"transforms={transforms!r}: this should be a list of functions of a SpanDraft")
    if is_free_threaded():
        raise ConfigurationError(
            "this Python runs without a global interpreter lock, under which tracing is not tested; "
            "start it with PYTHON_GIL=1, or use a build of Python that has the lock"
        )
    if is_subinterpreter():
        raise ConfigurationError(
            "tracing runs in the main interpreter alone, as its threads would abort the process at another's end; "
            "call init() in processes (multiprocessing, Ray) in place of subinterpreters"
        )
    with _lock:
        resolved = resolve_settings(given, also_known=_ARGUMENTS)
        if address != Address() and not is_backend_named(backend):
            backend = "otlp"
        asked = requested_backend(backend)
        request = InitRequest(
            project_name, experiment_name, asked, tracer_provider, tuple(transforms), resolved, address
        )
        if _state.request is not None:
            _state.request.require_same(request)
            return
        # In verl only `trace.backend` switches tracing on.
        joined = tracer_provider
        if joined is None and not is_verls and not is_backend_named(backend) and not is_disabled():
            joined = application_provider() or provider_of_config_file()
        pipeline = None
        if (asked or joined is not None) and not is_disabled():
            pipeline = make_pipeline(request, is_backend_given=backend is not None)
            runtime.resource = pipeline.reader.resource
        _state.request, _state.last_pipeline, _state.is_whole = request, None, True
        runtime.pipeline, runtime.is_init_called = pipeline, True
        _describe(RolloutTraceConfig.get_instance(), request, pipeline)
        _check_variables({} if pipeline is None else pipeline.exporters)
        if pipeline is not None:
            _install_exit_hooks()
        else:
            from otel_rollout.init_notes import log_off

            log_off(is_chosen=is_verls or is_backend_named(backend))


def _check_variables(exporters: Mapping[str, Any]) -> None:
    known = {
        *VARIABLES,
        *(name for exporter in exporters.values() for row in settings_of(exporter) for name in row.variables),
    }
    checked = {row.variable for row in CHECKED_VARIABLES}
    if any(
        text and name.startswith(PREFIXES) and (name not in known or name in checked)
        for name, text in os.environ.items()
    ):
        from otel_rollout.init_notes import warn_of_variables

        warn_of_variables(exporters, known)


def flush(timeout: float | None = None) -> bool:
    """Wait until the backends have everything recorded so far.

    It blocks the calling thread: in a coroutine use `await asyncio.to_thread(flush)`.

    Args:
        timeout: The longest wait, in seconds; if None, the setting `shutdown_timeout_ms`, else 30.

    Returns:
        True if every backend has every span recorded since the last flush, with rewards and links, or tracing is off.
    """
    pipeline = _running()
    return True if pipeline is None else pipeline.flush(pipeline.seconds if timeout is None else timeout)


def shutdown(timeout: float | None = None) -> bool:
    """Deliver the queued spans, switch tracing off and log one line with the counts.

    The end of the process calls it. Afterwards `init` may be called again.

    Args:
        timeout: The longest wait, in seconds; if None, the setting `shutdown_timeout_ms`; if that is unset too, 30
            after a new database was made, and 300 in all.

    Returns:
        True if every backend has every span, or if tracing was off. A second call, also one in another thread, waits
        for the first, and returns the same.
    """
    with _lock:
        pipeline = _running() or _state.unfinished
        if pipeline is not None:
            if pipeline is runtime.pipeline:
                end_open()
            _state.last_pipeline = _state.unfinished = pipeline
        runtime.pipeline = _state.request = _state.config = None
    return _state.is_whole if pipeline is None else _finish(pipeline, timeout)


def shutdown_at_exit() -> None:
    """Shut down at the end of the process, and finish a `shutdown()` that an exception cut short.

    The `sys.exit` of a SIGTERM handler is ignored: the process ends already. Ctrl-C ends the wait; the program is done,
    and its exit code stays.
    """
    timeout = None
    while runtime.pipeline is not None or _state.unfinished is not None:
        with contextlib.suppress(SystemExit), _CtrlC() as ctrl_c:
            shutdown(timeout)
            if _state.unfinished is not None:
                _finish(_state.unfinished, timeout)
        if ctrl_c.was_pressed:
            timeout = SECONDS_AFTER_CTRL_C
    if _state.last_pipeline is not None:
        _state.last_pipeline.reader.end(SECONDS_AFTER_CTRL_C)


class _CtrlC:
    """Catches a Ctrl-C."""

    was_pressed = False

    def __enter__(self) -> _CtrlC:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        self.was_pressed = kind is KeyboardInterrupt
        return self.was_pressed


def stats() -> Stats:
    """Return the counts of spans recorded, delivered and lost so far; after `shutdown`, the final ones."""
    pipeline = _running() or _state.last_pipeline
    return pipeline.stats() if pipeline is not None else Stats()


def _running() -> Pipeline | None:
    return cast("Pipeline | None", runtime.pipeline)


def _finish(pipeline: Pipeline, timeout: float | None) -> bool:
    is_whole = pipeline.shutdown(timeout)
    if _state.unfinished is pipeline:
        _state.unfinished, _state.is_whole = None, is_whole
        if pipeline.queues:
            counts = pipeline.stats()
            is_quiet = is_whole and not counts.open_spans
            _logger.log(logging.INFO if is_quiet else logging.WARNING, "%s", counts)
    return is_whole


def _renew_lock() -> None:
    """Make a lock, in a forked child, that no thread of the parent holds."""
    global _lock  # noqa: PLW0603 - only the thread that holds a lock can release it
    _lock = SignalSafeLock()


def after_fork() -> None:
    """Start empty in a forked child."""
    _renew_lock()
    # An unfinished shutdown is the parent's.
    _state.unfinished = None
    forget_open()
    for pipeline in {_running(), _state.last_pipeline}:
        if pipeline is not None:
            pipeline.after_fork()


def _install_exit_hooks() -> None:
    """Register `shutdown_at_exit` for the end of the process and its children, and `after_fork`; once per process."""
    if _state.has_exit_hooks:
        return
    _state.has_exit_hooks = True

    def finalize() -> None:
        multiprocessing_util.Finalize(None, shutdown_at_exit, exitpriority=100)

    atexit.register(shutdown_at_exit)
    # A multiprocessing child leaves by os._exit, after these finalizers and without atexit.
    finalize()
    multiprocessing_util.register_after_fork(_state, lambda owner: finalize())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)


def is_free_threaded() -> bool:
    """Return True if the interpreter runs without its global lock."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is not None and not is_enabled()


def is_subinterpreter() -> bool:
    """Return True in an interpreter other than the process's first one."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(name)
            # From Python 3.13 on, each is a tuple with how it was made.
            current, main = (
                each[0] if type(each) is tuple else each for each in (module.get_current(), module.get_main())
            )
            return bool(current != main)
    return False


class _State:
    """The module's state between calls."""

    request: InitRequest | None = None
    config: Any = None
    """The instance of `RolloutTraceConfig`."""
    last_pipeline: Pipeline | None = None
    is_whole = True
    """The result of the last shutdown."""
    unfinished: Pipeline | None = None
    """The pipeline that `shutdown` took, until its spans are delivered or lost."""
    has_exit_hooks = False


_state: Final = _State()
if hasattr(os, "register_at_fork"):
    # Before the first `init`: a child of a fork during it would wait for its lock for ever.
    os.register_at_fork(after_in_child=_renew_lock)


class RolloutTraceConfig:
    """The configuration under verl's names.

    It has the interface of `verl.utils.rollout_trace.RolloutTraceConfig`: class methods over one instance per process,
    and its attributes.
    """

    def __init__(self) -> None:
        self.backend: str | None = None
        self.client: object | None = None
        self.token2text = False
        self.project_name: str | None = None
        self.experiment_name: str | None = None
        self.max_samples_per_step_per_worker: int | None = None

    @classmethod
    def get_instance(cls: type[_Config]) -> _Config:  # noqa: PYI019 - Python 3.10 has no Self
        """Return the process's configuration."""
        if _state.config is None:
            _state.config = cls()
        instance: _Config = _state.config
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
        """Switch tracing on: `otel_rollout.init` with verl's arguments.

        Args:
            project_name: The project.
            experiment_name: A tag of every trajectory.
            backend: The destination of the traces; if None, `OTEL_TRACES_EXPORTER`, and if that is unset, none.
            token2text: Record decoded text next to the token ids.
            max_samples_per_step_per_worker: The number of samples per step that each worker traces; None for all.
        """
        given = {
            "token2text": token2text or None,
            "max_samples_per_step_per_worker": max_samples_per_step_per_worker,
        }
        _init(project_name, experiment_name, backend, Address(), None, given, is_verls=True)

    @classmethod
    def get_backend(cls) -> str | None:
        """Return the exporters' names, separated by commas; None while tracing is off."""
        return cls.get_instance().backend

    @classmethod
    def get_client(cls) -> object | None:
        """Return the tracer provider; None while tracing is off."""
        return cls.get_instance().client

    @classmethod
    def enable_token2text(cls) -> bool:
        """Return True if token ids are decoded."""
        return cls.get_instance().token2text

    @classmethod
    def reset(cls) -> None:
        """Switch tracing off and forget everything; for tests."""
        shutdown(timeout=5.0)
        _state.last_pipeline = runtime.resource = None
        runtime.is_init_called = False
        forget_warnings()
        handle.forget()
        forget_facts()
        for counts in (lost_annotations, repeated_annotations, unread_answers, unread_usage):
            counts.clear()


def _describe(config: RolloutTraceConfig, request: InitRequest, pipeline: Pipeline | None) -> None:
    config.project_name = request.project_name
    config.experiment_name = request.experiment_name
    config.max_samples_per_step_per_worker = request.settings.max_samples_per_step_per_worker
    config.token2text = request.settings.token2text
    if pipeline is not None:
        config.backend = backend_names(request.backends) or "otel"
        config.client = pipeline.provider
