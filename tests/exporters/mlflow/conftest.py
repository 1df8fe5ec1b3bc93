"""Trajectories made by hand, and the MLflow servers that they are written to."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_rollout_mlflow import MlflowSpanExporter
from otel_rollout_mlflow.sql_store import SqlStore
from tests.servers.databases import Mariadb, Postgresql
from tests.servers.mlflow_server import Mlflow

START_NS = 1_760_000_000_123_456_789
SECOND_NS = 1_000_000_000


@pytest.fixture(autouse=True)
def one_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have databases written to in this process, except where the test is about the other one: that takes seconds."""
    is_about_it = request.module.__name__.rpartition(".")[2] in ("test_sql_process", "test_end_to_end")
    if not is_about_it and getattr(request.cls, "__name__", "") != "TestOutage":
        monkeypatch.setattr("otel_rollout_mlflow.exporter.SqlProcess", SqlStore)


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shut down each exporter that a test makes: threads and connections would be another test's."""
    made: list[MlflowSpanExporter] = []
    make = MlflowSpanExporter.__init__

    def remember(self: MlflowSpanExporter, **given: Any) -> None:
        made.append(self)
        make(self, **given)

    monkeypatch.setattr(MlflowSpanExporter, "__init__", remember)
    yield
    for exporter in made:
        if not exporter._is_shut_down:
            exporter.export_timeout = 0.1
            exporter.shutdown()


class Trajectory:
    """The spans of one trajectory: a root, a turn of the model and a tool's call inside it.

    Args:
        project: The project; the MLflow experiment is called so.
        step: The training step.
        sample_index: The prompt.
        rollout_n: Which rollout of it.
        reward: The reward, if there is one.
    """

    def __init__(
        self,
        project: str = "math",
        *,
        step: int = 1,
        sample_index: int = 7,
        rollout_n: int = 0,
        reward: float | None = None,
        experiment_name: str = "exp-1",
        root_attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.trace_id = int.from_bytes(os.urandom(16), "big")
        self.mlflow_id = f"tr-{self.trace_id:032x}"
        self.resource = Resource({"service.name": project, "rollout.project_name": project, "rollout.run_id": "r1"})
        self.tags = {
            "rollout.step": step,
            "rollout.sample_index": sample_index,
            "rollout.rollout_n": rollout_n,
            "rollout.validate": False,
            "rollout.experiment_name": experiment_name,
        }
        self.root_context = self.context()
        root_only: dict[str, Any] = {
            "session.id": f"{experiment_name}/{step}/{sample_index}",
            "gen_ai.conversation.id": f"{self.trace_id:032x}",
            "gen_ai.operation.name": "invoke_agent",
            "openinference.span.kind": "AGENT",
            "metadata": '{"step":1}',
            "rollout.status": "completed",
            "input.value": '"What is 2+2?"',
            "input.mime_type": "application/json",
            "output.value": '"4"',
            "output.mime_type": "application/json",
        }
        if reward is not None:
            root_only["rollout.reward"] = reward
        self.root = self.span("trajectory", 0, 10, {**root_only, **(root_attributes or {})}, is_root=True)
        self.model = self.span(
            "generate",
            1,
            4,
            {
                "openinference.span.kind": "LLM",
                "gen_ai.operation.name": "chat",
                "gen_ai.usage.input_tokens": 12,
                "gen_ai.usage.output_tokens": 3,
                "input.value": '{"messages":[{"role":"user","content":"What is 2+2?"}]}',
                "input.mime_type": "application/json",
                "output.value": '{"text":"4","ids":[19,20]}',
                "output.mime_type": "application/json",
            },
        )
        self.tool = self.span(
            "calculator",
            5,
            6,
            {
                "openinference.span.kind": "TOOL",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "calculator",
                "error.type": "ZeroDivisionError",
                "input.value": '{"expression":"1/0"}',
                "input.mime_type": "application/json",
            },
            status=Status(StatusCode.ERROR, "ZeroDivisionError: division by zero"),
            events=[
                Event(
                    "exception",
                    {
                        "exception.type": "ZeroDivisionError",
                        "exception.message": "division by zero",
                        "exception.stacktrace": "Traceback …",
                    },
                    START_NS + 6 * SECOND_NS,
                )
            ],
            links=[Link(SpanContext(0xABC, 0xDEF, is_remote=True), {"reason": "retry"})],
        )

    def context(self) -> SpanContext:
        """Return a new span's context."""
        span_id = int.from_bytes(os.urandom(8), "big") or 1
        return SpanContext(self.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))

    def span(
        self,
        name: str,
        start: float,
        end: float,
        attributes: Mapping[str, Any],
        *,
        is_root: bool = False,
        **more: Any,
    ) -> ReadableSpan:
        """Return one more span of the trajectory; `start` and `end` are seconds into it."""
        return ReadableSpan(
            name=name,
            context=self.root_context if is_root else self.context(),
            parent=None if is_root else self.root_context,
            resource=self.resource,
            attributes={**self.tags, **attributes},
            kind=SpanKind.INTERNAL,
            start_time=START_NS + int(start * SECOND_NS),
            end_time=START_NS + int(end * SECOND_NS),
            instrumentation_scope=InstrumentationScope("otel_rollout", "1"),
            **more,
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans as delivery sends them: children first, the root last."""
        return [self.model, self.tool, self.root]


@pytest.fixture
def trajectory() -> type[Trajectory]:
    """The class that makes trajectories by hand."""
    return Trajectory


@pytest.fixture(scope="session")
def start_mlflow(environment: Callable[[str], Path], uncaptured: Any) -> Callable[..., Mlflow]:
    """Make a server that isn't started yet, of the environment that is named."""

    def make(name: str, **options: Any) -> Mlflow:
        return Mlflow(environment(name), uncaptured=uncaptured, **options)

    return make


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Path:
    """A sqlite file of this test's own."""
    return Path(shutil.copy(empty_database, tmp_path / "traces.db"))


@pytest.fixture(scope="session")
def postgresql_uri(postgresql: Postgresql) -> Iterator[str]:
    """A database of PostgreSQL's that tests share."""
    database = postgresql.new_database("tables")
    yield postgresql.uri(database)
    _forget_engines()


@pytest.fixture(scope="session")
def mariadb_uri(mariadb: Mariadb) -> Iterator[str]:
    """A database of MariaDB's that tests share."""
    yield mariadb.uri("tables")
    _forget_engines()


def _forget_engines() -> None:
    """Close the connections that MLflow keeps by URI."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for engine in SqlAlchemyStore._engine_map.values():
        engine.dispose()


def kinds(*fast: str) -> list[Any]:
    """Return the parameters of `uri`: all kinds, the others of which run in `make test-slow` alone."""
    marks = {kind: () if kind in fast else pytest.mark.slow for kind in ("server", "sqlite", "postgresql", "mariadb")}
    return [pytest.param(kind, marks=mark) for kind, mark in marks.items()]


@pytest.fixture(params=kinds("server", "sqlite"))
def uri(request: pytest.FixtureRequest) -> str:
    """A tracking URI of each kind: the test runs on all."""
    if request.param == "server":
        return str(request.getfixturevalue("mlflow_server").address)
    if request.param != "sqlite":
        return str(request.getfixturevalue(f"{request.param}_uri"))
    return f"sqlite:///{request.getfixturevalue('database')}"


@pytest.fixture
def project() -> str:
    """A project's name that no other test uses."""
    return f"project-{uuid.uuid4().hex[:12]}"


class ReadBack:
    """The traces that mlflow's own client finds in one experiment.

    Args:
        uri: The tracking URI.
        project: The experiment's name.
    """

    def __init__(self, uri: str, project: str) -> None:
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self._project = project

    @property
    def experiment_id(self) -> str:
        """The experiment's id."""
        experiment = self.client.get_experiment_by_name(self._project)
        assert experiment is not None, f"no experiment {self._project}"
        return str(experiment.experiment_id)

    def traces(self, filter_string: str | None = None, **more: Any) -> list[Any]:
        """Return all traces that a filter finds."""
        found: list[Any] = []
        token = None
        while True:
            page = self.client.search_traces(
                locations=[self.experiment_id],
                filter_string=filter_string,
                page_token=token,
                max_results=200,
                **more,
            )
            found += page
            token = page.token
            if not token:
                return found

    def trace(self, trace_id: str) -> Any:
        """Return one trace with its spans."""
        return self.client.get_trace(trace_id)


@pytest.fixture
def read_back() -> type[ReadBack]:
    """The class that reads an experiment with mlflow's client."""
    return ReadBack
