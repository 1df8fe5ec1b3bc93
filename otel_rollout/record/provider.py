"""The tracer provider of our spans: the application's, a private one, or ours as the global one (`set_global`)."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, Final
from weakref import WeakSet

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, ParentBasedTraceIdRatio, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Tracer, TracerProvider

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.sampling import SilenceableSampler, sample_ratio_sampler
from otel_rollout.text.near_miss import did_you_mean
from otel_rollout.version import __version__

_logger = SafeLogger()

SCOPE: Final = InstrumentationScope("otel_rollout", __version__, semconv.SCHEMA_URL)

# Older SDKs don't have the name.
OTEL_CONFIG_FILE: Final = "OTEL_CONFIG_FILE"
_SAMPLER_GROUP: Final = "opentelemetry_traces_sampler"
# Ours is found without its entry point, which a package folder without metadata lacks.
_OUR_SAMPLER: Final = "rollout_sample_ratio"


def application_provider() -> TracerProvider | None:
    """Return the global provider if the application has set one that takes span processors, else None."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, GlobalProvider) or is_weaves(provider):
        return None
    return provider if hasattr(provider, "add_span_processor") else None


def provider_of_config_file() -> TracerProvider | None:
    """Set up the SDK by the file that OTEL_CONFIG_FILE names and return its provider; None if the variable isn't set.

    `opentelemetry-instrument` does the same; in a plain program nobody else does.

    Raises:
        MissingExtraError: OpenTelemetry's package for such files isn't installed.
        ConfigurationError: The file can't be read, or asks for what there isn't.
    """
    path = os.environ.get(OTEL_CONFIG_FILE, "").strip()
    if not path:
        return None
    try:
        from opentelemetry.configuration import configure_sdk, load_config_file

        configure_sdk(load_config_file(path))
    except ImportError as error:
        raise MissingExtraError(
            f"{OTEL_CONFIG_FILE}={path!r}: {error}; pip install opentelemetry-configuration"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"{OTEL_CONFIG_FILE}={path!r}: {error}") from error
    return application_provider()


def is_weaves(provider: TracerProvider) -> bool:
    """Return True for the global provider that `weave.init()` sets for Weave's own spans.

    Its exporter sends every span to W&B's endpoint for conversations, besides the calls of the `weave` exporter.
    """
    attributes = getattr(getattr(provider, "resource", None), "attributes", None) or {}
    names = attributes.get("wandb.sdk.name"), attributes.get("service.name")
    return names == ("weave", "weave-conversation-sdk")


def is_auto_instrumented() -> bool:
    """Return True if `opentelemetry-instrument` set up this process, and so read `OTEL_TRACES_EXPORTER`."""
    return "opentelemetry.instrumentation.auto_instrumentation" in sys.modules


def make_resource(project_name: str, run_id: str | None) -> Resource:
    """Return the resource of our spans; the standard variables come before the project's name."""
    given = Resource.create()
    attributes: dict[str, Any] = {semconv.PROJECT_NAME: project_name, semconv.RUN_ID: run_id or uuid.uuid4().hex}
    if str(given.attributes.get(semconv.SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        attributes[semconv.SERVICE_NAME] = project_name
    if semconv.SERVICE_INSTANCE_ID not in given.attributes:
        attributes[semconv.SERVICE_INSTANCE_ID] = str(uuid.uuid4())
    if semconv.HOST_NAME not in given.attributes:
        attributes[semconv.HOST_NAME] = os.uname().nodename
    if semconv.OPENINFERENCE_PROJECT not in given.attributes:
        attributes[semconv.OPENINFERENCE_PROJECT] = project_name
    return given.merge(Resource(attributes))


def resource_of_child(resource: Resource, run_id: str | None) -> Resource:
    """Return the resource of a forked child: its parent's, with fresh ids in place of generated ones."""
    given = OTELResourceDetector().detect().attributes
    own: dict[str, Any] = {}
    if run_id is None:
        own[semconv.RUN_ID] = uuid.uuid4().hex
    if semconv.SERVICE_INSTANCE_ID not in given:
        own[semconv.SERVICE_INSTANCE_ID] = str(uuid.uuid4())
    return resource.merge(Resource(own))


def make_provider(resource: Resource, limits: SpanLimits) -> SdkTracerProvider:
    """Return a private provider, with the environment's sampler and ids that don't depend on a seed."""
    sampler, fault = read_sampler(os.environ)
    if fault:
        _logger.warning("%s", fault)
    provider = SdkTracerProvider(
        sampler, resource, shutdown_on_exit=False, id_generator=SystemIdGenerator(), span_limits=limits
    )
    provider.sampler = SilenceableSampler(provider.sampler)
    return provider


class GlobalProvider(SdkTracerProvider):
    """Our provider as the global one; a later `init` renews it, as OpenTelemetry doesn't let it be replaced."""

    def __init__(
        self,
        processor: SpanProcessor,
        resource: Resource,
        sampler: Sampler,
        limits: SpanLimits,
        on_other_processor: Callable[[], None],
    ) -> None:
        super().__init__(
            sampler, resource, shutdown_on_exit=False, id_generator=SystemIdGenerator(), span_limits=limits
        )
        super().add_span_processor(processor)
        self.has_other_processors = False
        self._on_other_processor = on_other_processor
        self._made: WeakSet[Any] = WeakSet()
        self._renewed = resource

    @property
    def resource(self) -> Resource:
        """The resource of the last `init`."""
        return self._renewed

    def renew(self, resource: Resource, sampler: Sampler | None = None) -> None:
        """Give all tracers another resource, and another sampler if one is given."""
        self._renewed, self.sampler = resource, sampler or self.sampler
        tracers: list[Any] | None = None
        while tracers is None:
            # The set may change meanwhile: another thread asks for a tracer.
            with suppress(RuntimeError):
                tracers = list(self._made)
        for tracer in tracers:
            tracer.resource, tracer.sampler = self._renewed, self.sampler

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer that later calls of `renew` change."""
        tracer: Any = super().get_tracer(*args, **kwargs)
        tracer.resource, tracer.sampler = self._renewed, self.sampler
        self._made.add(tracer)
        return tracer  # type: ignore[no-any-return]

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a processor of the application; from now on our spans are the SDK's, so that it gets them too."""
        super().add_span_processor(span_processor)
        self.has_other_processors = True
        self._on_other_processor()


def read_sampler(environ: Mapping[str, str]) -> tuple[Sampler | None, str]:
    """Return the sampler of `OTEL_TRACES_SAMPLER` (None for the SDK's own) and the fault of the variables, if any.

    As in the SDK, a value that can't work counts as the default.
    """
    name = environ.get(OTEL_TRACES_SAMPLER, "").strip().lower()
    argument = environ.get(OTEL_TRACES_SAMPLER_ARG, "").strip()
    if not name:
        if argument:
            return None, (
                f"{OTEL_TRACES_SAMPLER_ARG}={argument!r} is ignored: {OTEL_TRACES_SAMPLER} is not set, such as "
                f"{OTEL_TRACES_SAMPLER}={_OUR_SAMPLER} for a share of the prompts"
            )
        return None, ""
    factory: Callable[[str], Any] = sample_ratio_sampler
    if name != _OUR_SAMPLER:
        points = list(entry_points(group=_SAMPLER_GROUP, name=name))
        if not points:
            names = sorted({_OUR_SAMPLER, *(point.name for point in entry_points(group=_SAMPLER_GROUP))})
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            return DEFAULT_ON, f"{OTEL_TRACES_SAMPLER}={name!r} is ignored: there is no such sampler{hint}"
        if points[0].value.startswith("opentelemetry.sdk."):
            return _read_ratio(name, argument)
    try:
        if name != _OUR_SAMPLER:
            factory = points[0].load()
        sampler = factory(argument)
    except Exception as error:  # the factory is another package's: it may raise anything
        return DEFAULT_ON, f"{OTEL_TRACES_SAMPLER_ARG}={argument!r} is ignored, and {OTEL_TRACES_SAMPLER} too: {error}"
    if not isinstance(sampler, Sampler):
        return DEFAULT_ON, f"{OTEL_TRACES_SAMPLER}={name!r} is ignored: {points[0].value} made no Sampler"
    return sampler, ""


def _read_ratio(name: str, argument: str) -> tuple[Sampler | None, str]:
    """Return None for a sampler of the SDK; if its ratio is none, the sampler with the SDK's default and the fault."""
    if not name.endswith("traceidratio") or not argument:
        return None, ""
    with suppress(ValueError):
        if 0.0 <= float(argument) <= 1.0:
            return None, ""
    sampler = ParentBasedTraceIdRatio(1.0) if name.startswith("parentbased") else TraceIdRatioBased(1.0)
    return sampler, f"{OTEL_TRACES_SAMPLER_ARG}={argument!r} is ignored: this should be a ratio from 0 to 1"
