"""Build the pipeline that `init` asks for: provider, exporters, queues, tracer."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, cast

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import TracerProvider

from otel_rollout.backends import Address, make_exporters
from otel_rollout.deliver.span_outbox import QueueLimits, SpanOutbox
from otel_rollout.errors import AlreadyInitializedError, ConfigurationError
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.finish.redaction import make_redactor
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.finish.span_draft import Transform
from otel_rollout.guard.log_once import warn_once
from otel_rollout.joined_provider import QUEUE_NAME, HandOver, JoinedProvider
from otel_rollout.pipeline import Pipeline, QueueProcessor
from otel_rollout.record import runtime
from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.open_trajectories import OpenTrajectories
from otel_rollout.record.provider import (
    SCOPE,
    GlobalProvider,
    application_provider,
    is_auto_instrumented,
    make_provider,
    make_resource,
)
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.span_bounds import DEFAULT_BOUNDS, bounds_of, environment_limits
from otel_rollout.record.tracer import OpenSpans, RolloutTracer
from otel_rollout.settings import Settings


@dataclass(frozen=True)
class InitRequest:
    """The arguments of `init`, with every setting resolved.

    Args:
        project_name: The project.
        experiment_name: The experiment.
        backends: Exporters, and names of exporters.
        tracer_provider: The given provider, if any.
        transforms: The user's functions of a span.
        settings: The settings.
        address: The given endpoint and headers.
    """

    project_name: str
    experiment_name: str
    backends: list[Any]
    tracer_provider: TracerProvider | None
    transforms: tuple[Transform, ...]
    settings: Settings
    address: Address

    def require_same(self, other: InitRequest) -> None:
        """Compare this request with a later one.

        Raises:
            AlreadyInitializedError: The later one differs.
        """
        differences = []
        for mine, theirs in ((self, other), (self.settings, other.settings)):
            for field in fields(mine):
                before, now = getattr(mine, field.name), getattr(theirs, field.name)
                if field.name != "settings" and before != now:
                    differences.append(f"{field.name} was {before!r}, now {now!r}")
        if differences:
            raise AlreadyInitializedError(
                f"init was called before with other settings: {'; '.join(differences)}; call shutdown() first"
            )


class _Providers:
    """The providers with a processor of ours; the SDK has no way to remove one."""

    global_provider: GlobalProvider | None = None
    global_processor: Final = QueueProcessor()
    processors: ClassVar[list[tuple[weakref.ref[Any], QueueProcessor]]] = []
    """Our processor on each provider of the application, which may be unhashable, as logfire's is."""


_providers: Final = _Providers()


def make_pipeline(request: InitRequest, *, is_backend_given: bool) -> Pipeline:
    """Return the pipeline of a process, with its queues started.

    Args:
        request: The arguments of `init`.
        is_backend_given: True if the backends are an argument of `init`, not the environment's.

    Raises:
        ConfigurationError: A setting can't work.
        UnknownExporterError: No exporter has this name.
        MissingExtraError: An exporter needs a package that isn't installed.
    """
    settings = request.settings
    resource = make_resource(request.project_name, settings.run_id)
    provider = request.tracer_provider or application_provider()
    if provider is _providers.global_provider:
        # Made by an earlier init, not by the application.
        provider = None
    joined = None if provider is None else JoinedProvider(provider)
    limits = environment_limits()
    # Another provider has limits of its own, and the API has no way to read them.
    applied = limits if joined is None else joined.limits
    finisher = PayloadFinisher(
        settings.max_payload_bytes,
        make_redactor(settings.redact_keys, settings.redact_patterns),
        getattr(applied, "max_span_attribute_length", None),
    )
    # Such a provider has exporters already, from OTEL_TRACES_EXPORTER for example; only an argument adds to them.
    is_complete = request.tracer_provider is not None or is_auto_instrumented()
    adds_exporters = is_backend_given or not is_complete
    exporters = make_exporters(request.backends, request.address) if adds_exporters else []
    for _, exporter in exporters:
        if isinstance(exporter, OutcomeSpanExporter):
            exporter.check_project(request.project_name)
    chat = ChatWriter(finisher) if settings.chat_messages else None
    theirs = getattr(provider, "resource", None)
    joined_resource = theirs if isinstance(theirs, Resource) else None
    reader = SpanReader(resource, SCOPE, finisher, chat, joined_resource, request.transforms)
    open_spans, open_trajectories = OpenSpans(settings.max_queue_bytes), OpenTrajectories()
    queues = [_make_queue(name, exporter, reader, settings, open_trajectories) for name, exporter in exporters]
    if joined is None:
        own = make_provider(resource, limits)
        provider, sampler = own, own.sampler
        if settings.set_global:
            _providers.global_processor.queues = queues
            provider = own = _make_global(resource, sampler, limits)
            joined = JoinedProvider(own) if own.has_other_processors else None
    else:
        sampler = joined.sampler
        if queues:
            _processor_of(provider).queues = queues
    outlets = [*queues]

    def on_end(span: RolloutSpan) -> None:
        for queue in outlets:
            queue.put(span)
        # Last: what an alarm keeps from a queue is counted as open.
        open_spans.ended(span)

    tracer = RolloutTracer(
        sampler,
        SystemIdGenerator(),
        on_end,
        is_shared=joined is not None or settings.set_global,
        open_spans=open_spans,
        bounds=DEFAULT_BOUNDS if applied is None else bounds_of(applied),
    )
    # A generated run id differs between workers, and would split their common groups.
    run = "/".join([request.project_name, request.experiment_name, *([settings.run_id] if settings.run_id else [])])
    pipeline = Pipeline(
        run,
        request.project_name,
        request.experiment_name,
        settings,
        tracer,
        queues,
        cast("TracerProvider", provider),
        outlets,
        reader,
        open_spans,
        open_trajectories,
    )
    if joined is not None:
        _hand_over(pipeline, joined)
    for queue in queues:
        queue.start()
        if isinstance(queue.exporter, OutcomeSpanExporter):
            queue.exporter.prepare()
    return pipeline


def _hand_over(pipeline: Pipeline, joined: JoinedProvider) -> None:
    """Hand ended spans over to a provider, from a queue of its own."""
    if not joined.is_sdks():
        warn_once(
            "provider without ids",
            "tracer_provider: spans of this provider, which is not the OpenTelemetry SDK's, get other ids than ours, "
            "and so no tree",
        )
    queue = _make_queue(QUEUE_NAME, HandOver(joined), pipeline.reader, pipeline.settings, None)
    joined.flush_before_it(queue)
    pipeline.tracer.keeps_context = True
    pipeline.outlets.append(queue)
    queue.start()


def _processor_of(provider: Any) -> QueueProcessor:
    """Return our one processor on a provider of the application; the first call adds it.

    Raises:
        ConfigurationError: The provider takes no processors.
    """
    if not hasattr(provider, "add_span_processor"):
        raise ConfigurationError(
            f"tracer_provider={provider!r}: this takes no span processors, so no backend can be added to it; "
            "leave the backend out, or give a provider of the OpenTelemetry SDK"
        )
    for other, processor in _providers.processors:
        if other() is provider:
            return processor
    added = QueueProcessor()
    provider.add_span_processor(added)
    _providers.processors[:] = [pair for pair in _providers.processors if pair[0]() is not None]
    _providers.processors.append((weakref.ref(provider), added))
    return added


def _make_global(resource: Resource, sampler: Sampler, limits: SpanLimits) -> GlobalProvider:
    """Return our global provider, renewed; the first call makes it."""
    if _providers.global_provider is None:
        _providers.global_provider = GlobalProvider(
            _providers.global_processor, resource, sampler, limits, _hand_over_to_others
        )
        trace.set_tracer_provider(_providers.global_provider)
    else:
        _providers.global_provider.renew(resource, sampler)
    return _providers.global_provider


def _hand_over_to_others() -> None:
    """Hand our spans over to our global provider, once the application has added a processor to it."""
    pipeline = cast("Pipeline | None", runtime.pipeline)
    if pipeline is None or pipeline.provider is not _providers.global_provider:
        return
    if len(pipeline.outlets) == len(pipeline.queues):
        _hand_over(pipeline, JoinedProvider(pipeline.provider))


def _make_queue(
    name: str,
    exporter: SpanExporter,
    reader: SpanReader,
    settings: Settings,
    open_trajectories: OpenTrajectories | None,
) -> SpanOutbox:
    limits = QueueLimits(
        max_bytes=settings.max_queue_bytes,
        max_spans=settings.max_queue_spans,
        batch_bytes=settings.max_batch_bytes,
        batch_spans=settings.max_batch_spans,
        delay=settings.schedule_delay_ms / 1000,
    )
    if settings.spool is None or isinstance(exporter, HandOver):
        return SpanOutbox(name, exporter, reader, limits, open_trajectories=open_trajectories)
    from otel_rollout.deliver.spool import open_spool
    from otel_rollout.deliver.spooled_outbox import SpooledOutbox

    spool = open_spool(settings.spool, name, settings.max_spool_bytes)
    return SpooledOutbox(name, exporter, reader, limits, open_trajectories=open_trajectories, spool=spool)
