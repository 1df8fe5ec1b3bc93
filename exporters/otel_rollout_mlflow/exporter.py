"""Trajectories as MLflow traces, on a tracking server or in a tracking database."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind, NotYet
from otel_rollout.export.http import destination_of, import_requests, shown_url, without_userinfo
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.reward_parts import reward_parts_of
from otel_rollout.facts.span_facts import is_late_annotation, span_id_of, trace_id_of
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error, warn_once
from otel_rollout.installing import install_line
from otel_rollout.settings import Setting, read_text
from otel_rollout_mlflow.credentials import SETTINGS, WORKSPACE
from otel_rollout_mlflow.http_store import HttpStore
from otel_rollout_mlflow.run_association import CREATE_RUN, RUN_ID, RunAssociation, RunCandidates
from otel_rollout_mlflow.sql_process import SqlProcess
from otel_rollout_mlflow.sqlite_file import check_sqlite_file
from otel_rollout_mlflow.store import MAX_LINKED_TRACES, MAX_REWARDS, AttemptError, Feedback, Store, configuration_error
from otel_rollout_mlflow.tracking_uri import TRACKING_URI, check_driver, parse_tracking_uri
from otel_rollout_mlflow.translate import column_text, mlflow_trace_id
from otel_rollout_mlflow.where_to_look import where_to_look

EXPERIMENT_ID: Final = Setting("MLFLOW_EXPERIMENT_ID", read_text, None, "the experiment of spans that name no project")
EXPERIMENT_NAME: Final = Setting("MLFLOW_EXPERIMENT_NAME", read_text, None, "the same by its name")
MAX_TRACES: Final = 10_000
MAX_EXPERIMENT_NAME: Final = 500
SECONDS_UNTIL_A_LINE: Final = 15.0
"""The seconds after which the log has a line on a database that is still being opened."""


class MlflowSpanExporter(OutcomeSpanExporter):
    """Writes spans to MLflow: one trace per trajectory, in the experiment named after the project.

    Args:
        tracking_uri: The server (`http://…`) or the database (`sqlite:///…`); else `MLFLOW_TRACKING_URI`, else
            `sqlite:///mlruns.db` in the working folder.
        experiment_name: The MLflow experiment; else the project name of `init`, else `MLFLOW_EXPERIMENT_ID`,
            `MLFLOW_EXPERIMENT_NAME`, or the service name.
        run_id: The run that traces are associated with; else the process's active mlflow run, else `MLFLOW_RUN_ID`.
        create_run: Create a run for (project, experiment name), one for all workers, if there is none; else
            `OTEL_ROLLOUT_MLFLOW_CREATE_RUN`.
        timeout: Seconds for a request to a server.
    """

    address_setting = str(TRACKING_URI)
    seconds_between_looks = 60.0
    """A server is asked so often for the experiment: somebody may delete or rename it."""
    variables = (TRACKING_URI, EXPERIMENT_ID, EXPERIMENT_NAME, RUN_ID, CREATE_RUN, *SETTINGS)

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment_name: str | None = None,
        run_id: str | None = None,
        create_run: bool | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._experiment_name = experiment_name
        self._timeout = timeout
        self._store: Store | None = None
        self._fault: ConfigurationError | None = None
        try:
            self._uri = parse_tracking_uri(tracking_uri)
        except ConfigurationError as error:
            self._fault = error
        self._runs = RunAssociation(run_id, is_created=CREATE_RUN.value(create_run))
        self._experiments: dict[str, str] = {}
        self._looked: dict[str, float] = {}
        # The follow-up requests noted for each trace, so that none is made again.
        self._announced: RecentDict[str, bool] = RecentDict(MAX_TRACES)
        self._linked: RecentDict[str, RunCandidates] = RecentDict(MAX_TRACES)
        self._rewarded: RecentDict[str, Feedback] = RecentDict(MAX_TRACES)
        self._is_shut_down = False
        # Follow-up requests have a connection of their own: a request that hangs there doesn't delay spans.
        is_server = self._fault is None and self._uri.kind == "http"
        self._side_store: Store | None = None
        self._has_side_store = is_server
        self._pid = os.getpid()
        self._turn = threading.Lock()
        # The database is being opened for the first time; it has been.
        self._opening = self._is_open = False
        self.follow_up_requests: FollowUpRequests = FollowUpRequests(
            "mlflow",
            {
                "announcements": Kind(self._announce),
                "links": Kind(self._link, MAX_LINKED_TRACES),
                "rewards": Kind(self._record, 1 if is_server else MAX_REWARDS),
            },
        )

    @property
    def destination(self) -> str | None:
        """The tracking URI, with the workspace and the experiment if they are given."""
        if self._fault is not None:
            return None
        workspace = WORKSPACE.value() if self._uri.kind == "http" else None
        parts = [
            # The user name makes no other destination; a query may.
            destination_of(without_userinfo(self._uri.uri), {}),
            f"workspace {workspace}" if workspace else "",
            f"experiment {self._experiment_name}" if self._experiment_name else "",
        ]
        return ", ".join(part for part in parts if part)

    def check(self) -> None:
        """Check the settings without a connection.

        Raises:
            ConfigurationError: Traces can't be written to the tracking URI.
            MissingExtraError: The URI is a database, and mlflow or the database's driver isn't installed.
        """
        if self._fault is not None:
            raise self._fault
        if self._uri.kind == "http":
            import_requests()
        if self._uri.kind == "sql":
            missing = [name for name in ("mlflow", "sqlalchemy", "alembic") if importlib.util.find_spec(name) is None]
            if missing:
                raise MissingExtraError(
                    f"MLFLOW_TRACKING_URI={shown_url(self._uri.uri)!r} needs {', '.join(missing)}: "
                    f"{install_line('mlflow')}"
                )
            if not self._uri.uri.startswith("sqlite"):
                check_driver(self._uri.uri)
            if self._uri.sqlite_path is not None:
                check_sqlite_file(self._uri.sqlite_path)

    def check_project(self, name: str) -> None:
        """Raise a ConfigurationError for a name that is too long for MLflow's experiments."""
        if self._experiment_name is None and len(name) > MAX_EXPERIMENT_NAME:
            raise ConfigurationError(
                f"project_name={name[:40]!r}…: MLflow takes {MAX_EXPERIMENT_NAME} characters, not {len(name)}"
            )

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to write `spans`; links to runs and rewards are follow-up requests."""
        try:
            with self._opened_store() as store:
                for (project, experiment_name), group in _groups(spans).items():
                    stored = [span for span in group if not is_late_annotation(span)]
                    experiment_id = self._write(store, self._experiment_name or project, stored)
                    try:
                        self._add_follow_ups(store, experiment_id, experiment_name, stored)
                        self._add_rewards(group)
                    except Exception:
                        # The spans are stored.
                        internal_error("noting the links and rewards of stored spans")
        except AttemptError as error:
            return error.outcome
        except Exception as error:
            return Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}")
        return DELIVERED

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`, all of one trace."""
        with self._opened_store() as store:
            stored = store.span_ids(mlflow_trace_id(spans[0]))
            project = self._experiment_name or _project(spans[0])
            place = f"experiment {project or self._experiment_id(store, None)} of {shown_url(self._uri.uri)}"
        if stored is None:
            return ReadBack(None, f"this version of MLflow doesn't list the spans of a trace; it has it in {place}")
        return ReadBack(sum(span_id_of(span) in stored for span in spans), place)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in MLflow."""
        return where_to_look(self._uri.uri, self._experiment_name or project_name, experiment_name)

    def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
        """Return the URL of a trajectory in the server's UI, once its experiment's id is known."""
        experiment_id = self._experiments.get(self._experiment_name or project_name)
        if self._fault is not None or self._uri.kind != "http" or experiment_id is None:
            return None
        uri = without_userinfo(self._uri.uri).rstrip("/")
        return f"{uri}/#/experiments/{experiment_id}/traces?selectedEvaluationId=tr-{trace_id}"

    def prepare(self) -> None:
        """Import MLflow and make the tables of a database, in a process of its own: that takes seconds of CPU time."""
        if self._fault is None and self._uri.kind == "sql":
            self._opening = True
            threading.Thread(target=self._prepare, name="otel-rollout-mlflow-tables", daemon=True).start()

    def _prepare(self) -> None:
        note = threading.Timer(SECONDS_UNTIL_A_LINE, self._note_preparing)
        note.daemon = True
        note.start()
        # The first batch reports a failure.
        with suppress(Exception), self._opened_store() as store:
            if isinstance(store, SqlProcess):
                store.prepare()
        note.cancel()
        if self._is_shut_down and self._store is not None:
            self._store.close()

    def _note_preparing(self) -> None:
        if what := self.preparing:
            warn_once(f"mlflow tables {self._uri.uri}", "mlflow: %s; spans wait in memory meanwhile", what)

    @property
    def preparing(self) -> str:
        """That a database is being opened, or its tables made."""
        if self._pid != os.getpid() or not self._opening or self._uri.kind != "sql":
            return ""
        return f"MLflow is still opening {shown_url(self._uri.uri)}, and making its tables if it has none"

    def shutdown(self) -> None:
        """Finish follow-up requests within `export_timeout`, mark runs created here as finished, and disconnect."""
        if self._is_shut_down:
            warn_once("mlflow shutdown", "MlflowSpanExporter is shut down already")
            return
        self._is_shut_down = True
        self.follow_up_requests.shutdown(monotonic() + self.export_timeout)
        if self.follow_up_requests.is_running or self._opening:
            # A request hangs, and its connections with it; or tables are being made that nobody waits for.
            return
        try:
            if (store := self._side_store or self._store) is not None:
                self._runs.finish(store)
        except Exception as error:
            warn_once("mlflow finish", "the MLflow run could not be marked as finished: %s", error)
        finally:
            for opened in (self._store, self._side_store):
                if opened is not None:
                    opened.close()

    # --- spans

    def _opened(self) -> Store:
        if self._fault is not None:
            raise configuration_error(str(self._fault))
        if self._store is None:
            if self._uri.kind == "http":
                self._store = HttpStore(self._uri.uri, timeout=self._timeout)
            else:
                self._store = SqlProcess(self._uri)
        return self._store

    @contextmanager
    def _opened_store(self) -> Iterator[Store]:
        """Lock and return the store of the spans; a database's process does one thing at a time."""
        if self._pid != os.getpid():
            # After a fork the lock may be held by a thread of the parent.
            self._pid, self._turn, self._opening = os.getpid(), threading.Lock(), False
        with self._turn:
            self._opening = not self._is_open
            try:
                yield self._opened()
                self._is_open = True
            finally:
                self._opening = False

    def _write(self, store: Store, project: str | None, spans: Sequence[ReadableSpan]) -> str:
        """Write spans of one experiment, and return its id."""
        experiment_id = self._experiment_id(store, project)
        if not spans:
            return experiment_id
        try:
            store.write(experiment_id, spans)
        except AttemptError as error:
            if not error.is_missing:
                raise
            # The experiment was purged, or the server has a new database.
            for known in (self._experiments, self._announced, self._linked, self._rewarded):
                known.clear()
            experiment_id = self._experiment_id(store, project)
            try:
                store.write(experiment_id, spans)
            except AttemptError as again:
                raise configuration_error(str(again)) if again.is_missing else again from error
        return experiment_id

    def _experiment_id(self, store: Store, project: str | None) -> str:
        if project is None and (experiment_id := EXPERIMENT_ID.value()):
            return str(experiment_id)
        name = project or EXPERIMENT_NAME.value() or "Default"
        # Over SQL the transaction of each batch reads the experiment.
        is_due = self._uri.kind == "http" and monotonic() - self._looked.get(name, 0.0) > self.seconds_between_looks
        if name not in self._experiments or is_due:
            self._experiments[name] = store.ensure_experiment(name)
            self._looked[name] = monotonic()
        return self._experiments[name]

    # --- follow-up requests

    def _add_follow_ups(
        self, store: Store, experiment_id: str, experiment_name: str, spans: Sequence[ReadableSpan]
    ) -> None:
        """Add the follow-up requests of stored spans, each once."""
        for info, is_whole in store.trace_infos(experiment_id, spans):
            trace_id = info["trace_id"]
            if self._announced.get(trace_id) not in (is_whole, True):
                self._announced[trace_id] = is_whole
                body = orjson.dumps(info)
                self.follow_up_requests.add(
                    "announcements", None, trace_id, body, order=is_whole, payload_bytes=len(body)
                )
        candidates = self._runs.candidates(experiment_id, experiment_name)
        if candidates is not None:
            for trace_id in dict.fromkeys(map(mlflow_trace_id, spans)):
                if self._linked.get(trace_id) != candidates:
                    self._linked[trace_id] = candidates
                    self.follow_up_requests.add("links", candidates, trace_id, trace_id)

    def _add_rewards(self, spans: Sequence[ReadableSpan]) -> None:
        for span in spans:
            for part in reward_parts_of(span):
                feedback = Feedback(
                    mlflow_trace_id(span),
                    part.value,
                    span.end_time or 0,
                    column_text(part.name),
                    rationale=column_text(part.explanation),
                    is_late=is_late_annotation(span),
                )
                known = self._rewarded.get(feedback.assessment_id)
                if known is None or (known != feedback and known.time_ns <= feedback.time_ns):
                    self._rewarded[feedback.assessment_id] = feedback
                    self.follow_up_requests.add(
                        "rewards", None, feedback.assessment_id, feedback, order=feedback.time_ns
                    )

    def _announce(self, _: None, bodies: list[bytes]) -> Outcome:
        return self._on_the_side(lambda store: store.announce([orjson.loads(body) for body in bodies]))

    def _link(self, candidates: RunCandidates, trace_ids: list[str]) -> Outcome:
        return self._on_the_side(lambda store: self._runs.link(store, candidates, trace_ids))

    def _record(self, _: None, rewards: list[Feedback]) -> Outcome | NotYet:
        outcome = self._on_the_side(lambda store: store.record(rewards))
        if outcome.verdict is Verdict.REFUSED and len(rewards) == 1 and rewards[0].is_late:
            # Another process stores the trace, perhaps later.
            return NotYet({0}, outcome.reason)
        return outcome

    def _on_the_side(self, work: Callable[[Store], object]) -> Outcome:
        """Make one attempt at follow-up requests."""
        try:
            if self._has_side_store:
                if self._side_store is None:
                    self._side_store = HttpStore(self._uri.uri, timeout=self._timeout)
                work(self._side_store)
            else:
                with self._opened_store() as store:
                    work(store)
        except AttemptError as error:
            # The trace was deleted: a retry would not help.
            return Outcome(Verdict.REFUSED, error.outcome.reason) if error.is_missing else error.outcome
        return DELIVERED


def _groups(spans: Sequence[ReadableSpan]) -> dict[tuple[str | None, str], list[ReadableSpan]]:
    """Return the spans by project (else service name) and experiment name."""
    groups: dict[tuple[str | None, str], list[ReadableSpan]] = {}
    names: dict[int, str] = {}
    for span in spans:
        name = (span.attributes or {}).get(semconv.EXPERIMENT_NAME)
        if name is not None:
            names[trace_id_of(span)] = str(name)
    projects = {id(span.resource): _project(span) for span in spans}
    for span in spans:
        key = projects[id(span.resource)], names.get(trace_id_of(span), "")
        groups.setdefault(key, []).append(span)
    return groups


def _project(span: ReadableSpan) -> str | None:
    attributes = span.resource.attributes
    project = attributes.get(semconv.PROJECT_NAME)
    if project is None and not (EXPERIMENT_ID.value() or EXPERIMENT_NAME.value()):
        project = attributes.get(semconv.SERVICE_NAME)
    return None if project is None else str(project)
