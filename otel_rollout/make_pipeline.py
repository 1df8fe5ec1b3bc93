"""Build the pipeline that `init` asks for: provider, exporters, queues, tracer."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Tracer, TracerProvider

from otel_rollout.backends import Address, make_exporters
from otel_rollout.deliver.span_outbox import QueueLimits, SpanOutbox
from otel_rollout.errors import AlreadyInitializedError, ConfigurationError
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.finish.redaction import make_redactor
from otel_rollout.finish.span_conversion import SpanReader
from otel_rollout.pipeline import Pipeline, QueueProcessor, put_into
from otel_rollout.record import runtime
from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.open_spans import OpenSpans, ProviderSpans
from otel_rollout.record.open_trajectories import OpenTrajectories
from otel_rollout.record.provider import (
    SCOPE,
    GlobalProvider,
    application_provider,
    get_our_tracer,
    is_auto_instrumented,
    make_provider,
    make_resource,
)
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.span_bounds import bounds_of, environment_limits
from otel_rollout.record.tracer import RecordingTracer, RolloutTracer
from otel_rollout.settings import Settings

if TYPE_CHECKING:
    from otel_rollout.provider_tracer import ProviderTracer


@dataclass(frozen=True)
class InitRequest:
    """The arguments of `init`, with every setting resolved.

    Args:
        project_name: The project.
        experiment_name: The experiment.
        backends: Exporters, and names of exporters.
        tracer_provider: The given provider, if any.
        settings: The settings.
        address: The given endpoint and headers.
    """

    project_name: str
    experiment_name: str
    backends: list[Any]
    tracer_provider: TracerProvider | None
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
    otel_tracer = get_our_tracer(provider) if provider is not None else None
    limits = environment_limits()
    # Another provider has limits of its own, and the API has no way to read them.
    applied = limits if otel_tracer is None else getattr(otel_tracer, "_span_limits", None)
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
    reader = SpanReader(resource, SCOPE, finisher, chat)
    open_spans, open_trajectories = OpenSpans(settings.max_queue_bytes), OpenTrajectories()
    queues = [_make_queue(name, exporter, reader, settings, open_trajectories) for name, exporter in exporters]
    tracer: RolloutTracer
    if provider is None or otel_tracer is None:
        tracer, provider, provider_spans = _trace_with_ours(settings, resource, limits, queues, reader, open_spans)
    else:
        provider_spans = _add_queues(provider, queues)
        tracer = _provider_tracer(otel_tracer, reader, provider_spans)
    for queue in queues:
        queue.start()
        if isinstance(queue.exporter, OutcomeSpanExporter):
            queue.exporter.prepare()
    # A generated run id differs between workers, and would split their common groups.
    run = "/".join([request.project_name, request.experiment_name, *([settings.run_id] if settings.run_id else [])])
    return Pipeline(
        run,
        request.project_name,
        request.experiment_name,
        settings,
        tracer,
        queues,
        provider,
        provider_spans,
        reader,
        open_spans,
        open_trajectories,
    )


def _trace_with_ours(
    settings: Settings,
    resource: Resource,
    limits: SpanLimits,
    queues: list[SpanOutbox],
    reader: SpanReader,
    open_spans: OpenSpans,
) -> tuple[RolloutTracer, TracerProvider, ProviderSpans | None]:
    """Return a tracer of recording spans and its provider: a private one, or the global one with `set_global`."""
    provider = make_provider(resource, limits)
    sampler = provider.sampler
    provider_spans = None
    if settings.set_global:
        provider_spans = _providers.global_processor.deliver_to(queues)
        provider = _make_global(resource, sampler, limits)
        if provider.has_other_processors:
            tracer = _provider_tracer(get_our_tracer(provider), reader, provider_spans)
            return tracer, provider, provider_spans

    def on_end(span: RolloutSpan) -> None:
        open_spans.ended(span)
        put_into(queues, span)

    recording = RecordingTracer(
        sampler,
        SystemIdGenerator(),
        on_end,
        is_shared=settings.set_global,
        open_spans=open_spans,
        bounds=bounds_of(limits),
    )
    return recording, provider, provider_spans


def _add_queues(provider: Any, queues: list[SpanOutbox]) -> ProviderSpans | None:
    """Deliver the spans of the application's provider to our queues too."""
    if not queues:
        return None
    if not hasattr(provider, "add_span_processor"):
        raise ConfigurationError(
            f"tracer_provider={provider!r}: this takes no span processors, so no backend can be added to it; "
            "leave the backend out, or give a provider of the OpenTelemetry SDK"
        )
    return _processor_of(provider).deliver_to(queues)


def _processor_of(provider: Any) -> QueueProcessor:
    """Return our one processor on a provider of the application; the first call adds it."""
    for other, processor in _providers.processors:
        if other() is provider:
            return processor
    added = QueueProcessor()
    provider.add_span_processor(added)
    _providers.processors[:] = [pair for pair in _providers.processors if pair[0]() is not None]
    _providers.processors.append((weakref.ref(provider), added))
    return added


def _provider_tracer(tracer: Tracer, reader: SpanReader, provider_spans: ProviderSpans | None) -> ProviderTracer:
    from otel_rollout.provider_tracer import ProviderTracer

    if provider_spans is None:
        return ProviderTracer(tracer, reader)
    return ProviderTracer(tracer, reader, provider_spans.started, on_end=provider_spans.forget)


def _make_global(resource: Resource, sampler: Sampler, limits: SpanLimits) -> GlobalProvider:
    """Return our global provider, renewed; the first call makes it."""
    if _providers.global_provider is None:
        _providers.global_provider = GlobalProvider(
            _providers.global_processor, resource, sampler, limits, _use_the_sdks_spans
        )
        trace.set_tracer_provider(_providers.global_provider)
    else:
        _providers.global_provider.renew(resource, sampler)
    return _providers.global_provider


def _use_the_sdks_spans() -> None:
    """Create our spans with the global provider: a processor of the application there never sees recording spans."""
    pipeline = cast("Pipeline | None", runtime.pipeline)
    if pipeline is not None and pipeline.provider is _providers.global_provider:
        tracer = get_our_tracer(pipeline.provider)
        pipeline.use(_provider_tracer(tracer, pipeline.reader, _providers.global_processor.provider_spans))


def _make_queue(
    name: str, exporter: SpanExporter, reader: SpanReader, settings: Settings, open_trajectories: OpenTrajectories
) -> SpanOutbox:
    spool = None
    if settings.spool is not None:
        from otel_rollout.deliver.spool import open_spool

        spool = open_spool(settings.spool, name, settings.max_spool_bytes)
    limits = QueueLimits(
        max_bytes=settings.max_queue_bytes,
        max_spans=settings.max_queue_spans,
        batch_bytes=settings.max_batch_bytes,
        batch_spans=settings.max_batch_spans,
        delay=settings.schedule_delay_ms / 1000,
    )
    return SpanOutbox(name, exporter, reader, limits, spool=spool, open_trajectories=open_trajectories)
