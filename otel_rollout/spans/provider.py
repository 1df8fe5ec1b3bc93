"""The provider that spans belong to: the one given, the application's own, or a private one of ours."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import TracerProvider

from otel_rollout import semconv
from otel_rollout.spans.ids import SystemIdGenerator
from otel_rollout.spans.sampling import SilenceableSampler, sample_ratio_sampler
from otel_rollout.version import __version__

__all__ = [
    "SCOPE",
    "application_provider",
    "is_auto_instrumented",
    "make_provider",
    "make_resource",
    "read_sampler",
    "resource_of_child",
]

_logger = logging.getLogger("otel_rollout")

SCOPE: Final = InstrumentationScope("otel_rollout", __version__)

_AUTO_INSTRUMENTATION: Final = "opentelemetry.instrumentation.auto_instrumentation"
_SAMPLER_GROUP: Final = "opentelemetry_traces_sampler"
# Ours needs no entry point: a package folder without metadata has none.
_OUR_SAMPLER: Final = "rollout_sample_ratio"
_SDK: Final = "opentelemetry.sdk."


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
    """
    sampler, fault = read_sampler(os.environ)
    if sampler is not None and fault:
        # Of its own samplers the SDK says itself what is wrong.
        _logger.warning("%s", fault)
    provider = SdkTracerProvider(
        resource=resource,
        sampler=sampler,
        id_generator=SystemIdGenerator(),
        span_limits=limits,
        shutdown_on_exit=False,
    )
    provider.sampler = SilenceableSampler(provider.sampler)
    return provider


def read_sampler(environ: Mapping[str, str]) -> tuple[Sampler | None, str]:
    """Return the sampler of `OTEL_TRACES_SAMPLER`, None for one of the SDK's own, and what is wrong with the variables.

    As the SDK does, a value that can't work counts as the default.

    Args:
        environ: The environment.
    """
    name = environ.get(OTEL_TRACES_SAMPLER, "").strip().lower()
    argument = environ.get(OTEL_TRACES_SAMPLER_ARG, "").strip()
    if not name:
        return None, ""
    factory: Callable[[str], Any] = sample_ratio_sampler
    if name != _OUR_SAMPLER:
        points = list(entry_points(group=_SAMPLER_GROUP, name=name))
        if not points or points[0].value.startswith(_SDK):
            return None, _fault_of_the_sdks(name, argument, is_known=bool(points))
    try:
        if name != _OUR_SAMPLER:
            factory = points[0].load()
        sampler = factory(argument)
    except Exception as error:  # somebody else's factory may raise what it likes
        return DEFAULT_ON, f"{OTEL_TRACES_SAMPLER_ARG}={argument!r} is ignored, and {OTEL_TRACES_SAMPLER} too: {error}"
    if not isinstance(sampler, Sampler):
        return DEFAULT_ON, f"{OTEL_TRACES_SAMPLER}={name!r} is ignored: {points[0].value} made no Sampler"
    return sampler, ""


def _fault_of_the_sdks(name: str, argument: str, *, is_known: bool) -> str:
    """Return what the SDK will say of a sampler that it reads itself."""
    if not is_known:
        names = sorted({_OUR_SAMPLER, *(point.name for point in entry_points(group=_SAMPLER_GROUP))})
        return f"{OTEL_TRACES_SAMPLER}={name!r} is ignored: there is no such sampler; there are {', '.join(names)}"
    if name.endswith("traceidratio") and argument:
        try:
            is_ratio = 0.0 <= float(argument) <= 1.0
        except ValueError:
            is_ratio = False
        if not is_ratio:
            return f"{OTEL_TRACES_SAMPLER_ARG}={argument!r} is ignored: this should be a ratio from 0 to 1"
    return ""
