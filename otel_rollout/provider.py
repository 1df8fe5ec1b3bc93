"""The provider that spans belong to: the one given, the application's own, or a private one of ours."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import TracerProvider

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError
from otel_rollout.ids import SystemIdGenerator
from otel_rollout.sampling import SilenceableSampler

__all__ = [
    "SCOPE",
    "application_provider",
    "environment_sampler",
    "is_auto_instrumented",
    "make_provider",
    "make_resource",
]

SCOPE: Final = InstrumentationScope("otel_rollout", version("otel-rollout"))

_SDK_SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
_AUTO_INSTRUMENTATION: Final = "opentelemetry.instrumentation.auto_instrumentation"
_SAMPLER_GROUP: Final = "opentelemetry_traces_sampler"


def application_provider() -> TracerProvider | None:
    """Return the global provider if the application has set one that takes span processors, else None."""
    provider = trace.get_tracer_provider()
    return provider if hasattr(provider, "add_span_processor") else None


def is_auto_instrumented() -> bool:
    """Return whether `opentelemetry-instrument` has set up this process: it has read `OTEL_TRACES_EXPORTER` then."""
    return _AUTO_INSTRUMENTATION in sys.modules


def make_resource(project_name: str, run_id: str | None) -> Resource:
    """Return the resource of our spans: the standard variables first, then what the project says.

    Args:
        project_name: Names the service and the project where the variables don't.
        run_id: Names the run; a fresh id where None.
    """
    given = Resource.create()
    attributes: dict[str, Any] = {
        semconv.PROJECT_NAME: project_name,
        semconv.RUN_ID: run_id or uuid.uuid4().hex,
    }
    if str(given.attributes.get(semconv.SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        attributes[semconv.SERVICE_NAME] = project_name
    if semconv.SERVICE_INSTANCE_ID not in given.attributes:
        attributes[semconv.SERVICE_INSTANCE_ID] = str(uuid.uuid4())
    if semconv.OPENINFERENCE_PROJECT not in given.attributes:
        attributes[semconv.OPENINFERENCE_PROJECT] = project_name
    return given.merge(Resource(attributes))


def resource_of_child(resource: Resource, run_id: str | None) -> Resource:
    """Return the resource of a forked child: its parent's, with ids of its own where nobody has given them.

    Args:
        resource: The parent's.
        run_id: Names the run.
    """
    given = OTELResourceDetector().detect().attributes
    own: dict[str, Any] = {}
    if run_id is None:
        own[semconv.RUN_ID] = uuid.uuid4().hex
    if semconv.SERVICE_INSTANCE_ID not in given:
        own[semconv.SERVICE_INSTANCE_ID] = str(uuid.uuid4())
    return resource.merge(Resource(own))


def make_provider(resource: Resource, limits: SpanLimits) -> SdkTracerProvider:
    """Return a provider of our own, with the sampler that the environment asks for and ids that no seed reaches.

    Args:
        resource: What its spans were made by.
        limits: The limits of its spans.

    Raises:
        ConfigurationError: `OTEL_TRACES_SAMPLER` names no sampler, or its argument is none.
    """
    provider = SdkTracerProvider(
        resource=resource,
        sampler=environment_sampler(os.environ),
        id_generator=SystemIdGenerator(),
        span_limits=limits,
        shutdown_on_exit=False,
    )
    provider.sampler = SilenceableSampler(provider.sampler)
    return provider


def environment_sampler(environ: Mapping[str, str]) -> Sampler | None:
    """Return the sampler of `OTEL_TRACES_SAMPLER`; None where the SDK reads the variable itself.

    Args:
        environ: The environment.

    Raises:
        ConfigurationError: `OTEL_TRACES_SAMPLER` names no sampler, or its argument is none.
    """
    name = environ.get(OTEL_TRACES_SAMPLER, "").strip().lower()
    argument = environ.get(OTEL_TRACES_SAMPLER_ARG, "").strip()
    if not name:
        return None
    if name in _SDK_SAMPLERS:
        if name.endswith("traceidratio") and argument:
            _check_ratio(argument)
        return None
    points = list(entry_points(group=_SAMPLER_GROUP, name=name))
    if not points:
        names = sorted({*_SDK_SAMPLERS, *(point.name for point in entry_points(group=_SAMPLER_GROUP))})
        raise ConfigurationError(
            f"{OTEL_TRACES_SAMPLER}={name!r}: there is no such sampler; there are {', '.join(names)}"
        )
    try:
        sampler = points[0].load()(argument)
    except Exception as error:
        raise ConfigurationError(f"{OTEL_TRACES_SAMPLER_ARG}={argument!r}: {error}") from error
    if not isinstance(sampler, Sampler):
        raise ConfigurationError(f"{OTEL_TRACES_SAMPLER}={name!r}: {points[0].value} made no Sampler")
    return sampler


def _check_ratio(argument: str) -> None:
    try:
        ratio = float(argument)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigurationError(f"{OTEL_TRACES_SAMPLER_ARG}={argument!r}: this should be a ratio from 0 to 1")
