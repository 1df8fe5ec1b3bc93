"""`WeaveSpanExporter`: finished spans to Weave's `calls/complete` API."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind
from otel_rollout.export.http import RequestFailedError, import_requests, shown_url
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.span_facts import is_late_annotation, span_id_of, trace_id_of
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout_weave.api import WeaveApi
from otel_rollout_weave.catalogue import MAX_NAME, Catalogue
from otel_rollout_weave.rewards import Reward, RewardFeedback, reward_feedback_of
from otel_rollout_weave.settings import (
    ASK_FIRST,
    BASE_URL,
    CREDENTIALS_HINT,
    IDS_AS_TEXT,
    PROJECT,
    SETTINGS,
    TRACE_SERVER_URL,
    read_settings,
    run_of_process,
)
from otel_rollout_weave.translate import call_of_span
from otel_rollout_weave.usage import Below

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""A single call may be larger. The server takes 32 MiB, at about a second per MB of numbers."""

MAX_REWARDS: Final = 100
"""The most rewards in one request."""

_NOT_IN_NAMES: Final = re.compile(r"[\\#?%:]")
MAX_SENT_IDS: Final = 65_536
MAX_TRACES: Final = 10_000

MAY_BE_STORED: Final = (Verdict.RETRY, Verdict.UNEXPLAINED)
"""Failures after which the server may have stored the batch."""


class WeaveSpanExporter(OutcomeSpanExporter):
    """Exports spans as Weave calls: a root call per trajectory, its ops nested, its reward as feedback.

    Arguments default to the environment, as weave and wandb read it. Connections open with the first export.

    Args:
        project: `entity/project` or `project`; else the project given to `init`, else WANDB_PROJECT, else the
            service's name.
        entity: The team or user if `project` names none; else WANDB_ENTITY, else the key's default.
        api_key: The key; else WANDB_API_KEY, else the netrc entry that `wandb login` writes.
        base_url: The W&B server; else WANDB_BASE_URL, else the host of `wandb login --host`.
        trace_server_url: The trace server; else WF_TRACE_SERVER_URL, else the trace server of `base_url`.
        timeout: Seconds for a request; else WEAVE_HTTP_TIMEOUT, else 90.
        ids_as_text: Send each list of 64 integers or more as one text, which the server stores several times as fast;
            else OTEL_ROLLOUT_WEAVE_IDS_AS_TEXT.
        ask_first: Ask the server before each batch which of its calls are stored, for spans that another process may
            have sent (a replay, a restart); else OTEL_ROLLOUT_WEAVE_ASK_FIRST. Calls of this process whose answer was
            lost are always asked for.
        max_request_bytes: The maximum size of a request; a larger call is sent alone.
    """

    address_setting = f"{BASE_URL}, or {TRACE_SERVER_URL} for the trace server alone"
    variables = SETTINGS

    def __init__(
        self,
        *,
        project: str | None = None,
        entity: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        trace_server_url: str | None = None,
        timeout: float | None = None,
        ids_as_text: bool | None = None,
        ask_first: bool | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        self._project = project
        # Read at each use: the environment and wandb's files may change.
        self._settings = functools.partial(
            read_settings,
            api_key=api_key,
            base_url=base_url,
            trace_server_url=trace_server_url,
            entity=entity,
            timeout=timeout,
        )
        self._ids_as_text = IDS_AS_TEXT.value(ids_as_text)
        self._ask_first = ASK_FIRST.value(ask_first)
        self._max_request_bytes = max_request_bytes
        self._catalogue: Catalogue | None = None
        # With connections of its own, on another thread: a request that hangs doesn't delay calls.
        self._rewards: RewardFeedback | None = None
        self.follow_up_requests: FollowUpRequests = FollowUpRequests(
            "weave", {"rewards": Kind(self._file_rewards, MAX_REWARDS)}
        )
        # Ids that were in a request: True if the server has them, False if it may have them. A second row of an id
        # would be shown too, until ClickHouse happens to merge the two.
        self._sent: RecentDict[str, bool] = RecentDict(MAX_SENT_IDS)
        # The calls of trajectories whose root has not come, for the sums that Weave shows on the root.
        self._below: RecentDict[int, Below] = RecentDict(MAX_TRACES)

    def check(self) -> None:
        """Import what `send` needs."""
        import_requests()

    def check_project(self, name: str) -> None:
        """Raise a ConfigurationError for a name that W&B refuses, or that names more than an entity and a project."""
        entity, _, project = (self._project or name).rpartition("/")
        if not project or "/" in entity or len(project) > MAX_NAME or _NOT_IN_NAMES.search(project):
            raise ConfigurationError(
                f"project_name={self._project or name!r}: Weave takes 'entity/project' or 'project', with "
                f"{MAX_NAME} characters at most and none of \\ # ? % :"
            )

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to store `spans`, except for those that are stored already."""
        try:
            self._attempt(spans)
        except RequestFailedError as failure:
            if failure.outcome.verdict is Verdict.CONFIGURATION_ERROR:
                # The next attempt reads the settings again, and asks for the project again.
                self._disconnect()
            return failure.outcome
        except Exception as error:
            # Halving the batch finds the span at fault.
            warn_once(f"Weave {type(error).__name__}", "a span can't be sent to Weave", exc_info=error)
            return Outcome(Verdict.REFUSED, f"{type(error).__name__}: {error}")
        for span in spans:
            self._sent.pop(span_id_of(span), None)
        self._note_below(spans)
        return DELIVERED

    @property
    def destination(self) -> str:
        """The trace server, with the entity and project if they are given."""
        settings = self._settings()
        parts = [
            shown_url(settings.trace_server_url),
            f"entity {settings.entity}" if settings.entity else "",
            f"project {self._project}" if self._project else "",
        ]
        return ", ".join(part for part in parts if part)

    def expect_repeats(self) -> None:
        """Ask before each batch which of its calls are stored: Weave shows a second row too."""
        self._ask_first = True

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`."""
        catalogue = self._connect()
        project_id = catalogue.project_id(self._project_name(spans[0]))
        stored = catalogue.api.stored_calls(project_id, [span_id_of(span) for span in spans])
        url = shown_url(catalogue.api.settings.trace_server_url)
        return ReadBack(len(stored), f"project {project_id} of Weave at {url}")

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in Weave."""
        app = self._app()
        return [
            f"The trajectories are in Weave: {app}, project {self._project or project_name}, tab Traces.",
            "Filter them by attributes.step = 1.",
        ]

    def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
        """Return the URL of a trajectory's call, once its project's owner is known."""
        catalogue = self._catalogue
        project_id = catalogue.known_project_id(self._project or project_name) if catalogue is not None else None
        return None if project_id is None else f"{self._app()}/{quote(project_id)}/r/call/{root_id}"

    def _app(self) -> str:
        return shown_url(self._settings().api_url).replace("://api.wandb.ai", "://wandb.ai")

    def shutdown(self) -> None:
        """Finish follow-up requests within `export_timeout`, and close the connections."""
        self.follow_up_requests.shutdown(monotonic() + self.export_timeout)
        self._disconnect()
        if not self.follow_up_requests.is_running:
            self._disconnect_rewards()

    # --- one attempt

    def _attempt(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans:
            return
        catalogue = self._connect()
        by_project: dict[str, list[ReadableSpan]] = {}
        for span in spans:
            by_project.setdefault(self._project_name(span), []).append(span)
        for name, group in by_project.items():
            project_id = catalogue.project_id(name)
            self._send_calls(catalogue, project_id, group)
            try:
                for reward in reward_feedback_of(group):
                    key = f"{reward.root_id} {reward.name}"
                    self.follow_up_requests.add("rewards", (project_id, reward.name), key, reward, order=reward.time_ns)
            except Exception:
                # The calls are stored.
                internal_error("noting the rewards of stored calls")

    def _send_calls(self, catalogue: Catalogue, project_id: str, spans: Sequence[ReadableSpan]) -> None:
        missing = self._missing(catalogue.api, project_id, spans)
        below = self._below_roots(spans)
        # Encode request by request: a stock span processor sends 512 spans of any size together.
        calls = self._encoded(catalogue, project_id, missing, below)
        for part in _parts(calls, self._max_request_bytes):
            ids = [one for one, _ in part]
            try:
                catalogue.api.post_calls(project_id, [call for _, call in part])
            except RequestFailedError as failure:
                if failure.outcome.verdict in MAY_BE_STORED or failure.answer.status == 200:
                    self._sent.update(dict.fromkeys(ids, False))
                raise
            # Dropped once the whole batch is stored.
            self._sent.update(dict.fromkeys(ids, True))

    def _encoded(
        self,
        catalogue: Catalogue,
        project_id: str,
        spans: Sequence[ReadableSpan],
        below: Mapping[int, Below],
    ) -> Iterator[tuple[str, bytes]]:
        run_id = run_of_process(project_id)
        for span in spans:
            record = call_of_span(
                span,
                project_id=project_id,
                op_name=catalogue.op_name(project_id, span.name),
                run_id=run_id,
                below=below[trace_id_of(span)] if span.parent is None else None,
                ids_as_text=self._ids_as_text,
            )
            yield record["id"], orjson.dumps(record)

    def _missing(self, api: WeaveApi, project_id: str, spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
        ids = [span_id_of(span) for span in spans]
        doubtful = [one for one in ids if self._ask_first or self._sent.get(one) is False]
        if doubtful:
            try:
                self._sent.update(dict.fromkeys(api.stored_calls(project_id, doubtful), True))
            except RequestFailedError as failure:
                if failure.outcome.verdict in MAY_BE_STORED:
                    raise
                # A key that may write and not read: a call twice is better than none.
                warn_once("Weave calls", "Weave does not say which calls it has, so some may come twice: %s", failure)
        return [span for span, one in zip(spans, ids, strict=True) if not self._sent.get(one)]

    # --- the connection

    def _connect(self) -> Catalogue:
        if self._catalogue is None:
            self._catalogue = self._new_catalogue()
        return self._catalogue

    def _new_catalogue(self) -> Catalogue:
        settings = self._settings()
        if not settings.api_key:
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, f"no W&B API key: {CREDENTIALS_HINT}"))
        return Catalogue(WeaveApi(settings))

    def _disconnect(self) -> None:
        catalogue, self._catalogue = self._catalogue, None
        if catalogue is not None:
            catalogue.api.close()

    def _file_rewards(self, group: tuple[str, str], rewards: list[Reward]) -> Outcome:
        """Make one attempt to file rewards of stored calls."""
        try:
            if self._rewards is None:
                self._rewards = RewardFeedback(self._new_catalogue())
            self._rewards.file(*group, rewards)
        except RequestFailedError as failure:
            if failure.outcome.verdict is Verdict.CONFIGURATION_ERROR:
                # The next attempt reads the settings again.
                self._disconnect_rewards()
            return failure.outcome
        return DELIVERED

    def _disconnect_rewards(self) -> None:
        rewards, self._rewards = self._rewards, None
        if rewards is not None:
            rewards.close()

    def _project_name(self, span: ReadableSpan) -> str:
        if self._project:
            return self._project
        resource = span.resource.attributes if span.resource is not None else {}
        entity, project = resource.get("wandb.entity"), resource.get("wandb.project")
        if project:
            return f"{entity}/{project}" if entity else str(project)
        service = str(resource.get(semconv.SERVICE_NAME) or "")
        name = resource.get(semconv.PROJECT_NAME) or PROJECT.value()
        if not name and not service.startswith("unknown_service"):
            name = service
        if not name:
            raise RequestFailedError(Outcome(Verdict.CONFIGURATION_ERROR, f"no Weave project: set {PROJECT}"))
        return str(name)

    # --- the calls below a root

    def _below_roots(self, spans: Sequence[ReadableSpan]) -> dict[int, Below]:
        roots = {trace_id_of(span) for span in spans if span.parent is None}
        below = {trace_id: self._below.get(trace_id, Below()).copy() for trace_id in roots}
        for span in spans:
            if span.parent is not None and (trace_id := trace_id_of(span)) in below and not is_late_annotation(span):
                below[trace_id].add(span)
        return below

    def _note_below(self, spans: Sequence[ReadableSpan]) -> None:
        for span in spans:
            if span.parent is not None:
                trace_id = trace_id_of(span)
                below = self._below.get(trace_id, Below())
                below.add(span)
                # Set each time: the traces that were added to longest ago are forgotten first.
                self._below[trace_id] = below
        for span in spans:
            if span.parent is None:
                self._below.pop(trace_id_of(span), None)


def _parts(calls: Iterable[tuple[str, bytes]], limit: int) -> Iterator[list[tuple[str, bytes]]]:
    part: list[tuple[str, bytes]] = []
    size = 0
    for call in calls:
        if part and size + len(call[1]) > limit:
            yield part
            part, size = [], 0
        part.append(call)
        size += len(call[1])
    if part:
        yield part
