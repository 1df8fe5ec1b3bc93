"""`WeaveSpanExporter`: finished spans to Weave's `calls/complete` API."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.errors import ConfigurationError
from otel_rollout.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.http import require_requests, shown_url
from otel_rollout.log_once import internal_error
from otel_rollout.settings import read_flag
from otel_rollout.side_work import Kind, SideWork
from otel_rollout_weave.api import RequestFailedError, WeaveApi
from otel_rollout_weave.catalogue import Catalogue
from otel_rollout_weave.rewards import Reward, RewardFeedback, reward_feedback_of
from otel_rollout_weave.sent import SentIds, StatusesByTrace
from otel_rollout_weave.settings import CREDENTIALS_HINT, WeaveSettings, read_settings
from otel_rollout_weave.translate import NONE_BELOW, StatusCounts, call_id, call_of_span
from otel_rollout_weave.wandb_run import run_of_process

__all__ = ["WeaveSpanExporter"]

_logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""One call alone may be larger. The server takes 32 MiB, at about a second per MB of numbers."""

MAX_REWARDS: Final = 100
"""How many rewards are filed in one request."""

IDS_AS_TEXT: Final = "OTEL_ROLLOUT_WEAVE_IDS_AS_TEXT"
ASK_FIRST: Final = "OTEL_ROLLOUT_WEAVE_ASK_FIRST"

MAY_BE_STORED: Final = (Verdict.RETRY, Verdict.UNEXPLAINED)
"""Failures after which the server may have the batch all the same."""


@dataclass
class _Connection:
    """A server that we have credentials for, and what we know to be there."""

    api: WeaveApi
    catalogue: Catalogue


class WeaveSpanExporter(OutcomeSpanExporter):
    """Exports spans as Weave calls: a root call per trajectory, its ops nested, its reward as feedback.

    What is left out is read from the environment, as weave and wandb read it. Nothing is opened before the
    first span is exported.

    Args:
        project: `entity/project` or `project`; else the project given to `init`, else WANDB_PROJECT, else the
            service's name.
        entity: The team or user, where `project` names none; else WANDB_ENTITY, else the key's default.
        api_key: The key; else WANDB_API_KEY, else the netrc entry that `wandb login` writes.
        base_url: The W&B server; else WANDB_BASE_URL, else what `wandb login --host` noted.
        trace_server_url: The trace server; else WF_TRACE_SERVER_URL, else the one that belongs to `base_url`.
        timeout: Seconds for a request; else WEAVE_HTTP_TIMEOUT, else 90.
        ids_as_text: Send each list of 64 whole numbers or more as one text, which the server takes several
            times as fast; else OTEL_ROLLOUT_WEAVE_IDS_AS_TEXT.
        ask_first: Ask the server before each batch which of its calls it has, for spans that another process
            may have sent (a replay, a restart); else OTEL_ROLLOUT_WEAVE_ASK_FIRST. Calls of this process
            whose answer was lost are asked for in any case.
        max_request_bytes: The size of a request that is not passed by more than one call.
    """

    variables: ClassVar[Mapping[str, str]] = {
        "WANDB_API_KEY": "the key; else the netrc entry that `wandb login` writes",
        "WANDB_ENTITY": "the team or user; else the key's default",
        "WANDB_PROJECT": "the project of spans that name none",
        "WANDB_RUN_ID": "the run that calls belong to",
        "WANDB_BASE_URL": "the W&B server",
        "WANDB_PUBLIC_BASE_URL": "its name for others, where that is another",
        "WANDB_CONFIG_DIR": "where `wandb login --host` notes the server",
        "WF_TRACE_SERVER_URL": "the trace server; else the one that belongs to the W&B server",
        "WEAVE_HTTP_TIMEOUT": "seconds for a request, default 90",
        "WEAVE_INSECURE_DISABLE_SSL": "`true`: don't check the server's certificate",
        IDS_AS_TEXT: "send long lists of whole numbers as texts",
        ASK_FIRST: "ask the server before each batch which of its calls it has",
    }

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
        self._entity = entity
        self._api_key = api_key
        self._base_url = base_url
        self._trace_server_url = trace_server_url
        self._timeout = timeout
        self._ids_as_text = _flag(IDS_AS_TEXT) if ids_as_text is None else ids_as_text
        self._ask_first = _flag(ASK_FIRST) if ask_first is None else ask_first
        self._max_request_bytes = max_request_bytes
        self._connection: _Connection | None = None
        # Of its own, for another thread: one that hangs doesn't hold up calls.
        self._rewards: tuple[WeaveApi, RewardFeedback] | None = None
        self.side_work: SideWork = SideWork("weave", {"rewards": Kind(self._file_rewards, MAX_REWARDS)})
        self._sent = SentIds()
        self._statuses = StatusesByTrace()
        self._told: set[str] = set()

    def check(self) -> None:
        """Look for what can be seen to be wrong without a connection.

        Raises:
            ConfigurationError: A variable of ours is neither true nor false.
            MissingExtraError: requests isn't installed.
        """
        for variable in (IDS_AS_TEXT, ASK_FIRST):
            read_flag(variable)
        require_requests()

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to store `spans`, without those that the server has already."""
        try:
            self._attempt(spans)
        except RequestFailedError as failure:
            return self._failed(failure.outcome)
        except Exception as error:
            # Halving the batch finds the span that this came from.
            self._tell(f"internal {type(error).__name__}", "a span can't be sent to Weave", with_traceback=True)
            return Outcome(Verdict.REFUSED, f"{type(error).__name__}: {error}")
        self._sent.forget(call_id(span) for span in spans)
        self._count_statuses(spans)
        return DELIVERED

    @property
    def destination(self) -> str:
        """The trace server, with the entity and project that stand in the place of the spans' own."""
        settings = self._settings()
        parts = [
            shown_url(settings.trace_server_url),
            f"entity {settings.entity}" if settings.entity else "",
            f"project {self._project}" if self._project else "",
        ]
        return ", ".join(part for part in parts if part)

    def expect_repeats(self) -> None:
        """Ask before each batch which of its calls are stored: a second row would be shown twice."""
        self._ask_first = True

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Ask which of `spans` are stored."""
        connection = self._connect()
        project_id = connection.catalogue.project_id(self._project_name(spans[0]))
        stored = connection.api.stored_calls(project_id, [call_id(span) for span in spans])
        url = shown_url(connection.api.settings.trace_server_url)
        return ReadBack(len(stored), f"project {project_id} of Weave at {url}")

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in Weave."""
        app = shown_url(self._settings().api_url).replace("://api.wandb.ai", "://wandb.ai")
        return [
            f"The trajectories are in Weave: {app}, project {self._project or project_name}, tab Traces.",
            "Filter them by attributes.step = 1.",
        ]

    def shutdown(self) -> None:
        """Finish side work within `export_timeout`, and close the connections."""
        self.side_work.shutdown(time.monotonic() + self.export_timeout)
        self._disconnect()
        if not self.side_work.is_running:
            self._disconnect_rewards()

    # --- one attempt

    def _attempt(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans:
            return
        connection = self._connect()
        by_project: dict[str, list[ReadableSpan]] = {}
        for span in spans:
            by_project.setdefault(self._project_name(span), []).append(span)
        for name, group in by_project.items():
            project_id = connection.catalogue.project_id(name)
            self._send_calls(connection, project_id, group)
            try:
                for reward in reward_feedback_of(group):
                    self.side_work.add("rewards", project_id, reward.root_id, reward, order=reward.time_ns)
            except Exception:  # noqa: BLE001, RUF100 - the calls are stored, whatever this is
                internal_error("noting the rewards of stored calls")

    def _send_calls(self, connection: _Connection, project_id: str, spans: Sequence[ReadableSpan]) -> None:
        missing = self._missing(connection.api, project_id, spans)
        below = self._statuses_below(spans)
        # Encoded request by request: a stock span processor hands over 512 spans of any size at a time.
        calls = self._encoded(connection.catalogue, project_id, missing, below)
        for part in _parts(calls, self._max_request_bytes):
            ids = [one for one, _ in part]
            try:
                connection.api.post_calls(project_id, [call for _, call in part])
            except RequestFailedError as failure:
                if failure.outcome.verdict in MAY_BE_STORED:
                    self._sent.doubt(ids)
                raise
            # Forgotten again once the whole batch is through.
            self._sent.confirm(ids)

    def _encoded(
        self,
        catalogue: Catalogue,
        project_id: str,
        spans: Sequence[ReadableSpan],
        below: Mapping[int, StatusCounts],
    ) -> Iterator[tuple[str, bytes]]:
        run_id = run_of_process(project_id)
        for span in spans:
            record = call_of_span(
                span,
                project_id=project_id,
                op_name=catalogue.op_name(project_id, span.name),
                run_id=run_id,
                below=below[_trace_id(span)] if span.parent is None else NONE_BELOW,
                ids_as_text=self._ids_as_text,
            )
            yield record["id"], orjson.dumps(record)

    def _missing(self, api: WeaveApi, project_id: str, spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
        sent = self._sent
        doubtful = [one for span in spans if sent.is_doubtful(one := call_id(span)) or self._ask_first]
        if doubtful:
            try:
                sent.confirm(api.stored_calls(project_id, doubtful))
            except RequestFailedError as failure:
                if failure.outcome.verdict in MAY_BE_STORED:
                    raise
                # A key that may write and not read: a call twice is better than none.
                self._tell("ask", f"Weave does not say which calls it has, so some may come twice: {failure}")
        return [span for span in spans if not sent.is_stored(call_id(span))]

    # --- the connection

    def _connect(self) -> _Connection:
        if self._connection is None:
            api = self._new_api()
            self._connection = _Connection(api, Catalogue(api))
        return self._connection

    def _new_api(self) -> WeaveApi:
        settings = self._settings()
        if not settings.api_key:
            raise RequestFailedError(Outcome(Verdict.DENIED, f"no W&B API key: {CREDENTIALS_HINT}"))
        return WeaveApi(settings)

    def _settings(self) -> WeaveSettings:
        return read_settings(
            api_key=self._api_key,
            base_url=self._base_url,
            trace_server_url=self._trace_server_url,
            entity=self._entity,
            timeout=self._timeout,
        )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.api.close()

    def _file_rewards(self, project_id: str, rewards: list[Reward]) -> Outcome:
        """Make one attempt to file rewards whose calls are stored."""
        try:
            if self._rewards is None:
                api = self._new_api()
                self._rewards = api, RewardFeedback(api, Catalogue(api))
            self._rewards[1].file(project_id, rewards)
        except RequestFailedError as failure:
            if failure.outcome.verdict is Verdict.DENIED:
                # The next attempt reads the settings anew.
                self._disconnect_rewards()
            return failure.outcome
        return DELIVERED

    def _disconnect_rewards(self) -> None:
        rewards, self._rewards = self._rewards, None
        if rewards is not None:
            rewards[0].close()

    def _project_name(self, span: ReadableSpan) -> str:
        if self._project:
            return self._project
        resource = span.resource.attributes if span.resource is not None else {}
        entity, project = resource.get("wandb.entity"), resource.get("wandb.project")
        if project:
            return f"{entity}/{project}" if entity else str(project)
        service = str(resource.get(semconv.SERVICE_NAME) or "")
        name = resource.get(semconv.PROJECT_NAME) or os.environ.get("WANDB_PROJECT")
        if not name and not service.startswith("unknown_service"):
            name = service
        if not name:
            raise RequestFailedError(Outcome(Verdict.DENIED, "no Weave project: set WANDB_PROJECT"))
        return str(name)

    # --- what is told and counted

    def _failed(self, outcome: Outcome) -> Outcome:
        if outcome.verdict is Verdict.DENIED:
            # The next attempt reads the settings anew, and asks for the project again.
            self._disconnect()
        return outcome

    def _tell(self, cause: str, message: str, *, with_traceback: bool = False) -> None:
        if cause not in self._told:
            self._told.add(cause)
            _logger.warning("%s", message, exc_info=with_traceback)

    def _statuses_below(self, spans: Sequence[ReadableSpan]) -> dict[int, StatusCounts]:
        below = {_trace_id(span): self._statuses.get(_trace_id(span)) for span in spans if span.parent is None}
        for span in spans:
            counts = below.get(_trace_id(span))
            if counts is not None and span.parent is not None:
                failed = _has_failed(span)
                below[_trace_id(span)] = StatusCounts(counts.success + (not failed), counts.error + failed)
        return below

    def _count_statuses(self, spans: Sequence[ReadableSpan]) -> None:
        for span in spans:
            if span.parent is not None:
                self._statuses.add(_trace_id(span), failed=_has_failed(span))
        for span in spans:
            if span.parent is None:
                self._statuses.forget(_trace_id(span))


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


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.trace_id if context is not None else 0


def _has_failed(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


def _flag(variable: str) -> bool:
    try:
        return read_flag(variable)
    except ConfigurationError:
        # `check` says so.
        return False
