"""Faults on the way to MLflow, Phoenix and Weave: what their own APIs show is each span, once."""

from __future__ import annotations

import time
import uuid
from collections import Counter

import pytest
from faulty_receiver import Fault, FaultyReceiver
from trainer import account, spooled

pytestmark = pytest.mark.slow

SECONDS_TO_APPEAR = 30.0


class Phoenix:
    """Phoenix behind a proxy."""

    exporter, path = "phoenix", "/v1/traces"

    def __init__(self, server):
        self.server, self.address, self.project = server, server.address, f"faults-{uuid.uuid4().hex[:8]}"

    def variables(self, url):
        """Return the environment that leads a process there."""
        return {"BACKENDS": "phoenix", "PHOENIX_COLLECTOR_ENDPOINT": url}

    def ids(self):
        """Return the ids of the spans that the API shows."""
        return [span["context"]["span_id"] for span in self.server.api.spans(self.project)]


class Mlflow:
    """MLflow behind a proxy."""

    exporter, path = "mlflow", "/v1/traces"

    def __init__(self, server):
        self.address, self.project = server.address, f"faults-{uuid.uuid4().hex[:8]}"

    def variables(self, url):
        """Return the environment that leads a process there."""
        return {"BACKENDS": "mlflow", "MLFLOW_TRACKING_URI": url, "MLFLOW_DISABLE_TELEMETRY": "true"}

    def ids(self):
        """Return the ids of the spans that the API shows."""
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self.address)
        experiment = client.get_experiment_by_name(self.project)
        traces = client.search_traces(locations=[experiment.experiment_id], max_results=500)
        return [span.span_id for trace in traces for span in trace.data.spans]


class Weave:
    """Weave's trace server behind a proxy."""

    exporter, path = "weave", "/calls/complete"

    def __init__(self, server):
        self.server, self.address, self.project = server, server.url, f"team/faults-{uuid.uuid4().hex[:8]}"

    def variables(self, url):
        """Return the environment that leads a process there."""
        return {**self.server.variables, "BACKENDS": "weave", "WANDB_BASE_URL": url, "WF_TRACE_SERVER_URL": url}

    def ids(self):
        """Return the ids of the calls that the API shows, as often as each was stored: reading shows one only."""
        inserts = self.server.inserts()
        return [call["id"] for call in self.server.calls(self.project) for _ in range(inserts[call["id"]])]


KINDS = {"phoenix": Phoenix, "mlflow_server": Mlflow, "weave_server": Weave}


@pytest.fixture(params=KINDS)
def backend(request):
    """A real backend."""
    return KINDS[request.param](request.getfixturevalue(request.param))


@pytest.fixture
def proxy(backend):
    """A proxy in front of it."""
    with FaultyReceiver(backend.address) as proxy:
        yield proxy


FAULTS = {
    "503 after commit": {"status": 503, "after_commit": True},
    "429": {"status": 429, "headers": (("retry-after", "1"),)},
    "reset in mid-body": {"reset": "body"},
    "reset in mid-answer": {"reset": "answer"},
}


class TestOnceThroughTheApi:
    """Each span is there, once."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_fault(self, backend, proxy, start, train, fault) -> None:
        """Two faults in a row, stored or not, leave each span in the backend exactly once, and none is counted lost."""
        faults = [Fault(path=backend.path, **FAULTS[fault])] * 2
        proxy.faults += faults
        trainer = start(PROJECT=backend.project, max_batch_spans=20, **backend.variables(proxy.url))
        train(trainer)
        assert trainer.flush(60.0) is True
        assert trainer.finish() == 0
        assert proxy.met == {faults[0]: 2}
        assert account(trainer.sent, self.stored(backend, len(trainer.sent)), self.counts(trainer, backend)) == {}

    def test_outage(self, backend, proxy, start, train) -> None:
        """A backend that is away at the start and again in between has each span once when it is back."""
        proxy.down()
        trainer = start(PROJECT=backend.project, **backend.variables(proxy.url))
        train(trainer)
        assert trainer.flush(0.5) is False
        proxy.up()
        assert trainer.flush(60.0) is True
        proxy.down()
        train(trainer)
        assert trainer.flush(0.5) is False
        proxy.up()
        assert trainer.finish() == 0
        assert account(trainer.sent, self.stored(backend, len(trainer.sent)), self.counts(trainer, backend)) == {}

    def test_spool_and_replay(self, backend, proxy, start, train, replay, tmp_path) -> None:
        """What was stored although every answer was a fault is in the spool too; after its replay each span is once."""
        # Weave's exporter would find its spans there if it could ask.
        proxy.steady = Fault(path=backend.path.removesuffix("complete"), status=503, after_commit=True)
        variables = backend.variables(proxy.url)
        trainer = start(PROJECT=backend.project, spool=str(tmp_path / "spool"), shutdown_timeout_ms=4000, **variables)
        train(trainer)
        trainer.await_trouble(backend.exporter)
        assert trainer.finish() == 0
        assert self.counts(trainer, backend)["spooled"] == len(trainer.sent)
        proxy.steady = None
        done = replay(tmp_path / "spool", backend.exporter, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(self.stored(backend, len(trainer.sent))) == trainer.sent
        assert spooled(tmp_path / "spool") == []

    def counts(self, trainer, backend):
        """Return the exporter's final counts."""
        return trainer.report["exporters"][backend.exporter]

    def stored(self, backend, expected):
        """Return how often the backend has each span, once it shows so many."""
        deadline = time.monotonic() + SECONDS_TO_APPEAR
        while len(ids := backend.ids()) < expected and time.monotonic() < deadline:
            time.sleep(0.1)
        stored = Counter(ids)
        assert set(stored.values()) == {1}
        return stored
