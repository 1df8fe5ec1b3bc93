"""`PhoenixSpanExporter`: finished spans to Phoenix by OTLP, their rewards by its REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind, NotYet
from otel_rollout.export.http import HttpClient, RequestFailedError, destination_of, import_requests, shown_url
from otel_rollout.export.otlp_http import OTLP_HEADERS, TRACES_PATH, OtlpHttpSender, read_headers
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.span_facts import is_late_annotation, is_own, rollout_label, span_id_of, trace_id_of
from otel_rollout.finish.span_copies import copy_span
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error
from otel_rollout.settings import Setting, read_text
from otel_rollout_phoenix.annotations import Annotation, annotations_of
from otel_rollout_phoenix.api import CONFIGURATION_HINT, PhoenixApi

DEFAULT_ADDRESS: Final = "http://localhost:6006"
ENDPOINT: Final = Setting("PHOENIX_COLLECTOR_ENDPOINT", read_text, DEFAULT_ADDRESS, "the address", "endpoint")
API_KEY: Final = Setting("PHOENIX_API_KEY", read_text, None, "the key", "api_key")
HEADERS: Final = Setting("PHOENIX_CLIENT_HEADERS", str, None, "headers of each request: `name=value,…`", "headers")
PROJECT: Final = Setting(
    "PHOENIX_PROJECT", read_text, None, "the project of spans that name none", instead="PHOENIX_PROJECT_NAME"
)
DEFAULT_PROJECT: Final = "default"
"""The project in Phoenix of spans that name none."""
MAX_ANNOTATIONS: Final = 100
"""The most annotations of spans in one request."""
MAX_KNOWN: Final = 65_536
TIMEOUT: Final = 30.0
MAX_READ_BACK: Final = 1000


class PhoenixSpanExporter(OutcomeSpanExporter):
    """Exports spans to Phoenix by OTLP over HTTP, and rewards as annotations of spans, traces and sessions.

    Arguments default to the environment, as `phoenix.otel.register` reads it.

    Args:
        endpoint: The base address; else PHOENIX_COLLECTOR_ENDPOINT, else http://localhost:6006.
        api_key: The key; else PHOENIX_API_KEY.
        headers: Sent with each request, besides the headers of PHOENIX_CLIENT_HEADERS.
        timeout: Seconds for a request.
    """

    address_setting = str(ENDPOINT)
    variables = (ENDPOINT, API_KEY, HEADERS, PROJECT)

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._settings = read_settings(endpoint, api_key, headers)
        address = self._settings.address

        def client() -> HttpClient:
            return HttpClient(
                # Read again after an auth error: the key may have been renewed.
                headers=lambda: {**OTLP_HEADERS, **read_settings(endpoint, api_key, headers).headers},
                timeout=timeout,
                configuration_hint=CONFIGURATION_HINT,
            )

        self._client = client()
        self._sender = OtlpHttpSender(self._client, address + TRACES_PATH, configuration_hint=CONFIGURATION_HINT)
        self._api = PhoenixApi(self._client, address)
        # With connections of its own, on another thread: a request that hangs doesn't delay spans.
        self._side_api = PhoenixApi(client(), address)
        self.follow_up_requests: FollowUpRequests = FollowUpRequests(
            "phoenix", {"rewards": Kind(self._annotate, MAX_ANNOTATIONS)}
        )
        # The times of the annotations that were sent: an older one never replaces a newer one.
        self._annotated: RecentDict[str, int] = RecentDict(MAX_KNOWN)
        self._resources: RecentDict[int, tuple[Resource, Resource]] = RecentDict(16)

    def check(self) -> None:
        """Check the settings without a connection.

        Raises:
            ConfigurationError: The address is no URL.
        """
        self._settings.check()
        import_requests()

    @property
    def destination(self) -> str:
        """The address, with a hash of the headers."""
        return destination_of(self._settings.address, self._settings.headers)

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`; rewards are follow-up requests."""
        try:
            spans = self._with_projects(spans)
        except Exception:
            internal_error("naming the project of spans")
        stored = [_with_label(span) for span in spans if not is_late_annotation(span)]
        outcome = self._sender.send(stored) if stored else DELIVERED
        if outcome.verdict is Verdict.DELIVERED:
            try:
                self._add_annotations(spans)
            except Exception:
                # The spans are sent.
                internal_error("noting the rewards of sent spans")
        return outcome

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`, all of one trace.

        Raises:
            OSError: The request failed.
        """
        project = _project(self._with_projects(spans)[0])
        try:
            stored = self._api.stored_spans(project, f"{trace_id_of(spans[0]):032x}", limit=MAX_READ_BACK)
        except RequestFailedError as failure:
            raise OSError(failure.outcome.reason) from failure
        found = len(stored & set(map(span_id_of, spans)))
        return ReadBack(found, f"project {project} of Phoenix at {shown_url(self._settings.address)}")

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in Phoenix."""
        return [
            f"The trajectories are in Phoenix: {shown_url(self._settings.address)}, project {project_name}.",
            "The tab Sessions has the rollouts of one prompt side by side. Filter the tab Spans with",
            "",
            "    metadata['step'] == 1 and annotations['reward'].score > 0.5",
        ]

    def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
        """Return the URL of a trajectory, which Phoenix resolves by the trace's id."""
        return f"{shown_url(self._settings.address).rstrip('/')}/redirects/traces/{trace_id}"

    def shutdown(self) -> None:
        """Finish follow-up requests within `export_timeout`, and close the connections."""
        self.follow_up_requests.shutdown(monotonic() + self.export_timeout)
        self._api.close()
        if not self.follow_up_requests.is_running:
            self._side_api.close()

    # --- spans

    def _with_projects(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """Return the spans, with the environment's project if they have none."""
        project = PROJECT.value()
        if project is None or all(semconv.OPENINFERENCE_PROJECT in span.resource.attributes for span in spans):
            return spans
        return [
            span
            if semconv.OPENINFERENCE_PROJECT in span.resource.attributes
            else copy_span(span, dict(span.attributes or {}), resource=self._resource(span.resource, project))
            for span in spans
        ]

    def _resource(self, resource: Resource, project: str) -> Resource:
        known = self._resources.get(id(resource))
        if known is None or known[0] is not resource:
            known = resource, resource.merge(Resource({semconv.OPENINFERENCE_PROJECT: project}))
            self._resources[id(resource)] = known
        return known[1]

    # --- rewards

    def _add_annotations(self, spans: Sequence[ReadableSpan]) -> None:
        for span in spans:
            for each in annotations_of([span]):
                if self._annotated.get(each.key, -1) <= each.time_ns:
                    self._annotated[each.key] = each.time_ns
                    self.follow_up_requests.add(
                        "rewards", _project(span), each.key, each, order=each.time_ns, payload_bytes=each.size
                    )

    def _annotate(self, project: str, annotations: list[Annotation]) -> Outcome | NotYet:
        """Make one attempt to annotate spans, unless Phoenix has a later value; some may not be stored yet."""
        try:
            stored = self._side_api.stored_times(project, annotations)
            newer = [each for each in annotations if stored.get(each.key, -1) <= each.time_ns]
            missing = self._side_api.annotate(newer)
        except RequestFailedError as failure:
            return failure.outcome
        if not missing:
            return DELIVERED
        waiting = {position for position, each in enumerate(annotations) if each.span_id in missing}
        return NotYet(waiting, f"Phoenix has not stored {len(missing)} of the spans yet")


def _with_label(span: ReadableSpan) -> ReadableSpan:
    """Return a trajectory's root under a name that begins with its place and reward, `s12 · r3 = 0.5 · step 7 · agent`.

    In Phoenix's list, the columns of tags and annotations are beyond the right edge of most windows.
    """
    label = rollout_label(span, with_reward=True) if span.parent is None and is_own(span) else ""
    return copy_span(span, dict(span.attributes or {}), name=f"{label} · {span.name}") if label else span


def _project(span: ReadableSpan) -> str:
    return str(span.resource.attributes.get(semconv.OPENINFERENCE_PROJECT) or DEFAULT_PROJECT)


@dataclass(frozen=True)
class PhoenixSettings:
    """The settings of one exporter; the address has no slash at its end."""

    address: str
    headers: dict[str, str]

    def check(self) -> None:
        """Raise a ConfigurationError if the address is no URL."""
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            shown = shown_url(self.address)
            raise ConfigurationError(f"{ENDPOINT}={shown!r}: this should be a URL such as {DEFAULT_ADDRESS}")


def read_settings(
    endpoint: str | None = None, api_key: str | None = None, headers: Mapping[str, str] | None = None
) -> PhoenixSettings:
    """Return the settings of the arguments, else of the environment; an endpoint may end with `/v1/traces`."""
    address = ENDPOINT.value(endpoint or None).rstrip("/")
    given = read_headers(HEADERS)
    if key := API_KEY.value(api_key or None):
        given["authorization"] = f"Bearer {key}"
    given.update({name.lower(): value for name, value in (headers or {}).items()})
    return PhoenixSettings(address.removesuffix(TRACES_PATH), given)
